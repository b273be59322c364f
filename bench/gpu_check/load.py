#!/usr/bin/env python3
"""A load for one NVIDIA GPU by PyTorch, as load.h says.

usage: load.py GPU | load.py --cpu

GPU is a UUID or CUDA's index. High is a product of matrices, in chunks of about a millisecond; low
is a GPU that waits. --cpu computes on the processor and without PyTorch, to try the schedule.
"""

import os
import sys
import time

CHUNK_S = 1e-3


def cpu_chunk():
    end = time.monotonic() + CHUNK_S / 4
    while time.monotonic() < end:
        pass


def gpu_chunk(gpu):
    if gpu.startswith("GPU-"):  # CUDA has its own order; a UUID is safe from that.
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        gpu = "0"
    import torch

    device = torch.device("cuda", int(gpu))
    a = torch.randn(4096, 4096, device=device, dtype=torch.float16) / 64
    b = torch.randn_like(a) / 64
    out = torch.empty_like(a)

    def products(count):
        for _ in range(count):
            torch.mm(a, b, out=out)
        torch.cuda.synchronize(device)

    end = time.monotonic() + 1  # Libraries load, and clocks rise.
    while time.monotonic() < end:
        products(1)
    begin = time.monotonic()
    products(100)
    count = max(1, round(CHUNK_S / ((time.monotonic() - begin) / 100)))
    return lambda: products(count)


def busy_until(end, chunk):
    while time.monotonic() < end:
        chunk()


def square(period, duty, start, seconds, chunk):
    i = 0
    while i * period < seconds:
        rise = start + i * period
        time.sleep(max(0, rise - time.monotonic()))
        busy_until(rise + duty * period, chunk)
        i += 1


def obey(words, chunk):
    if words[:1] == ["busy"] and len(words) == 2:
        busy_until(time.monotonic() + float(words[1]), chunk)
    elif words[:1] == ["square"] and len(words) == 5:
        square(float(words[1]), float(words[2]), int(words[3]) * 1e-9, float(words[4]), chunk)
    else:
        return False
    return True


def main():
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    chunk = cpu_chunk if sys.argv[1] == "--cpu" else gpu_chunk(sys.argv[1])
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        print("ok" if obey(line.split(), chunk) else "does not know: " + line.strip(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
