"""Measure this machine until interrupted: `python -m zeus.monitor energy|power`."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from datetime import datetime
from types import FrameType
from typing import Any, NoReturn

from zeus.exception import ZeusBaseError
from zeus.monitor.energy import Measurement, ZeusMonitor
from zeus.monitor.power import PowerDomain, PowerMonitor

_PROGRAM = "python -m zeus.monitor"
_WINDOW = "zeus.monitor.energy"
_DAY_S = 86400.0


def energy(gpu_indices: list[int] | None = None) -> None:
    """Measure the energy of GPUs and CPU packages until KeyboardInterrupt, and print it.

    Args:
        gpu_indices: Which GPUs; None: all, []: none.

    Raises:
        IndexError: There is no such GPU.
        RuntimeError: There is nothing to measure.
    """
    monitor = ZeusMonitor(gpu_indices=gpu_indices)
    if not monitor.gpu_indices and not monitor.cpu_indices and not monitor.soc_is_present:
        raise RuntimeError(f"there is nothing to measure: {'; '.join(monitor.unavailable)}")
    for reason in monitor.unavailable:
        _say(f"not measured: {reason}")
    monitor.begin_window(_WINDOW)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(_DAY_S)
    measurement = monitor.end_window(_WINDOW)
    _print(measurement)
    _say_what_is_missing(measurement)


def power(
    gpu_indices: list[int] | None = None,
    update_period: float = 1.0,
    power_domain: str = "device_instant",
) -> None:
    """Print the power of GPUs each period until KeyboardInterrupt, then their energy.

    Args:
        gpu_indices: Which GPUs; None: all.
        update_period: Seconds.
        power_domain: Which power; the energy is its integral.

    Raises:
        IndexError: There is no such GPU.
        ValueError: There is no GPU, or a GPU does not tell this power.
        ZeusGPUInitError: This process sees no GPU; the sentence says why.
    """
    monitor = PowerMonitor(
        gpu_indices=gpu_indices, update_period=update_period, power_domains=[power_domain]
    )
    begin = time.time()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            time.sleep(update_period)
            powers = monitor.get_power(power_domain=power_domain)
            if powers is not None:
                _print(datetime.now(), {f"GPU{i}": watts for i, watts in powers.items()})
    end = time.time()
    energies = monitor.get_energy(begin, end, power_domain=power_domain)
    lost = monitor.health()
    monitor.stop()
    _print("\nTotal time (s):", end - begin)
    if energies is None:
        _say("the energy is not known: no power was read in that time")
    else:
        _print("Total energy (J):", {f"GPU{i}": joules for i, joules in energies.items()})
    for what, why in lost.items():
        _say(f"{what} can no longer be read: {why}")


def _say_what_is_missing(measurement: Measurement) -> None:
    for name, known in measurement.uncertainty.items():
        if known.refusal:
            _say(f"{name} has no number: {known.refusal}")


def _print(*objects: object) -> None:
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        import rich

        rich.print(*objects)
    else:
        print(*objects, flush=True)


def _say(sentence: str) -> None:
    print(f"{_PROGRAM}: {sentence}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status: 0 after an interrupt or SIGTERM, 1 if nothing can be measured.

    Raises:
        SystemExit: With status 2: the arguments are wrong.
    """
    parser = _parser()
    chosen = vars(parser.parse_args(arguments))
    command = chosen.pop("command")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    # What a warning would say of a window is said of its result, in a sentence.
    warnings.simplefilter("ignore")
    try:
        energy(**chosen) if command == "energy" else power(**chosen)
    except IndexError:
        parser.error(f"argument --gpu-indices: {_no_such_gpu(chosen['gpu_indices'])}")
    except (ZeusBaseError, RuntimeError, ValueError) as error:
        _say(str(error.args[0] if error.args else error))
        return 1
    except BrokenPipeError:
        # Whoever read it has gone; what is still buffered must not fail at exit again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """End the measurement; a second signal ends the process."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_DFL)
    raise KeyboardInterrupt


def _no_such_gpu(indices: list[int]) -> str:
    from zeus.device import get_gpus

    count = len(get_gpus())
    wrong = ", ".join(str(i) for i in indices if i >= count)
    return f"there is no GPU {wrong}; this process sees {count}, counted from 0"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog=_PROGRAM, description=__doc__)
    commands: Any = parser.add_subparsers(dest="command", required=True, metavar="energy|power")
    whole = commands.add_parser(
        "energy",
        help="the energy of GPUs and CPUs from now until Ctrl-C or SIGTERM",
        description="Prints the joules used from now until Ctrl-C or SIGTERM.",
    )
    levels = commands.add_parser(
        "power",
        help="the power of GPUs until Ctrl-C or SIGTERM, then its integral",
        description="Prints watts each period until Ctrl-C or SIGTERM, then the joules.",
    )
    for one in (whole, levels):
        one.add_argument(
            "--gpu-indices",
            nargs="+",
            type=_index,
            metavar="I",
            help="which GPUs, as CUDA programs count them here (default: all)",
        )
    levels.add_argument(
        "--update-period",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="seconds between two lines (default: %(default)s)",
    )
    levels.add_argument(
        "--power-domain",
        choices=[domain.value for domain in PowerDomain],
        default=PowerDomain.DEVICE_INSTANT.value,
        help="which power (default: %(default)s)",
    )
    return parser


def _index(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no index of a GPU: give 0, 1, ...")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _DAY_S:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds above 0 and up to a day"
        )
    return seconds


if __name__ == "__main__":
    sys.exit(main())
