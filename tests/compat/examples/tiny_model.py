"""Writes a folder with all that upstream's run_clm.py wants from a hub: usage: tiny_model.py FOLDER.

A language model of random weights with its tokenizer (model/), sentences of our own (train.json,
eval.json), and the metric that it loads by name (accuracy/).
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

METRIC = """
import datasets
import evaluate


class Accuracy(evaluate.Metric):
    def _info(self):
        value = datasets.Value("int32")
        features = datasets.Features({"predictions": value, "references": value})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        equal = sum(told == true for told, true in zip(predictions, references))
        return {"accuracy": equal / len(references)}
"""


def main(folder: pathlib.Path) -> None:
    sentences = [f"window {i}: {7 * i % 90} joules in {i % 13} seconds" for i in range(400)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    special = ["<unk>", "<end>"]
    tokenizer.train_from_iterator(
        sentences, trainers.BpeTrainer(vocab_size=300, special_tokens=special)
    )
    config = GPT2Config(
        vocab_size=tokenizer.get_vocab_size(), n_positions=64, n_embd=32, n_layer=2, n_head=2
    )
    GPT2LMHeadModel(config).save_pretrained(folder / "model")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>", model_max_length=64
    ).save_pretrained(folder / "model")
    for name, part in (("train", sentences[:300]), ("eval", sentences[300:])):
        lines = "\n".join(json.dumps({"text": sentence}) for sentence in part)
        (folder / f"{name}.json").write_text(lines)
    (folder / "accuracy").mkdir()
    (folder / "accuracy/accuracy.py").write_text(METRIC)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
