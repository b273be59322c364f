"""Continuous batching: requests join and leave the batch between steps (Yu et al., OSDI'22)."""

import collections
import dataclasses
import time

import numpy as np
from model import Cache, Model

from zeus.serving import StepEvent, StepItem


@dataclasses.dataclass(eq=False)
class Request:
    name: str
    prompt: list[int]
    most: int  # tokens to generate
    cache: Cache | None = None
    output: list[int] = dataclasses.field(default_factory=list)

    @property
    def done(self) -> bool:
        return len(self.output) == self.most


class Engine:
    """Serves requests in steps.

    A step computes one token for every request that is generating, and fills up to `budget` tokens
    with prompts, the last of them in part.
    """

    def __init__(self, model: Model, seats: int = 8, budget: int = 64):
        self.model, self.seats, self.budget = model, seats, budget
        self.waiting: collections.deque[Request] = collections.deque()
        self.batch: list[Request] = []

    def add(self, request: Request) -> None:
        if len(request.prompt) + request.most > self.model.longest:
            raise ValueError(f"{request.name} is longer than {self.model.longest} tokens")
        self.waiting.append(request)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.batch)

    def step(self) -> tuple[StepEvent, list[Request]]:
        """Runs one step; returns what a ledger must know of it, and the requests that it ended."""
        begin = time.monotonic()
        while self.waiting and len(self.batch) < self.seats:
            request = self.waiting.popleft()
            request.cache = self.model.cache()
            self.batch.append(request)
        parts, items = [], []
        left = self.budget - sum(bool(r.output) for r in self.batch)
        for request in self.batch:
            before = request.cache.length
            if request.output:
                tokens = request.output[-1:]
            else:
                tokens = request.prompt[before : before + max(0, left)]
                left -= len(tokens)
            if not tokens:
                continue
            samples = before + len(tokens) >= len(request.prompt)
            context = sum(range(before + 1, before + len(tokens) + 1))
            phase = "decode" if request.output else "prefill"
            items.append(StepItem(request.name, phase, len(tokens), context, int(samples)))
            parts.append((request, tokens, samples))
        scores = self.model.forward([(request.cache, tokens) for request, tokens, _ in parts])
        for (request, _, samples), row in zip(parts, scores, strict=True):
            if samples:
                request.output.append(int(np.argmax(row)))
        ended = [request for request in self.batch if request.done]
        self.batch = [request for request in self.batch if not request.done]
        return StepEvent(begin, time.monotonic(), items), ended
