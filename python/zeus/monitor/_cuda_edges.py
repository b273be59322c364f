"""When work reached the GPU, by CUDA events: for phases of programs that run ahead of it."""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any


class CudaEdges:
    """Events at the edges of phases, on the current stream of each GPU; nothing waits for them.

    The GPU's clock is tied to the monotonic one at both ends of the window, where the GPUs are
    waited for anyhow. Not tested without a GPU.
    """

    def __init__(self, torch: Any, devices: list[int]) -> None:
        """Wait for the GPUs once, and note their clocks.

        Args:
            torch: The module.
            devices: GPUs as PyTorch counts them, on which this process has a context.
        """
        self._torch = torch
        self._begin_s = {device: self._tie(device) for device in devices}
        self._events: dict[int, list[Any]] = {device: [] for device in devices}

    @classmethod
    def where_possible(cls, gpu_indices: list[int]) -> CudaEdges | None:
        """None where this process has not imported PyTorch, or not used a GPU through it."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return None
        from zeus.utils.framework import _with_context

        devices = _with_context([i for i in gpu_indices if i < torch.cuda.device_count()])
        return cls(torch, devices) if devices else None

    def mark(self) -> None:
        """Record an event on the stream that each GPU now works on."""
        for device, events in self._events.items():
            event = self._torch.cuda.Event(enable_timing=True)
            event.record(self._torch.cuda.current_stream(device))
            events.append(event)

    def times(self) -> dict[int, list[float]]:
        """When the GPUs came to the marks, by the monotonic clock; waits for them."""
        return {device: self._times(device) for device in self._events}

    def _times(self, device: int) -> list[float]:
        first, begin_s = self._begin_s[device]
        last, end_s = self._tie(device)
        chain = [first, *self._events[device], last]
        # Milliseconds in single precision: short steps added up lose less than one long one.
        steps = [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(chain)]
        passed = list(itertools.accumulate(steps))
        rate = (end_s - begin_s) / passed[-1] if passed[-1] > 0 else 1.0
        return [begin_s + rate * seconds for seconds in passed[:-1]]

    def _tie(self, device: int) -> tuple[Any, float]:
        """An event, and when it came."""
        event = self._torch.cuda.Event(enable_timing=True)
        self._torch.cuda.synchronize(device)
        before = time.monotonic()
        event.record(self._torch.cuda.current_stream(device))
        event.synchronize()
        return event, (before + time.monotonic()) / 2
