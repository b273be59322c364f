"""What the proxy counts, as Prometheus text (format 0.0.4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from zeus.serving.account import Account
from zeus.serving.proxy.energy import Overlap
from zeus.serving.proxy.rewrite import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_MODELS = 100  # clients name models: a label must not grow without bound
_PREFIX = "zeus_serving_"


class Metrics:
    """Counts by model. What it says of energy of requests is a model's, as the help texts say."""

    def __init__(self) -> None:
        self._energy_nj: dict[str, int] = defaultdict(int)
        self._requests: dict[tuple[str, str], int] = defaultdict(int)
        self._tokens: dict[tuple[str, str], int] = defaultdict(int)
        self._models: set[str] = set()

    def model(self, name: object) -> str:
        """The label of a model."""
        label = name[:200] if isinstance(name, str) and name else "unknown"
        if label not in self._models and len(self._models) >= _MOST_MODELS:
            return "other"
        self._models.add(label)
        return label

    def count(self, model: str, outcome: str, account: Account | None, usage: Usage | None) -> None:
        """Counts a request that has ended."""
        self._requests[model, outcome] += 1
        self._energy_nj[model] += account.energy_nj if account else 0
        if usage is not None:
            self._tokens[model, "prompt"] += usage.count("prompt_tokens")
            self._tokens[model, "completion"] += usage.count("completion_tokens")

    def render(self, overlap: Overlap) -> str:
        """The page."""
        totals = overlap.totals()
        energy_nj = dict(self._energy_nj)
        if overlap.stray_nj:
            energy_nj["unknown"] = energy_nj.get("unknown", 0) + overlap.stray_nj
        out: list[str] = []
        if totals is not None:
            _add(
                out,
                "device_energy_joules_total",
                "Energy of the device since the proxy began, as its counter says.",
                (({"device": k}, v * 1e-9) for k, v in totals.device_nj.items()),
            )
            _add(
                out,
                "idle_energy_joules_total",
                "Energy of the time without any request.",
                [({}, totals.idle_j)],
            )
            _add(
                out,
                "open_energy_joules",
                "Energy of the requests in flight so far (modelled: overlap-tokens).",
                [({}, totals.open_nj * 1e-9)],
                "gauge",
            )
            _add(
                out,
                "unmeasured_seconds_total",
                "Time in which the device could not be read. It is in no energy.",
                (({"device": k}, totals.unmeasured_s.get(k, 0.0)) for k in totals.device_nj),
            )
        _add(
            out,
            "request_energy_joules_total",
            "Energy of requests that ended (modelled: overlap-tokens). "
            "With idle and open it adds up to the devices.",
            (({"model": k}, v * 1e-9) for k, v in energy_nj.items()),
        )
        _add(
            out,
            "requests_total",
            "Requests that ended.",
            (({"model": m, "outcome": o}, n) for (m, o), n in self._requests.items()),
        )
        _add(
            out,
            "tokens_total",
            "Tokens as the upstream counted them.",
            (({"model": m, "kind": k}, n) for (m, k), n in self._tokens.items()),
        )
        _add(
            out,
            "requests_in_flight",
            "Requests on their way.",
            [({}, overlap.in_flight)],
            "gauge",
        )
        return "\n".join(out) + "\n"


def _add(
    out: list[str],
    name: str,
    what: str,
    series: Iterable[tuple[dict[str, str], float]],
    kind: str = "counter",
) -> None:
    lines = [f"{_PREFIX}{name}{_labels(labels)} {value!r}" for labels, value in series]
    if lines:
        out += [f"# HELP {_PREFIX}{name} {what}", f"# TYPE {_PREFIX}{name} {kind}", *lines]


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
