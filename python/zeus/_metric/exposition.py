"""How Prometheus metrics leave the process: pushed to a gateway, or pulled from an endpoint."""

from __future__ import annotations

import http.client
import logging
import os
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

from zeus.utils.framework import get_rank, is_distributed

logger = logging.getLogger(__name__)

# After a gateway let a push time out it is left alone for so long: a job waits for its energy to
# be written once a minute, not at each of its windows.
_REST_S = 60.0
# What launchers call the rank of a process: torchrun, Open MPI, MPICH and Slurm.
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def prometheus() -> Any:
    """Give the module `prometheus_client`.

    Raises:
        ImportError: It is not installed.
    """
    try:
        import prometheus_client
    except ImportError as error:
        raise ImportError(
            "cannot make Prometheus metrics: prometheus_client is not installed; "
            "pip install zeus-cpp[metric]"
        ) from error
    return prometheus_client


class Exposition:
    """A registry of its own, and the ways out of it.

    Attributes:
        registry: What is pushed and served.
    """

    def __init__(
        self,
        metric: str,
        gateway_url: str | None,
        job: str,
        grouping_key: Mapping[str, str] | None = None,
        push_timeout_s: float = 5.0,
    ) -> None:
        """Push nothing yet.

        Args:
            metric: What these metrics are called in the grouping key.
            gateway_url: Where the Pushgateway is; None: nothing is pushed.
            job: The job in the grouping key.
            grouping_key: The labels beside `job` of the group that a push replaces; None: the name
                of the host, the rank and `metric`, so that no process erases what others pushed.
            push_timeout_s: How long a push may wait for the gateway.
        """
        self.registry = prometheus().CollectorRegistry()
        self.push_timeout_s = push_timeout_s
        self._metric = metric
        self._url = gateway_url
        self._job = job
        self._grouping_key = None if grouping_key is None else dict(grouping_key)
        self._lock = threading.Lock()
        self._failures = 0
        self._rest_until = 0.0
        self._servers: list[Any] = []
        _alive.add(self)

    @property
    def grouping_key(self) -> dict[str, str]:
        """The labels beside `job`; told when first asked for, when ranks have met each other."""
        if self._grouping_key is None:
            self._grouping_key = {
                "instance": socket.gethostname(),
                "rank": str(_rank()),
                "metric": self._metric,
            }
        return self._grouping_key

    def push(self, insist: bool = False) -> bool:
        """Replace the group in the gateway by all that the registry holds now.

        A gateway that cannot be reached is logged: what it missed is in the next push.

        Args:
            insist: Push even to a gateway that has just let a push time out.

        Returns:
            Whether the gateway has it.
        """
        if self._url is None:
            return False
        with self._lock:
            if not insist and time.monotonic() < self._rest_until:
                return False
            try:
                prometheus().push_to_gateway(
                    self._url,
                    job=self._job,
                    registry=self.registry,
                    grouping_key=self.grouping_key,
                    timeout=self.push_timeout_s,
                )
            except (OSError, http.client.HTTPException) as error:
                self._note_failure(error)
                return False
            self._note_success()
            return True

    def serve(self, port: int, address: str = "127.0.0.1") -> int:
        """Answer Prometheus' own scrapes, on a daemon thread.

        Args:
            port: 0: any that is free.
            address: Of this host; "" is all of them, for everybody who can reach it.

        Returns:
            The port.

        Raises:
            OSError: The port is taken.
        """
        server, _ = prometheus().start_http_server(port, addr=address, registry=self.registry)
        self._servers.append(server)
        return int(server.server_address[1])

    def close(self) -> None:
        """End the endpoints."""
        while self._servers:
            server = self._servers.pop()
            server.shutdown()
            server.server_close()

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(getattr(error, "reason", error), TimeoutError):
            self._rest_until = time.monotonic() + _REST_S
        if self._failures == 1:
            logger.warning(
                "cannot push the metrics of job %r to %s: %s; the next push that gets through "
                "has all of them",
                *(self._job, self._url, error),
            )

    def _note_success(self) -> None:
        if self._failures:
            logger.info("%s takes pushes again, after %d failures", self._url, self._failures)
        self._failures = 0
        self._rest_until = 0.0

    def _forget_parent(self) -> None:
        """After a fork: no thread of the parent is here to give back its lock, or to serve."""
        self._lock = threading.Lock()
        while self._servers:
            self._servers.pop().socket.close()


def _rank() -> int:
    if is_distributed():
        return get_rank()
    told = next((os.environ[name] for name in _RANKS if name in os.environ), "0")
    return int(told) if told.isdecimal() else 0


_alive: weakref.WeakSet[Exposition] = weakref.WeakSet()


def _after_fork() -> None:
    for exposition in _alive:
        exposition._forget_parent()


os.register_at_fork(after_in_child=_after_fork)
