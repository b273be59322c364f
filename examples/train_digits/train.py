#!/usr/bin/env python3
"""Trains a two-layer network on the handwritten digits that ship with scikit-learn.

A small but complete training run: mini-batches, forward and backward pass, momentum, a learning
rate that falls along a cosine, and a test set that is never trained on. It knows nothing of Zeus; it is what
`zeus run -- python train.py` measures. Exits with 1 if the network did not learn.
"""

import argparse
import os
import sys
import time

# The matrices are small: more threads would mostly wait for each other, the more so on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.datasets import load_digits

SIDE = 8  # pixels
CLASSES = 10


def shifted(images: np.ndarray, down: int, right: int) -> np.ndarray:
    """images (n, 8, 8), each moved by at most one pixel; what leaves is lost, what enters is black."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    return padded[:, 1 - down : 1 - down + SIDE, 1 - right : 1 - right + SIDE]


def load(rng: np.random.Generator, test_share: float = 0.2):
    """Training images with their eight shifts, and test images as they are: (n, 64) in 0..1, labels (n,)."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)
    order = rng.permutation(len(images))
    test, train = np.split(order, [int(test_share * len(order))])
    moves = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]
    x = np.concatenate([shifted(images[train], *move) for move in moves]).reshape(-1, SIDE * SIDE)
    y = np.tile(digits.target[train], len(moves))
    return x, y, images[test].reshape(-1, SIDE * SIDE), digits.target[test]


class Network:
    """64 inputs -> hidden ReLU units -> 10 classes, trained on the mean cross-entropy."""

    def __init__(self, hidden: int, rng: np.random.Generator):
        def layer(inputs: int, outputs: int) -> list[np.ndarray]:  # He et al. 2015: variance 2 / inputs
            weights = rng.normal(0, np.sqrt(2 / inputs), (inputs, outputs))
            return [weights.astype(np.float32), np.zeros(outputs, np.float32)]

        self.parameters = layer(SIDE * SIDE, hidden) + layer(hidden, CLASSES)
        self.velocity = [np.zeros_like(p) for p in self.parameters]

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hidden activations and the logarithm of each class's probability."""
        w1, b1, w2, b2 = self.parameters
        hidden = np.maximum(x @ w1 + b1, 0)
        scores = hidden @ w2 + b2
        scores -= scores.max(axis=1, keepdims=True)
        return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def step(self, x: np.ndarray, y: np.ndarray, rate: float, momentum: float, decay: float) -> float:
        """One step of stochastic gradient descent; returns the loss before it."""
        hidden, log_p = self.forward(x)
        rows = np.arange(len(y))
        d_scores = np.exp(log_p)
        d_scores[rows, y] -= 1
        d_scores /= len(y)
        w1, _, w2, _ = self.parameters
        d_hidden = (d_scores @ w2.T) * (hidden > 0)
        gradients = [x.T @ d_hidden + decay * w1, d_hidden.sum(axis=0),
                     hidden.T @ d_scores + decay * w2, d_scores.sum(axis=0)]
        for p, v, g in zip(self.parameters, self.velocity, gradients):
            v *= momentum
            v -= np.float32(rate) * g
            p += v
        return float(-log_p[rows, y].mean())

    def accuracy(self, x: np.ndarray, y: np.ndarray) -> float:
        return float((self.forward(x)[1].argmax(axis=1) == y).mean())


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40, help="passes over the training set (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=16, help="images a step (default: %(default)s)")
    parser.add_argument("--hidden", type=int, default=2048, help="hidden units (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate at the start (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of split, weights and order (default: %(default)s)")
    parser.add_argument("--target", type=float, default=0.95, help="test accuracy to pass (default: %(default)s)")
    args = parser.parse_args()
    if min(args.epochs, args.batch, args.hidden) < 1:
        parser.error("--epochs, --batch and --hidden are at least 1")
    return args


def main() -> int:
    args = arguments()
    rng = np.random.default_rng(args.seed)
    x, y, test_x, test_y = load(rng)
    network = Network(args.hidden, rng)
    print(f"{len(y)} training images, {len(test_y)} test images, "
          f"{sum(p.size for p in network.parameters)} parameters", flush=True)
    start = time.perf_counter()
    accuracy = 0.0
    for epoch in range(args.epochs):
        rate = args.rate * 0.5 * (1 + np.cos(np.pi * epoch / args.epochs))
        losses = [network.step(x[i], y[i], rate, momentum=0.9, decay=1e-4)
                  for i in np.split(rng.permutation(len(y)), range(args.batch, len(y), args.batch))]
        accuracy = network.accuracy(test_x, test_y)
        print(f"epoch {epoch + 1:3d}/{args.epochs}  loss {np.mean(losses):.4f}  test accuracy {accuracy:.2%}", flush=True)
    print(f"trained in {time.perf_counter() - start:.1f} s; test accuracy {accuracy:.2%}", flush=True)
    if not accuracy > args.target:
        print(f"the network did not learn: its test accuracy is not above {args.target:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
