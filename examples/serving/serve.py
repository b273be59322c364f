#!/usr/bin/env python3
"""Serves prompts with a small GPT and prints what each of them cost.

Prompts arrive at random; the engine batches them as they come. Every step goes to a
`zeus.serving.Ledger`, which divides the energy that the machine's counters show among the requests.
"""

import argparse
import pathlib
import random
import time

from engine import Engine, Request
from model import Model

from zeus.serving import Ledger, local_sources, table

PROMPTS = pathlib.Path(__file__).with_name("prompts.txt")


def arrivals(count: int, rate_per_s: float) -> list[tuple[float, Request]]:
    """Requests and when they arrive, the same in every run."""
    rng = random.Random(1)
    prompts = PROMPTS.read_text().splitlines()
    at, out = 0.0, []
    for i in range(count):
        at += rng.expovariate(rate_per_s)
        prompt = list(prompts[i % len(prompts)].encode())
        out.append((at, Request(f"{i:03d}", prompt, rng.randint(8, 120))))
    return out


def serve(engine: Engine, ledger: Ledger, work: list[tuple[float, Request]]) -> None:
    """Runs the engine in real time until all requests are served."""
    begin = time.monotonic()
    while work or engine.busy:
        now = time.monotonic() - begin
        while work and work[0][0] <= now:
            engine.add(work.pop(0)[1])
        if not engine.busy:
            time.sleep(work[0][0] - now)
            continue
        event, ended = engine.step()
        ledger.step(event)
        for request in ended:
            ledger.finish(request.name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--rate", type=float, default=4.0, help="requests a second")
    parser.add_argument("--seats", type=int, default=8, help="requests in a batch")
    parser.add_argument("--gpu", type=int, nargs="*", help="which GPUs (default: all)")
    args = parser.parse_args()

    sources = local_sources(gpu_indices=args.gpu)
    lag_s = max(source.update_s for source in sources.values())
    ledger = Ledger(sources, begin_s=time.monotonic() + 2 * lag_s)
    time.sleep(3 * lag_s)  # until each counter has published twice

    serve(Engine(Model(), args.seats), ledger, arrivals(args.requests, args.rate))

    end = time.monotonic()
    time.sleep(3 * lag_s)  # until the counters show all of it
    totals = ledger.close(end)
    for source in sources.values():
        source.stop()
    accounts = sorted(ledger.accounts(), key=lambda account: str(account.request_id))
    print(table(accounts, totals))
    print(f"per token {totals.requests_j / totals.tokens:14.6f} J  over {totals.tokens} tokens")
    assert totals.requests_nj + totals.idle_nj == totals.energy_nj
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
