"""The energy of an inference engine's requests: joules per request and per token.

Batches share a device: what one request cost is not measured but divided, by a stated rule and with
an uncertainty. `Ledger` takes an engine's steps and the energy of its devices; requests and idle
add up to the devices exactly. `python -m zeus.serving.proxy` does so outside the engine, more
coarsely, for any server that speaks the OpenAI protocol.
"""

from zeus.serving.account import Account, Totals, table
from zeus.serving.engine import Clock, EnergySource, Phase, StepEvent, StepItem
from zeus.serving.ledger import Ledger
from zeus.serving.local import LocalCounter, local_counters, local_sources
from zeus.serving.rule import Coefficients, apportion
from zeus.serving.source import Counter, SampledPower, Timeline, gpu_counters, on_clock

__all__ = [
    "Account",
    "Clock",
    "Coefficients",
    "Counter",
    "EnergySource",
    "Ledger",
    "LocalCounter",
    "Phase",
    "SampledPower",
    "StepEvent",
    "StepItem",
    "Timeline",
    "Totals",
    "apportion",
    "gpu_counters",
    "local_counters",
    "local_sources",
    "on_clock",
    "table",
]
