"""The client of the daemon, zeusd: ours, and upstream's of version 0.5 with all its GPU fields."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from zeus.device.exception import ZeusdError
from zeus.utils._zeusd_wire import (
    CpuDramPower,
    CpuEnergyResult,
    CpuInfo,
    CpuPowerSnapshot,
    GpuInfo,
    GpuPowerSnapshot,
    ZeusdAuthError,
    ZeusdCapabilityError,
    ZeusdConfig,
    ZeusdConnectionError,
    check_protocol,
    import_httpx,
    way_out,
)

if TYPE_CHECKING:
    import httpx

__all__ = [
    "CpuDramPower",
    "CpuEnergyResult",
    "CpuInfo",
    "CpuPowerSnapshot",
    "GpuInfo",
    "GpuPowerSnapshot",
    "ZeusdAuthError",
    "ZeusdCapabilityError",
    "ZeusdClient",
    "ZeusdConfig",
    "ZeusdConnectionError",
    "require_capabilities",
]

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A blocking write may run a command of the administrator, which by default gets 60 s.
_BLOCKING_WRITE_S = 120.0


class ZeusdClient:
    """Talks to one daemon. Threads may share it; after a fork the child connects anew.

    What the daemon offers is asked once, by the constructor. A token that is missing or bad raises
    nothing there: see `auth_error`, and `require_capabilities`.

    Every request raises `ZeusdError` for an answer that is no success, `ZeusdConnectionError` for a
    daemon of another version of the wire, and httpx's own errors where no answer comes.
    """

    def __init__(self, config: ZeusdConfig | None = None) -> None:
        """Reach the daemon and ask what it offers.

        Args:
            config: Where it is; by default what the environment says.

        Raises:
            ZeusdConnectionError: The environment names none, it cannot be reached, it is too old,
                or it speaks another version of the wire.
        """
        config = config or ZeusdConfig.from_env()
        if config is None:
            raise ZeusdConnectionError(
                "No Zeusd connection is configured; set ZEUSD_SOCK_PATH or ZEUSD_HOST_PORT, or "
                "give a ZeusdConfig"
            )
        self._config = config
        self._client = config.make_client()
        self._pid = os.getpid()
        self._whoami_sub: str | None = None
        self._whoami_exp: int | None = None
        self._scopes: frozenset[str] = frozenset()
        self._auth_error: str | None = None
        self._take_discovery(self._discover())
        if self._auth_required:
            self._authenticate()

    @property
    def endpoint(self) -> str:
        """The path of the socket, or host and port."""
        return self._config.endpoint

    @property
    def gpus(self) -> list[GpuInfo]:
        """The daemon's GPUs."""
        return self._gpus

    @property
    def gpu_ids(self) -> list[int]:
        """The daemon's indices of its GPUs."""
        return [gpu.id for gpu in self._gpus]

    @property
    def cpus(self) -> list[CpuInfo]:
        """The daemon's CPU packages."""
        return self._cpus

    @property
    def cpu_ids(self) -> list[int]:
        """The daemon's indices of its CPU packages."""
        return [cpu.id for cpu in self._cpus]

    @property
    def dram_available(self) -> list[bool]:
        """Whether DRAM is measured, of each of `cpus`."""
        return [cpu.dram_available for cpu in self._cpus]

    @property
    def auth_required(self) -> bool:
        """Whether the daemon wants a token."""
        return self._auth_required

    @property
    def auth_error(self) -> str | None:
        """Why the token is not good; None where it is, or where none is wanted."""
        return self._auth_error

    @property
    def granted_scopes(self) -> frozenset[str]:
        """The API groups that the token opens; empty where none is wanted."""
        return self._scopes

    @property
    def can_read_gpu(self) -> bool:
        """Whether GPUs may be read."""
        return self._can("gpu-read")

    @property
    def can_control_gpu(self) -> bool:
        """Whether GPUs may be controlled."""
        return self._can("gpu-control")

    @property
    def can_read_cpu(self) -> bool:
        """Whether CPU packages may be read."""
        return self._can("cpu-read")

    def make_client(self) -> httpx.Client:
        """Make another HTTP client of this daemon; whoever takes it closes it."""
        return self._config.make_client()

    def url(self, path: str) -> str:
        """Give the URL of a route."""
        return self._config.url(path)

    def close(self) -> None:
        """Close the connections. Another request opens one anew."""
        if self._pid == os.getpid():
            self._client.close()
        self._pid = 0

    def get_gpu_energy(self, gpu_ids: list[int]) -> dict[int, int]:
        """Read what the GPUs have counted since their driver was loaded, in millijoules."""
        answer = self._get("get_gpu_energy", "/gpu/get_cumulative_energy", gpu_ids=gpu_ids)
        return _by_id(answer, lambda gpu: gpu["energy_mj"])

    def get_gpu_power(self, gpu_ids: list[int] | None = None) -> GpuPowerSnapshot:
        """Read the power of GPUs, of all by default."""
        answer = self._get("get_gpu_power", "/gpu/get_power", gpu_ids=gpu_ids)
        return GpuPowerSnapshot(answer["timestamp_ms"], _by_id(answer["power_mw"], lambda mw: mw))

    def get_power_limit(self, gpu_ids: list[int] | None = None) -> dict[int, int]:
        """Read the power limits of GPUs in milliwatts, of all by default."""
        answer = self._get("get_power_limit", "/gpu/get_power_limit", gpu_ids=gpu_ids)
        return _by_id(answer, lambda gpu: gpu["power_limit_mw"])

    def get_power_limit_constraints(
        self, gpu_ids: list[int] | None = None
    ) -> dict[int, tuple[int, int]]:
        """Read the lowest and the highest power limit of GPUs in milliwatts, of all by default."""
        method = "get_power_limit_constraints"
        answer = self._get(method, f"/gpu/{method}", gpu_ids=gpu_ids)
        return _by_id(answer, lambda g: (g["min_power_limit_mw"], g["max_power_limit_mw"]))

    def get_persistence_mode(self, gpu_ids: list[int] | None = None) -> dict[int, bool]:
        """Read whether GPUs are in persistence mode, of all by default."""
        answer = self._get("get_persistence_mode", "/gpu/get_persistence_mode", gpu_ids=gpu_ids)
        return _by_id(answer, lambda gpu: gpu["enabled"])

    def set_power_limit(self, gpu_ids: list[int], power_limit_mw: int, block: bool = True) -> None:
        """Set power limits. Without `block`, failures after the request are not told."""
        self._post("set_power_limit", gpu_ids, block, power_limit_mw=power_limit_mw)

    def set_persistence_mode(self, gpu_ids: list[int], enabled: bool, block: bool = True) -> None:
        """Switch persistence mode. Without `block`, failures after the request are not told."""
        self._post("set_persistence_mode", gpu_ids, block, enabled=enabled)

    def set_gpu_locked_clocks(
        self, gpu_ids: list[int], min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Lock graphics clocks. Without `block`, failures after the request are not told."""
        clocks = {"min_clock_mhz": min_clock_mhz, "max_clock_mhz": max_clock_mhz}
        self._post("set_gpu_locked_clocks", gpu_ids, block, **clocks)

    def reset_gpu_locked_clocks(self, gpu_ids: list[int], block: bool = True) -> None:
        """Unlock graphics clocks. Without `block`, failures after the request are not told."""
        self._post("reset_gpu_locked_clocks", gpu_ids, block)

    def set_mem_locked_clocks(
        self, gpu_ids: list[int], min_clock_mhz: int, max_clock_mhz: int, block: bool = True
    ) -> None:
        """Lock memory clocks. Without `block`, failures after the request are not told."""
        clocks = {"min_clock_mhz": min_clock_mhz, "max_clock_mhz": max_clock_mhz}
        self._post("set_mem_locked_clocks", gpu_ids, block, **clocks)

    def reset_mem_locked_clocks(self, gpu_ids: list[int], block: bool = True) -> None:
        """Unlock memory clocks. Without `block`, failures after the request are not told."""
        self._post("reset_mem_locked_clocks", gpu_ids, block)

    def reset_locked_clocks(self, gpu_ids: list[int], block: bool = True) -> None:
        """Unlock all clocks. Without `block`, failures after the request are not told."""
        self._post("reset_locked_clocks", gpu_ids, block)

    def get_cpu_energy(
        self, cpu_ids: list[int] | None = None, cpu: bool = True, dram: bool = True
    ) -> dict[int, CpuEnergyResult]:
        """Read what CPU packages have counted, of all by default.

        Args:
            cpu_ids: The daemon's indices.
            cpu: Read the packages themselves.
            dram: Read their DRAM.
        """
        answer = self._get(
            "get_cpu_energy", "/cpu/get_cumulative_energy", cpu_ids=cpu_ids, cpu=cpu, dram=dram
        )
        return _by_id(answer, lambda c: CpuEnergyResult(c["cpu_energy_uj"], c["dram_energy_uj"]))

    def get_cpu_power(self, cpu_ids: list[int] | None = None) -> CpuPowerSnapshot:
        """Read the power of CPU packages, of all by default; takes the daemon some 100 ms."""
        answer = self._get("get_cpu_power", "/cpu/get_power", cpu_ids=cpu_ids)
        power = _by_id(answer["power_mw"], lambda c: CpuDramPower(c["cpu_mw"], c["dram_mw"]))
        return CpuPowerSnapshot(answer["timestamp_ms"], power)

    def get_time(self) -> float:
        """Read the daemon's clock, in seconds since 1970."""
        return float(self._get("get_time", "/time")["timestamp_ms"]) / 1000.0

    def _can(self, group: str) -> bool:
        return group in self._enabled_api_groups and (
            not self._auth_required or (self._auth_error is None and group in self._scopes)
        )

    def _http(self) -> httpx.Client:
        """Give this process's HTTP client: a parent's connections would mix up the answers."""
        if self._pid != os.getpid():
            self._client = self._config.make_client()
            self._pid = os.getpid()
        return self._client

    def _get(self, method: str, path: str, **query: Any) -> Any:
        response = self._http().get(self.url(path), params=_query(method, query))
        _check(response, method, self.endpoint)
        return response.json()

    def _post(self, method: str, gpu_ids: list[int], block: bool, **query: Any) -> None:
        httpx = import_httpx()
        query = {"gpu_ids": gpu_ids, **query, "block": block}
        response = self._http().post(
            self.url(f"/gpu/{method}"),
            params=_query(method, query),
            timeout=httpx.Timeout(5.0, read=_BLOCKING_WRITE_S if block else 5.0),
        )
        _check(response, method, self.endpoint)

    def _ask(self, path: str) -> httpx.Response:
        """Ask what a new client needs to know, before there is a daemon to speak of."""
        httpx = import_httpx()
        try:
            response = self._client.get(self.url(path))
        except httpx.RequestError as error:
            raise ZeusdConnectionError(
                f"Cannot reach Zeusd at {self.endpoint}: {error}; {way_out(self._config)}"
            ) from error
        check_protocol(response, self.endpoint)
        return response

    def _discover(self) -> Any:
        response = self._ask("/discover")
        if response.status_code != 200:
            raise ZeusdConnectionError(
                f"Cannot learn what Zeusd at {self.endpoint} offers: it answers HTTP "
                f"{response.status_code}: {response.text[:500]}"
            )
        try:
            return response.json()
        except ValueError as error:
            raise ZeusdConnectionError(
                f"What answers at {self.endpoint} is not Zeusd: {error}; correct the address"
            ) from error

    def _take_discovery(self, answer: Any) -> None:
        try:
            self._gpus = [
                GpuInfo(
                    gpu["id"], gpu["name"], gpu["pci_address"], gpu["cumulative_energy_available"]
                )
                for gpu in answer["gpus"]
            ]
            self._cpus = [CpuInfo(cpu["id"], cpu["dram_available"]) for cpu in answer["cpus"]]
            self._enabled_api_groups = frozenset(answer["enabled_api_groups"])
            self._auth_required = bool(answer["auth_required"])
            self._features = frozenset(answer.get("features", ()))
        except (AttributeError, KeyError, TypeError) as error:
            raise ZeusdConnectionError(
                f"Zeusd at {self.endpoint} does not tell {error} of what it offers, so it is too "
                "old for this client. Upgrade zeusd."
            ) from error

    def _authenticate(self) -> None:
        if not self._config.token:
            self._auth_error = (
                f"Zeusd at {self.endpoint} wants a token, and no token was provided; set "
                "ZEUSD_TOKEN or give it to ZeusdConfig"
            )
        else:
            response = self._ask("/auth/whoami")
            if response.status_code == 200:
                answer = response.json()
                self._scopes = frozenset(answer.get("scopes", ()))
                self._whoami_sub = answer.get("sub")
                self._whoami_exp = answer.get("exp")
            elif response.status_code == 401:
                self._auth_error = f"Token rejected by Zeusd at {self.endpoint}: {response.text}"
            else:
                self._auth_error = (
                    f"Zeusd at {self.endpoint} cannot judge the token: HTTP "
                    f"{response.status_code}: {response.text}"
                )
        if self._auth_error is not None:
            logger.warning("%s", self._auth_error)


def require_capabilities(
    client: ZeusdClient,
    *,
    read_gpu: bool = False,
    control_gpu: bool = False,
    read_cpu: bool = False,
    gpu_ids: list[int] | None = None,
    cpu_ids: list[int] | None = None,
) -> None:
    """Make sure that a daemon offers, and allows, what is needed; say all that it lacks at once.

    Args:
        client: Of the daemon.
        read_gpu: GPUs must be readable.
        control_gpu: GPUs must be controllable.
        read_cpu: CPU packages must be readable.
        gpu_ids: GPUs that must be there.
        cpu_ids: CPU packages that must be there.

    Raises:
        ZeusdAuthError: The token is missing or not good.
        ZeusdCapabilityError: Something is lacking.
    """
    if client.auth_error is not None:
        raise ZeusdAuthError(client.auth_error)
    needs = {
        "gpu-read": read_gpu and not client.can_read_gpu,
        "gpu-control": control_gpu and not client.can_control_gpu,
        "cpu-read": read_cpu and not client.can_read_cpu,
    }
    lacks = [_why_not(client, group) for group, lacking in needs.items() if lacking]
    for kind, wanted, there in (
        ("GPU", gpu_ids, client.gpu_ids),
        ("CPU", cpu_ids, client.cpu_ids),
    ):
        missing = sorted(set(wanted or ()) - set(there))
        if missing:
            lacks.append(f"it has no {kind} indices {missing}, only {there}")
    if lacks:
        raise ZeusdCapabilityError(
            f"Zeusd at {client.endpoint} lacks what is needed: {'; '.join(lacks)}"
        )


def _why_not(client: ZeusdClient, group: str) -> str:
    if group not in client._enabled_api_groups:
        return f"the API group {group} is not enabled (start it with --enable {group})"
    return f"the token lacks required scope {group}"


def _query(method: str, query: dict[str, Any]) -> dict[str, str]:
    """Spell arguments as the wire wants them; what is None is left out."""
    spelled = {}
    for key, value in query.items():
        if value is None:
            continue
        if isinstance(value, bool):
            spelled[key] = "true" if value else "false"
        elif isinstance(value, int):
            spelled[key] = str(value)
        elif not value:
            raise ZeusdError(f"Failed to {method}: the list {key} is empty; name at least one")
        else:
            spelled[key] = ",".join(str(index) for index in value)
    return spelled


def _by_id(answer: dict[str, Any], value: Callable[[Any], T]) -> dict[int, T]:
    return {int(key): value(entry) for key, entry in answer.items()}


def _check(response: httpx.Response, method: str, endpoint: str) -> None:
    check_protocol(response, endpoint)
    if response.status_code != 200:
        reason = response.text or f"HTTP {response.status_code}"
        raise ZeusdError(f"Failed to {method}: {reason}", response.status_code)
