"""Learning rates for other batch sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class SquareRootScaler:
    """Scales the learning rate by the square root of the batch size, as adaptive optimizers need.

    Attributes:
        bs: The batch size for which `lr` is right.
        lr: The learning rate for it.
    """

    bs: int
    lr: float

    def compute_lr(self, new_bs: int) -> float:
        """Give the learning rate for the batch size `new_bs`."""
        return self.lr * math.sqrt(new_bs / self.bs)


@dataclass
class LinearScaler:
    """Scales the learning rate with the batch size, as SGD needs.

    Attributes:
        bs: The batch size for which `lr` is right.
        lr: The learning rate for it.
    """

    bs: int
    lr: float

    def compute_lr(self, new_bs: int) -> float:
        """Give the learning rate for the batch size `new_bs`."""
        return self.lr * new_bs / self.bs
