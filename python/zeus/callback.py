"""Hooks into a training loop: a base class for callbacks, and a set that calls several."""

from __future__ import annotations

from collections.abc import Sequence


class Callback:
    """Hooks that a training loop calls. Each does nothing until a subclass overrides it."""

    def on_train_begin(self) -> None:
        """Training is about to begin."""

    def on_train_end(self) -> None:
        """Training has ended."""

    def on_epoch_begin(self) -> None:
        """An epoch is about to begin."""

    def on_epoch_end(self) -> None:
        """An epoch has ended."""

    def on_step_begin(self) -> None:
        """A training step is about to begin."""

    def on_step_end(self) -> None:
        """A training step has ended."""

    def on_evaluate(self, metric: float) -> None:
        """The model was evaluated, with the value `metric`."""

    def on_instruction_begin(self, name: str) -> None:
        """The pipeline instruction `name` is about to begin."""

    def on_instruction_end(self, name: str) -> None:
        """The pipeline instruction `name` has ended."""


class CallbackSet(Callback):
    """Calls several callbacks, in their order. An exception of one ends the round."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        """Keep the callbacks.

        Args:
            callbacks: In the order in which they are called.
        """
        self.callbacks = callbacks

    def on_train_begin(self) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_train_begin()

    def on_train_end(self) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_train_end()

    def on_epoch_begin(self) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_epoch_end()

    def on_step_begin(self) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_step_begin()

    def on_step_end(self) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_step_end()

    def on_evaluate(self, metric: float) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_evaluate(metric)

    def on_instruction_begin(self, name: str) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_instruction_begin(name)

    def on_instruction_end(self, name: str) -> None:
        """Forward to each callback."""
        for callback in self.callbacks:
            callback.on_instruction_end(name)
