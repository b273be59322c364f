"""Energy of the Trainer of Transformers, and of TRL's trainers, which are made of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    from transformers import (
        Trainer,
        TrainerCallback,
        TrainerControl,
        TrainerState,
        TrainingArguments,
    )
except ImportError as error:
    raise ImportError(
        f"this callback is for the Trainer of Transformers, which cannot be imported ({error}): "
        "pip install transformers accelerate"
    ) from error

from zeus.callbacks._tracker import Tracker, Window, is_first_rank, to_log
from zeus.monitor import ZeusMonitor

__all__ = ["ZeusTrainerCallback"]


class ZeusTrainerCallback(TrainerCallback):  # type: ignore[misc]
    """Measures a run, and adds its energy to what the Trainer logs.

    `Trainer(..., callbacks=[ZeusTrainerCallback()])` adds to `trainer.state.log_history`, to the
    metrics that `train()` and `evaluate()` return, and to what callbacks behind this one are given.
    Reporters (TensorBoard, W&B ...) stand before it; `ZeusTrainerCallback.attach(trainer)` puts it
    before them.

    The keys, in joules and seconds, with their standard uncertainties (k = 1) where those are
    known: `step_energy_j`, `step_energy_u_j`, `step_energy_time_s` (means over the optimizer steps
    since the last log or evaluation), `epoch_...` (at the next log), `train_...` (at the last log,
    evaluations included) and `eval_...`. Where more than GPUs is measured, `train_gpu_energy_j`,
    `train_cpu_energy_j` and `train_dram_energy_j` are parts of `train_energy_j`, and so on. What
    could not be measured has no key.

    With several ranks each of them must have this callback: they gather what all used, each device
    once. Windows wait for the GPUs at their edges, which are those of logs, not of steps.

    Attributes:
        windows: Everything that was measured.
    """

    def __init__(
        self,
        monitor: ZeusMonitor | None = None,
        gpu_indices: list[int] | None = None,
        steps: bool = True,
        verbose: bool = True,
    ) -> None:
        """Choose what to measure.

        Args:
            monitor: Measures with this one; None: with its own.
            gpu_indices: Which GPUs its own one watches; None: those that this rank trains on.
            steps: Measure steps too.
            verbose: Print a summary at the end, on rank 0.
        """
        self._tracker = Tracker(monitor, gpu_indices)
        self._steps = steps
        self._verbose = verbose
        self._pending: dict[str, float] = {}
        self._training = False
        self._evaluated = False
        self._used: list[int] | None = None

    @classmethod
    def attach(cls, trainer: Trainer, **options: Any) -> ZeusTrainerCallback:
        """Make one for a trainer, before the reporters in its list, so that they see its values."""
        callback = cls(**options)
        callback._used = _gpus_of(trainer.args)
        # The first one decides what happens at a step, which this one asks for.
        trainer.callback_handler.callbacks.insert(1, callback)
        return callback

    @property
    def windows(self) -> list[Window]:
        """Everything that was measured, in the order in which it ended."""
        return self._tracker.windows

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Measure an `evaluate()` or `predict()` outside of training, which nothing announces."""
        self._begin_eval(step=0)
        try:
            yield
        finally:
            self._tracker.cancel("eval")

    # --- what the Trainer calls ---

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Learn what the run trains on."""
        self._used = _gpus_of(args)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Begin the windows."""
        self._training = True
        self._tracker.open(self._used)
        step = state.global_step
        self._tracker.begin("train", step)
        if getattr(args, "eval_on_start", False):
            self._begin_eval(step)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Begin an epoch."""
        self._tracker.begin("epoch", state.global_step)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Begin steps, first and after an evaluation, of which no further one follows now."""
        self._tracker.cancel("eval")
        if self._steps and not self._tracker.is_open("steps"):
            self._tracker.begin("steps", state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Begin an evaluation if one comes next."""
        if control.should_evaluate and not self._tracker.is_open("eval"):
            self._begin_eval(state.global_step)

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """End an epoch, and begin an evaluation if one comes next."""
        if self._tracker.is_open("epoch"):
            self._pending |= to_log(self._tracker.end("epoch", state.global_step))
        self.on_step_end(args, state, control)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Add what is known by now to what is logged."""
        if logs is None:
            return
        step = state.global_step
        if any(key.startswith("eval_") for key in logs):
            if self._tracker.is_open("eval"):
                self._evaluated = True
                _add(to_log(self._tracker.end("eval", step)), logs, state)
            return
        if not self._training:
            return
        if "train_runtime" in logs:
            # The last log of a run; on_train_end comes too late to be in it.
            self._tracker.cancel("steps", "eval")
            self._pending |= to_log(self._tracker.end("train", step))
        elif self._tracker.steps("steps", step) > 0:
            self._end_steps(step)
        _add(self._pending, logs, state)
        self._pending = {}

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """An evaluation has ended. Another one may follow at once, of the next data set."""
        if not self._evaluated:
            warnings.warn(
                "the energy of this evaluation is not known: nothing told when it began; outside "
                "of training, run it within `with callback.evaluation():`",
                stacklevel=2,
            )
        self._evaluated = False
        if self._training:
            self._begin_eval(state.global_step)

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **_: Any,
    ) -> None:
        """A prediction has ended: add its energy to its metrics, if it was announced."""
        if self._tracker.is_open("eval"):
            metrics |= to_log(self._tracker.end("eval", state.global_step), "test")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Say what the run used."""
        self._tracker.cancel("eval", "epoch", "steps", "train")
        self._training = False
        if self._verbose and is_first_rank():
            print(self._tracker.summary(), flush=True)

    # --- parts ---

    def _begin_eval(self, step: int) -> None:
        if self._tracker.steps("steps", step) > 0:
            self._end_steps(step)
        self._tracker.cancel("steps")
        self._tracker.open(self._used)
        self._tracker.begin("eval", step)

    def _end_steps(self, step: int) -> None:
        self._pending |= to_log(self._tracker.end("steps", step), "step", per_step=True)


def _add(values: dict[str, float], logs: dict[str, float], state: TrainerState) -> None:
    """Add to what is being logged, and to the copy of it that the Trainer has kept already."""
    logs |= values
    if state.log_history:
        state.log_history[-1] |= values


def _gpus_of(args: TrainingArguments) -> list[int] | None:
    """The GPUs that this process trains on; None: none."""
    if args.device.type != "cuda":
        return None
    if args.n_gpu > 1:  # One process for all, with DataParallel.
        return list(range(args.n_gpu))
    return [args.device.index or 0]
