"""`python -m zeus.serving.proxy --upstream URL`: an OpenAI-style server with joules."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

from zeus.serving.local import local_counters
from zeus.serving.proxy.energy import Overlap
from zeus.serving.proxy.server import Limits, Proxy, Upstream


def main(arguments: list[str] | None = None) -> int:
    """Runs the proxy until SIGINT or SIGTERM."""
    args = _parser().parse_args(arguments)
    try:
        upstream = Upstream(args.upstream)
        host, port = _address(args.listen)
        counters = local_counters(args.gpu_indices, args.cpu_indices)
    except (ValueError, IndexError, RuntimeError) as error:
        print(f"zeus proxy: {error}", file=sys.stderr)
        return 2
    overlap = Overlap(
        {name: counter.read for name, counter in counters.items()},
        update_s=max(counter.update_s for counter in counters.values()),
        period_s=args.period,
    )
    proxy = Proxy(upstream, overlap, Limits(silence_s=args.silence))
    try:
        asyncio.run(_serve(proxy, host, port, list(counters)))
    except OSError as error:
        print(f"zeus proxy: cannot listen on {args.listen}: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(proxy: Proxy, host: str, port: int, devices: list[str]) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    bound = await proxy.start(host, port)
    measured = ", ".join(devices)
    print(f"zeus proxy: listening on http://{host}:{bound}, measuring {measured}", flush=True)
    await stopped.wait()
    await proxy.stop()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen {text!r} is no HOST:PORT")
    return host.strip("[]"), int(port)


def _indices(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m zeus.serving.proxy",
        description="Passes requests to an OpenAI-style server and adds joules to its answers.",
    )
    parser.add_argument("--upstream", required=True, metavar="URL", help="the server, without /v1")
    parser.add_argument("--listen", default="127.0.0.1:8080", metavar="HOST:PORT")
    parser.add_argument(
        "--gpu-indices", type=_indices, metavar="LIST", help="GPUs of the server: 0,1 (default all)"
    )
    parser.add_argument(
        "--cpu-indices",
        type=_indices,
        default=[],
        metavar="LIST",
        help="processors to count with it: 0,1 (default none)",
    )
    parser.add_argument(
        "--period", type=float, default=1.0, metavar="S", help="read the counters at least so often"
    )
    parser.add_argument(
        "--silence",
        type=float,
        default=600.0,
        metavar="S",
        help="the longest silence that is borne",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
