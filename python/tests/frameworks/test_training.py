"""Training runs on scikit-learn's digits, measured on simulated machines."""

from __future__ import annotations

import csv
import json
import math
import os
import pathlib
import subprocess
import sys
from typing import ClassVar

import pytest

EXAMPLES = pathlib.Path(__file__).parents[3] / "examples/train_torch"
WATTS = 100  # of the scenario "constant"


def agree(joules: float, u: float, seconds: float) -> None:
    """Joules are the closed form's within what they say of themselves, which is not too much."""
    assert abs(joules - WATTS * seconds) <= 4 * u
    assert u <= 0.06 * joules + 10


def test_a_loop_of_ones_own_uses_what_its_devices_used(simulated, truth, example, capsys):
    simulated("square")
    example("plain.py", "--epochs", 8)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    exact = truth(result["begin_s"], result["end_s"])
    for device, energy in result["devices"].items():
        assert abs(energy["energy_j"] - exact[device]) <= 4 * energy["u_j"]
        assert energy["u_j"] < 0.3 * energy["energy_j"]
    assert result["total"]["energy_j"] >= sum(d["energy_j"] for d in result["devices"].values())


# field failure 151
def test_ranks_of_a_loop_of_ones_own_share_the_node_and_count_it_once(torchrun):
    [result] = torchrun(2, str(EXAMPLES / "plain.py"), "--epochs", 12, scenario="constant")
    assert list(result["ranks"].values()) == [[0, 1]]
    assert result["accuracy"] > 0.9
    seconds = result["end_s"] - result["begin_s"]
    [energy] = result["devices"].values()
    # Rank 0's time, where the longer of the two counts.
    assert abs(energy["energy_j"] - WATTS * seconds) <= 4 * energy["u_j"] + 0.1 * WATTS * seconds


def rows(folder: pathlib.Path) -> list[dict[str, float]]:
    """What Lightning logged, without the cells that are empty."""
    with (folder / "metrics.csv").open() as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]


def check_lightning(logs: list[dict[str, float]], epochs: int) -> None:
    of = {name: [r for r in logs if f"{name}_energy_time_s" in r] for name in ("step", "epoch")}
    assert len(of["epoch"]) == epochs
    assert len(of["step"]) >= epochs
    [train] = [r for r in logs if "train_energy_j" in r]
    agree(train["train_energy_j"], train["train_energy_u_j"], train["train_energy_time_s"])
    for row in of["epoch"]:
        if "epoch_energy_j" in row:
            agree(row["epoch_energy_j"], row["epoch_energy_u_j"], row["epoch_energy_time_s"])
    assert sum(r["epoch_energy_time_s"] for r in of["epoch"]) <= train["train_energy_time_s"]


def test_lightning_logs_what_a_run_used(simulated, example, tmp_path, capsys):
    simulated("constant")
    example("with_lightning.py", "--cpu", "--epochs", 8, "--logs", tmp_path)
    logs = rows(tmp_path)
    check_lightning(logs, 8)
    assert any("eval_energy_time_s" in row for row in logs)
    said = capsys.readouterr().out
    assert "Energy of this training run" in said and "1 x gpu" in said


def lightning(scenario: str, *arguments: object, **environment: str) -> str:
    """Runs the script on a simulated machine; gives what it printed.

    Zeus alone is told of that machine: Lightning lets PyTorch count the GPUs of NVML, which would
    find simulated ones that no CUDA program can run on.
    """
    build = os.environ.get("ZEUS_BUILD")
    if build is None:
        pytest.skip("ZEUS_BUILD does not name a build tree")
    enter = 'ZEUS_HOST=sim:$ZEUS_SIM_SESSION LD_LIBRARY_PATH= exec "$@"'
    command = [f"{build}/bin/zeus", "sim", "run", scenario, "--", "sh", "-c", enter, "sh"]
    script = [EXAMPLES / "with_lightning.py", "--cpu", *arguments]
    out = subprocess.run(
        [*command, sys.executable, *map(str, script)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_lightning_under_its_other_name_logs_the_same(tmp_path):
    lightning("constant", "--epochs", 8, "--logs", tmp_path, LIGHTNING="pytorch_lightning")
    check_lightning(rows(tmp_path), 8)


# field failure 151
def test_lightning_on_two_ranks_logs_the_whole_node_once(tmp_path):
    said = lightning("h100x8", "--epochs", 8, "--devices", 2, "--logs", tmp_path)
    assert "2 x gpu" in said and "2 x cpu" in said and "2 rank(s)" in said
    [train] = [r for r in rows(tmp_path) if "train_energy_j" in r]
    parts = [train[f"train_{kind}_energy_j"] for kind in ("gpu", "cpu", "dram")]
    assert train["train_energy_j"] == pytest.approx(math.fsum(parts), rel=1e-5)


def test_a_trainer_of_transformers_logs_what_a_run_used(simulated, example, tmp_path, capsys):
    simulated("constant")
    example("with_transformers.py", "--cpu", "--epochs", 4, "--logs", tmp_path)
    history = json.loads((tmp_path / "history.json").read_text())
    [end] = [h for h in history if "train_runtime" in h]
    agree(end["train_energy_j"], end["train_energy_u_j"], end["train_energy_time_s"])
    assert end["train_energy_time_s"] == pytest.approx(end["train_runtime"], rel=0.2, abs=0.5)
    evaluations = [h for h in history if "eval_loss" in h]
    # Four within training, and one that the script asked for.
    assert len(evaluations) == 5
    assert all("eval_energy_time_s" in h for h in evaluations)
    steps = [h for h in history if "loss" in h]
    assert all("step_energy_time_s" in h for h in steps)
    assert [h["epoch_energy_time_s"] for h in history if "epoch_energy_time_s" in h]
    assert "Energy of this training run" in capsys.readouterr().out


def test_a_trainer_of_trl_logs_it_too_and_reporters_see_it(simulated, tmp_path):
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback

    from zeus.callbacks.huggingface import ZeusTrainerCallback

    words = {word: i for i, word in enumerate(["<unk>", "<end>", *"abcdefgh"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>", pad_token="<end>"
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
    )

    class Reporter(TrainerCallback):
        seen: ClassVar[list[str]] = []

        def on_log(self, args, state, control, logs=None, **_):
            self.seen.extend(logs)

    simulated("constant")
    trainer = trl.SFTTrainer(
        model=LlamaForCausalLM(config),
        args=trl.SFTConfig(
            str(tmp_path),
            max_steps=40,
            logging_steps=20,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"text": ["a b c d e f g h"] * 64}),
        processing_class=fast,
        callbacks=[Reporter()],
    )
    callback = ZeusTrainerCallback.attach(trainer, verbose=False)
    results = trainer.train().metrics
    agree(results["train_energy_j"], results["train_energy_u_j"], results["train_energy_time_s"])
    assert {"step_energy_time_s", "train_energy_j"} <= set(Reporter.seen)
    assert [window.name for window in callback.windows][-1] == "train"
