"""A monitor that measures nothing and gives what another one has logged."""

from __future__ import annotations

import csv
import logging
from pathlib import Path
from typing import Literal, NoReturn

from zeus.monitor.energy import Measurement, MeasurementState, ZeusMonitor
from zeus.utils.framework import sync_execution as sync_execution_fn

logger = logging.getLogger(__name__)

# start_time, window_name, elapsed_time; the energy of the GPUs follows.
_BEFORE_GPUS = 3


class ReplayZeusMonitor(ZeusMonitor):
    """Gives the measurements of a `ZeusMonitor`'s log, a row for each window that ends.

    Attributes:
        gpu_indices: Of the GPUs, in the order of the log's columns.
        nvml_gpu_indices: The same.
        log_file: The log, open.
        ongoing_windows: Keys of the windows that have begun and not ended.
    """

    def __init__(
        self,
        gpu_indices: list[int] | None = None,
        approx_instant_energy: bool = False,
        log_file: str | Path | None = None,
        ignore_sync_execution: bool = False,
        match_window_name: bool = True,
    ) -> None:
        """Open the log.

        Args:
            gpu_indices: What the GPUs of the log are called; by default what its header calls them.
            approx_instant_energy: Kept, and without effect.
            log_file: Of a `ZeusMonitor`.
            ignore_sync_execution: Never wait for GPUs.
            match_window_name: Windows must end in the order of the log.

        Raises:
            ValueError: There is no log, or its header is not one of a `ZeusMonitor`.
            OSError: It cannot be read.
        """
        if log_file is None:
            raise ValueError("`log_file` cannot be None: name a log of a ZeusMonitor to replay")
        self.approx_instant_energy = approx_instant_energy
        self.ignore_sync_execution = ignore_sync_execution
        self.match_window_name = match_window_name
        self.sync_with: Literal["torch", "jax", "cupy"] = "torch"
        self.log_file = open(log_file, newline="")  # noqa: SIM115 (lives as long as the monitor)
        self._rows = csv.reader(self.log_file)
        # A log without GPUs has an empty column in their place.
        columns = [column for column in next(self._rows, [])[_BEFORE_GPUS:] if column]
        try:
            logged = [int(c.removeprefix("gpu").removesuffix("_energy")) for c in columns]
        except ValueError as error:
            raise ValueError(
                f"cannot replay {log_file}: its header has the columns {columns} where a "
                "ZeusMonitor's has gpu0_energy and the like"
            ) from error
        self.gpu_indices = logged if gpu_indices is None else gpu_indices
        self.nvml_gpu_indices = self.gpu_indices
        self.ongoing_windows: list[str] = []

    def begin_window(self, key: str, sync_execution: bool = True, restart: bool = False) -> None:
        """Begin a window.

        Args:
            key: Its name.
            sync_execution: Wait for the GPUs first, unless the monitor ignores it.
            restart: Begin it anew where it is ongoing.

        Raises:
            RuntimeError: It is ongoing.
        """
        if key in self.ongoing_windows:
            if not restart:
                raise RuntimeError(f"the window {key!r} is already ongoing; end it first")
            self.ongoing_windows.remove(key)
        self._sync(sync_execution)
        self.ongoing_windows.append(key)

    def end_window(
        self, key: str, sync_execution: bool = True, cancel: bool = False
    ) -> Measurement:
        """End a window and give the next row of the log.

        Args:
            key: Its name.
            sync_execution: Wait for the GPUs first, unless the monitor ignores it.
            cancel: Give zeros, and leave the row to the next window.

        Raises:
            RuntimeError: The window is not ongoing, or the next row is missing, another window's,
                or not one of these GPUs.
        """
        if key not in self.ongoing_windows:
            raise RuntimeError(f"the window {key!r} is not ongoing; begin it first")
        self.ongoing_windows.remove(key)
        self._sync(sync_execution)
        if cancel:
            return Measurement(time=0.0, gpu_energy=dict.fromkeys(self.gpu_indices, 0.0))
        return self._next_row(key)

    def phases(self, *names: str, sync_execution: bool = True) -> NoReturn:
        """Raises NotImplementedError: a log has windows only."""
        raise NotImplementedError("a log of windows cannot be divided into phases")

    def _begin(self, name: str, sync_execution: bool) -> MeasurementState:
        """Of `window()`."""
        self._sync(sync_execution)
        return MeasurementState(0.0, {}, _name=name)

    def _end(self, state: MeasurementState, sync_execution: bool, depth: int) -> Measurement:
        """Of `window()`."""
        self._sync(sync_execution)
        return self._next_row(state._name)

    def _sync(self, wanted: bool) -> None:
        if wanted and not self.ignore_sync_execution and self.gpu_indices:
            sync_execution_fn(self.gpu_indices, sync_with=self.sync_with)

    def _next_row(self, key: str) -> Measurement:
        row = next(self._rows, None)
        if row is None:
            raise RuntimeError(f"cannot replay the window {key!r}: the log has no more rows")
        where = f"cannot replay the window {key!r} from row {self._rows.line_num} of the log"
        if self.match_window_name and row[1:2] != [key]:
            raise RuntimeError(f"{where}: it is the window {row[1] if row[1:] else ''!r}'s")
        # A log without GPUs has an empty column in their place.
        energies = [energy for energy in row[_BEFORE_GPUS:] if energy]
        if len(row) < _BEFORE_GPUS or len(energies) != len(self.gpu_indices):
            raise RuntimeError(
                f"{where}: it has the energy of {len(energies)} GPUs, not of "
                f"{len(self.gpu_indices)}"
            )
        try:
            gpu_energy = dict(zip(self.gpu_indices, map(float, energies), strict=True))
            return Measurement(time=float(row[2]), gpu_energy=gpu_energy)
        except ValueError as error:
            raise RuntimeError(f"{where}: {error}") from error
