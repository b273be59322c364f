"""Energy of PyTorch Lightning's Trainer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from zeus.callbacks._tracker import Tracker, Window, is_first_rank, to_log
from zeus.monitor import ZeusMonitor

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    # One library under two names, whose classes are not each other's: that which is in use.
    if sys.modules.get("pytorch_lightning") and not sys.modules.get("lightning.pytorch"):
        from pytorch_lightning import Callback
    else:
        try:
            from lightning.pytorch import Callback
        except ImportError:
            try:
                from pytorch_lightning import Callback
            except ImportError as error:
                raise ImportError(
                    "this callback is for PyTorch Lightning, which cannot be imported "
                    f"({error}): pip install lightning"
                ) from error

__all__ = ["ZeusCallback"]


class ZeusCallback(Callback):  # type: ignore[misc]
    """Measures a run, and logs its energy through the run's own loggers.

    `Trainer(callbacks=[ZeusCallback()])`. In joules and seconds, with their standard uncertainties
    (k = 1) where those are known:

    - `step_energy_j`, `step_energy_u_j`, `step_energy_time_s`: means over optimizer steps, every
      `log_every_n_steps` of them; validation is not in them.
    - `epoch_...`: an epoch, with the validation that runs within it.
    - `eval_...`, `test_...`: a validation and a test.
    - `train_...`: everything from the first step to the last.

    Where more than GPUs is measured, `train_gpu_energy_j`, `train_cpu_energy_j` and
    `train_dram_energy_j` are parts of `train_energy_j`, and so on. Those of epochs, validations and
    tests are in `trainer.callback_metrics` too. What could not be measured has no key.

    Ranks gather what all of them used, each device once. Windows wait for the GPUs at their edges.
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
        super().__init__()
        self._tracker = Tracker(monitor, gpu_indices)
        self._steps = steps
        self._verbose = verbose

    @property
    def windows(self) -> list[Window]:
        """Everything that was measured, in the order in which it ended."""
        return self._tracker.windows

    # --- what the Trainer calls ---

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin the run."""
        self._tracker.open(_gpus_of(trainer))
        self._tracker.begin("train", trainer.global_step)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin an epoch."""
        self._tracker.begin("epoch", trainer.global_step)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin steps, first and after a validation."""
        if self._steps and not self._tracker.is_open("steps"):
            self._tracker.begin("steps", trainer.global_step)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Log steps, when there are enough of them."""
        every = getattr(trainer, "log_every_n_steps", 0)
        if every and self._tracker.steps("steps", trainer.global_step) >= every:
            self._log_steps(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log an epoch."""
        self._log(trainer, pl_module, "epoch")

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a validation. That before training, which looks whether it works, is none."""
        if trainer.sanity_checking:
            return
        if self._tracker.steps("steps", trainer.global_step) > 0:
            self._log_steps(trainer)
        self._tracker.cancel("steps")
        self._begin(trainer, "eval")

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log a validation."""
        self._log(trainer, pl_module, "eval")

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a test."""
        self._begin(trainer, "test")

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log a test."""
        self._log(trainer, pl_module, "test")

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the run, and say what it used."""
        self._tracker.cancel("steps", "epoch", "eval")
        self._log_now(trainer, to_log(self._tracker.end("train", trainer.global_step)))
        if self._verbose and is_first_rank():
            print(self._tracker.summary(), flush=True)

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Drop what is open."""
        self._tracker.cancel("steps", "epoch", "eval", "test", "train")

    # --- parts ---

    def _begin(self, trainer: Trainer, name: str) -> None:
        self._tracker.open(_gpus_of(trainer))
        self._tracker.begin(name, trainer.global_step)

    def _log_steps(self, trainer: Trainer) -> None:
        window = self._tracker.end("steps", trainer.global_step)
        self._log_now(trainer, to_log(window, "step", per_step=True))

    def _log(self, trainer: Trainer, pl_module: LightningModule, name: str) -> None:
        if not self._tracker.is_open(name):
            return
        values = to_log(self._tracker.end(name, trainer.global_step))
        # All ranks have the same values; Lightning warns where it is not told to reduce them.
        pl_module.log_dict(
            values, on_step=False, on_epoch=True, batch_size=1, sync_dist=trainer.world_size > 1
        )

    def _log_now(self, trainer: Trainer, values: dict[str, float]) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step)


def _gpus_of(trainer: Trainer) -> list[int] | None:
    """The GPU that this process trains on; None: none."""
    device = trainer.strategy.root_device
    return [device.index or 0] if device.type == "cuda" else None
