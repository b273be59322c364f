"""What a ledger hands out: the account of a request, and the totals that all accounts add up to."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from zeus.serving.rule import Coefficients

NANO = 1e-9


@dataclass(frozen=True, slots=True)
class Account:
    """The energy of one request. Whole nanojoules add up exactly; joules are for reading.

    Attributes:
        request_id: As the engine named it.
        prefill_nj: Of the steps that computed its prompt, in nanojoules.
        decode_nj: Of the steps that generated its tokens, in nanojoules.
        u_j: Standard uncertainty of the energy (k = 1): meter, rule and gain together.
        u_meter_j: The meter's part of it.
        u_rule_j: The part of the rule that divided batches among requests.
        prefill_tokens: Prompt tokens computed, those computed again included.
        cached_tokens: Prompt tokens that a prefix cache saved.
        decode_tokens: Tokens computed while generating, rejected drafts included.
        tokens: Tokens that the request received.
        begin_s: Begin of its first step, on the ledger's clock.
        end_s: End of its last step.
        reason: "finished", "cancelled", "abandoned" (no step for long), "open" (the ledger was
            closed first), or what else `Ledger.finish` was told.
        rule: "fitted", "given", "tokens", "fitted+tokens" ...: all rules that divided its batches.
        flags: "preempted"; "late" (a step was told after its time was settled, and is not in the
            energy); "missing" (a device could not be read in some of its steps, and is not in the
            energy there); "unmeasured" (no device could be read in any of them: the energy is
            unknown, and the numbers are None in `to_dict`).
    """

    request_id: Hashable
    prefill_nj: int
    decode_nj: int
    u_j: float
    u_meter_j: float
    u_rule_j: float
    prefill_tokens: int
    cached_tokens: int
    decode_tokens: int
    tokens: int
    begin_s: float
    end_s: float
    reason: str
    rule: str
    flags: tuple[str, ...] = ()

    @property
    def energy_nj(self) -> int:
        """Prefill and decode, in nanojoules."""
        return self.prefill_nj + self.decode_nj

    @property
    def energy_j(self) -> float:
        """Prefill and decode, in joules."""
        return self.energy_nj * NANO

    @property
    def prefill_j(self) -> float:
        """Energy of its prompt, in joules."""
        return self.prefill_nj * NANO

    @property
    def decode_j(self) -> float:
        """Energy of generating its tokens, in joules."""
        return self.decode_nj * NANO

    @property
    def measured(self) -> bool:
        """Whether there is an energy at all."""
        return "unmeasured" not in self.flags

    @property
    def joules_per_token(self) -> float | None:
        """Energy by token received; None where there was none, or no energy."""
        return self.energy_j / self.tokens if self.tokens and self.measured else None

    def to_dict(self) -> dict[str, object]:
        """For JSON. A number that could not be had is None."""
        known = self.measured
        return {
            "request_id": self.request_id,
            "energy_j": self.energy_j if known else None,
            "energy_nj": self.energy_nj if known else None,
            "u_j": self.u_j if known else None,
            "u_meter_j": self.u_meter_j if known else None,
            "u_rule_j": self.u_rule_j if known else None,
            "prefill_j": self.prefill_j if known else None,
            "decode_j": self.decode_j if known else None,
            "joules_per_token": self.joules_per_token,
            "tokens": self.tokens,
            "prefill_tokens": self.prefill_tokens,
            "cached_tokens": self.cached_tokens,
            "decode_tokens": self.decode_tokens,
            "begin_s": self.begin_s,
            "end_s": self.end_s,
            "reason": self.reason,
            "rule": self.rule,
            "flags": list(self.flags),
        }


@dataclass(frozen=True, slots=True)
class Totals:
    """All energy since a ledger began. In nanojoules, and exactly,

        closed + open + gaps + steps without a request = sum of all devices.

    Attributes:
        begin_s: Since when.
        settled_s: Until when the energy has been divided.
        device_nj: By device.
        device_u_j: Standard uncertainty of each device's energy, the gain apart.
        device_idle_nj: Of each device, gaps and steps without a request.
        gap_nj: Of the time without any step; with `idle="static"`, idle power times all time.
        empty_nj: Of steps without a request.
        idle_u_j: Standard uncertainty of gaps and empty steps together.
        closed_nj: Of requests whose accounts have been handed out.
        open_nj: Of the others.
        requests: Accounts handed out.
        tokens: Tokens that these requests received.
        unmeasured_s: By device: seconds in which it could not be read. They are in no energy.
        late_steps: Steps that were told after their time was settled.
        dropped_accounts: Accounts that nobody fetched in time; their energy is in `closed_nj`.
        coefficients: The fitted or given ones; None where batches are divided by plain tokens.
    """

    begin_s: float | None
    settled_s: float | None
    device_nj: dict[str, int]
    device_u_j: dict[str, float]
    device_idle_nj: dict[str, int]
    gap_nj: int
    empty_nj: int
    idle_u_j: float
    closed_nj: int
    open_nj: int
    requests: int
    tokens: int
    unmeasured_s: dict[str, float] = field(default_factory=dict)
    late_steps: int = 0
    dropped_accounts: int = 0
    coefficients: Coefficients | None = None

    @property
    def energy_nj(self) -> int:
        """Of all devices, in nanojoules."""
        return sum(self.device_nj.values())

    @property
    def idle_nj(self) -> int:
        """Gaps and steps without a request, in nanojoules."""
        return self.gap_nj + self.empty_nj

    @property
    def requests_nj(self) -> int:
        """Of all requests, in nanojoules."""
        return self.closed_nj + self.open_nj

    @property
    def energy_j(self) -> float:
        """Of all devices, in joules."""
        return self.energy_nj * NANO

    @property
    def idle_j(self) -> float:
        """Gaps and steps without a request, in joules."""
        return self.idle_nj * NANO

    @property
    def requests_j(self) -> float:
        """Of all requests, in joules."""
        return self.requests_nj * NANO

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "begin_s": self.begin_s,
            "settled_s": self.settled_s,
            "energy_j": self.energy_j,
            "energy_nj": self.energy_nj,
            "requests_nj": self.requests_nj,
            "closed_nj": self.closed_nj,
            "open_nj": self.open_nj,
            "idle_nj": self.idle_nj,
            "gap_nj": self.gap_nj,
            "empty_nj": self.empty_nj,
            "idle_u_j": self.idle_u_j,
            "devices": {
                name: {
                    "energy_nj": energy,
                    "u_j": self.device_u_j[name],
                    "idle_nj": self.device_idle_nj[name],
                    "unmeasured_s": self.unmeasured_s.get(name, 0.0),
                }
                for name, energy in self.device_nj.items()
            },
            "requests": self.requests,
            "tokens": self.tokens,
            "late_steps": self.late_steps,
            "dropped_accounts": self.dropped_accounts,
            "coefficients": self.coefficients.to_dict() if self.coefficients else None,
        }


def table(accounts: Iterable[Account], totals: Totals) -> str:
    """Accounts and totals as text: a line a request, uncertainties with k = 2."""
    columns = ("request", "J", "± J (k=2)", "prefill J", "decode J", "tokens", "J/token", "rule")
    rows = [columns, *(_row(account) for account in accounts)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]
    lines = [
        "  ".join(
            cell.ljust(width) if i in (0, 7) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.append("")
    lines.append(f"requests  {totals.requests_j:14.6f} J")
    lines.append(f"idle      {totals.idle_j:14.6f} J  ± {2 * totals.idle_u_j:.3g} J (k=2)")
    u = sum(u * u for u in totals.device_u_j.values()) ** 0.5
    lines.append(f"devices   {totals.energy_j:14.6f} J  ± {2 * u:.3g} J (k=2)")
    for device, seconds in totals.unmeasured_s.items():
        lines.append(f"{device} could not be read for {seconds:.3f} s, which are in no energy")
    return "\n".join(lines)


def _row(account: Account) -> tuple[str, ...]:
    per_token = account.joules_per_token
    energies: tuple[str, ...] = ("-", "-", "-", "-")
    if account.measured:
        numbers = (account.energy_j, 2 * account.u_j, account.prefill_j, account.decode_j)
        energies = tuple(f"{x:.4g}" for x in numbers)
    notes = [account.rule, *account.flags]
    if account.reason != "finished":
        notes.append(account.reason)
    return (
        str(account.request_id),
        *energies,
        str(account.tokens),
        "-" if per_token is None else f"{per_token:.4g}",
        " ".join(notes),
    )
