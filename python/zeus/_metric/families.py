"""Families of series, each in a registry that the caller gives."""

from __future__ import annotations

from typing import Any

from zeus._metric.exposition import prometheus

LABELS = ("window", "index")
KINDS = {"gpu": "GPU", "cpu": "CPU", "dram": "DRAM"}


def energy_counters(registry: Any) -> dict[str, Any]:
    """Joules used, by kind of device."""
    return {
        kind: prometheus().Counter(
            f"energy_monitor_{kind}_energy_joules",
            f"{label} energy consumption",
            labelnames=LABELS,
            registry=registry,
        )
        for kind, label in KINDS.items()
    }


def missing_energies(registry: Any) -> dict[str, Any]:
    """How often joules were not known, by kind of device."""
    return {
        kind: prometheus().Counter(
            f"energy_monitor_{kind}_energy_missing",
            f"How often the {label} energy consumption was not known",
            labelnames=LABELS,
            registry=registry,
        )
        for kind, label in KINDS.items()
    }


def power_families(registry: Any) -> tuple[Any, Any]:
    """Watts now, and how often they were not known."""
    gauge = prometheus().Gauge(
        "power_monitor_gpu_power_watts", "GPU power draw", labelnames=LABELS, registry=registry
    )
    missing = prometheus().Counter(
        "power_monitor_gpu_power_missing",
        "How often the GPU power draw was not known",
        labelnames=LABELS,
        registry=registry,
    )
    return gauge, missing
