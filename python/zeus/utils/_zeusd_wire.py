"""What the client of the daemon is made of: its errors, its answers, and where a daemon is."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zeus.exception import ZeusBaseError

if TYPE_CHECKING:
    import httpx

# The version of the wire that this client speaks. Daemons of upstream do not say theirs.
_PROTOCOL = "1"
_PROTOCOL_HEADER = "Zeus-Protocol"

# A daemon may close what was idle for 5 s, which is also httpx's limit: stay below it, or a request
# meets a connection that is about to be closed.
_KEEPALIVE_S = 4.0


class ZeusdConnectionError(ZeusBaseError):
    """There is no daemon to talk to, or what answers is not one that this client understands."""


class ZeusdAuthError(ZeusBaseError):
    """The daemon wants a token, and has not been given a good one."""


class ZeusdCapabilityError(ZeusBaseError):
    """The daemon does not offer, or does not allow, what is needed."""


@dataclass(frozen=True)
class GpuInfo:
    """A GPU of the daemon.

    Attributes:
        id: The daemon's index of it.
        name: The model.
        pci_address: As domain:bus:device.function in lower-case hex, `0000:41:00.0`.
        cumulative_energy_available: Whether it counts its energy.
    """

    id: int
    name: str
    pci_address: str
    cumulative_energy_available: bool


@dataclass(frozen=True)
class CpuInfo:
    """A CPU package of the daemon: its index, and whether it counts the energy of its DRAM."""

    id: int
    dram_available: bool


@dataclass(frozen=True)
class GpuPowerSnapshot:
    """Power of GPUs, in milliwatts, at a time of the daemon's clock (Unix, milliseconds)."""

    timestamp_ms: int
    power_mw: dict[int, int]


@dataclass(frozen=True)
class CpuDramPower:
    """Power of a package and of its DRAM in milliwatts; None where DRAM is not measured."""

    cpu_mw: int
    dram_mw: int | None


@dataclass(frozen=True)
class CpuPowerSnapshot:
    """Power of packages at a time of the daemon's clock (Unix, milliseconds)."""

    timestamp_ms: int
    power_mw: dict[int, CpuDramPower]


@dataclass(frozen=True)
class CpuEnergyResult:
    """Energy that a package and its DRAM have counted, in microjoules; None: not asked or had."""

    cpu_energy_uj: int | None
    dram_energy_uj: int | None


@dataclass(frozen=True)
class ZeusdConfig:
    """Where a daemon is, and what to stream from it. Use `tcp`, `uds` or `from_env`.

    Attributes:
        host_port: `host:port` of a daemon on TCP.
        socket_path: Of a daemon on a Unix socket; goes first where both are set.
        token: Sent with every request.
        gpu_indices: The GPUs that `PowerStreamingClient` streams; None is all, [] is none.
        cpu_indices: The same of CPU packages.
    """

    host_port: str | None = None
    socket_path: str | None = None
    token: str | None = field(default=None, repr=False)
    gpu_indices: list[int] | None = None
    cpu_indices: list[int] | None = None

    @classmethod
    def tcp(
        cls,
        host: str,
        port: int,
        *,
        token: str | None = None,
        gpu_indices: list[int] | None = None,
        cpu_indices: list[int] | None = None,
    ) -> ZeusdConfig:
        """Name a daemon on TCP. Of the environment nothing is read, not even the token."""
        if ":" in host and not host.startswith("["):
            host = f"[{host}]"  # An address of IPv6, as URLs spell it.
        return cls(
            host_port=f"{host}:{port}",
            token=token,
            gpu_indices=gpu_indices,
            cpu_indices=cpu_indices,
        )

    @classmethod
    def uds(
        cls,
        socket_path: str,
        *,
        token: str | None = None,
        gpu_indices: list[int] | None = None,
        cpu_indices: list[int] | None = None,
    ) -> ZeusdConfig:
        """Name a daemon on a Unix socket. Of the environment nothing is read."""
        return cls(
            socket_path=socket_path,
            token=token,
            gpu_indices=gpu_indices,
            cpu_indices=cpu_indices,
        )

    @classmethod
    def from_env(cls) -> ZeusdConfig | None:
        """Take ZEUSD_SOCK_PATH, else ZEUSD_HOST_PORT, and ZEUSD_TOKEN; None where neither is."""
        token = os.environ.get("ZEUSD_TOKEN")
        if (socket_path := os.environ.get("ZEUSD_SOCK_PATH")) is not None:
            return cls(socket_path=socket_path, token=token)
        if (host_port := os.environ.get("ZEUSD_HOST_PORT")) is not None:
            return cls(host_port=host_port, token=token)
        return None

    @property
    def endpoint(self) -> str:
        """The path of the socket, or host and port."""
        if self.socket_path is not None:
            return self.socket_path
        if self.host_port is not None:
            return self.host_port
        raise ValueError("this ZeusdConfig names no daemon: give host_port or socket_path")

    def url(self, path: str) -> str:
        """Give the URL of a route such as `/discover`."""
        host = "localhost" if self.socket_path is not None else self.endpoint
        return f"http://{host}{path}"

    def make_client(self) -> httpx.Client:
        """Make an HTTP client that reaches the daemon; whoever takes it closes it.

        It reads nothing from the environment: a proxy would be told the token.

        Raises:
            ImportError: httpx is not installed.
        """
        import ssl

        module = import_httpx()
        limits = module.Limits(
            max_connections=100, max_keepalive_connections=20, keepalive_expiry=_KEEPALIVE_S
        )
        # There is no TLS on this wire, and reading the certificates of authorities takes a while.
        no_authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        uds = {} if self.socket_path is None else {"uds": self.socket_path}
        client: httpx.Client = module.Client(
            transport=module.HTTPTransport(
                limits=limits, trust_env=False, verify=no_authorities, **uds
            ),
            headers={**self._auth_headers(), _PROTOCOL_HEADER: _PROTOCOL},
            trust_env=False,
        )
        return client

    def _auth_headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


def check_protocol(response: httpx.Response, endpoint: str) -> None:
    """Make sure that a daemon speaks this client's version of the wire, if it says which.

    Raises:
        ZeusdConnectionError: It speaks another one.
    """
    theirs = response.headers.get(_PROTOCOL_HEADER, _PROTOCOL)
    if theirs != _PROTOCOL:
        raise ZeusdConnectionError(
            f"Cannot talk to Zeusd at {endpoint}: it speaks version {theirs} of the wire and this "
            f"client version {_PROTOCOL}; install the same version of both"
        )


def import_httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ImportError(
            "the client of zeusd needs httpx; pip install 'zeus-cpp[compat]'"
        ) from error
    return httpx


def way_out(config: ZeusdConfig) -> str:
    """Say what to do about a daemon that cannot be reached."""
    path = config.socket_path
    if path is None:
        return "start zeusd there, or correct ZEUSD_HOST_PORT"
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "there is no such socket; start zeusd, or correct ZEUSD_SOCK_PATH"
    except OSError as error:
        return f"looking at it fails too: {error.strerror}"
    if not stat.S_ISSOCK(status.st_mode):
        return "that is no socket; correct ZEUSD_SOCK_PATH"
    if not os.access(path, os.W_OK):
        return (
            f"its mode is {stat.S_IMODE(status.st_mode):04o}, its owner {status.st_uid}, its group "
            f"{status.st_gid}; join that group"
        )
    return "nobody listens on it; start zeusd"
