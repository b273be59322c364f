"""A small GPT in NumPy: bytes in, bytes out, weights from a fixed seed. It was never trained.

What it says is noise, but what it computes is a decoder's work in full: embeddings, layers of
causal attention over a cache of keys and values, and a step that mixes prompts of one request with
single tokens of others.
"""

import os

# The matrices are small: more threads would mostly wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

VOCABULARY = 256
Array = np.ndarray


class Cache:
    """Keys and values of one request: (layers, 2, longest, width), of which `length` are filled."""

    def __init__(self, layers: int, longest: int, width: int):
        self.data = np.empty((layers, 2, longest, width), np.float32)
        self.length = 0


class Model:
    """Decoder of `layers` blocks (Radford et al. 2019: normalised before each half)."""

    def __init__(self, width: int = 192, layers: int = 4, heads: int = 6, longest: int = 512):
        rng = np.random.default_rng(20240229)

        def weights(*shape: int) -> Array:
            return rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32)

        self.width, self.layers, self.heads, self.longest = width, layers, heads, longest
        self.embedding = weights(VOCABULARY, width) * 16  # rows of unit size
        self.position = weights(longest, width)
        self.blocks = [
            (
                weights(width, 3 * width),
                weights(width, width),
                weights(width, 4 * width),
                weights(4 * width, width),
            )
            for _ in range(layers)
        ]

    def cache(self) -> Cache:
        return Cache(self.layers, self.longest, self.width)

    def forward(self, parts: list[tuple[Cache, list[int]]]) -> Array:
        """One step over several requests; returns (requests, vocabulary) scores of what is next.

        Each part is a request's cache and the tokens to compute for it: a chunk of its prompt, or
        the token that it generated last. All tokens go through the matrices together.
        """
        tokens = np.concatenate([np.asarray(part, np.int64) for _, part in parts])
        places = np.concatenate([np.arange(c.length, c.length + len(p)) for c, p in parts])
        x = self.embedding[tokens] + self.position[places]
        for layer, (qkv, out, up, down) in enumerate(self.blocks):
            q, k, v = np.split(normalised(x) @ qkv, 3, axis=1)
            x = x + self._attend(layer, parts, q, k, v) @ out
            x = x + gelu(normalised(x) @ up) @ down
        for cache, part in parts:
            cache.length += len(part)
        last = np.cumsum([len(part) for _, part in parts]) - 1
        return normalised(x[last]) @ self.embedding.T

    def _attend(
        self, layer: int, parts: list[tuple[Cache, list[int]]], q: Array, k: Array, v: Array
    ) -> Array:
        """Causal attention of each request to itself: (tokens, width)."""
        mixed, row = np.empty_like(q), 0
        for cache, part in parts:
            old, new = cache.length, len(part)
            rows = slice(row, row + new)
            keys, values = cache.data[layer]
            keys[old : old + new], values[old : old + new] = k[rows], v[rows]
            # (heads, tokens or context, width of a head)
            qh, kh, vh = (
                a.reshape(len(a), self.heads, -1).swapaxes(0, 1)
                for a in (q[rows], keys[: old + new], values[: old + new])
            )
            scores = qh @ kh.swapaxes(1, 2) * (self.width // self.heads) ** -0.5
            future = np.arange(old + new) > np.arange(old, old + new)[:, None]
            scores[:, future] = -np.inf
            scores = np.exp(scores - scores.max(axis=2, keepdims=True))
            scores /= scores.sum(axis=2, keepdims=True)
            mixed[rows] = (scores @ vh).swapaxes(0, 1).reshape(new, -1)
            row += new
        return mixed


def normalised(x: Array) -> Array:
    x = x - x.mean(axis=1, keepdims=True)
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)


def gelu(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))
