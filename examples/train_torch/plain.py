#!/usr/bin/env python3
"""Trains on handwritten digits in a loop of its own, and measures its epochs with ZeusMonitor.

Run by torchrun, each rank trains on its share, and the energy is that of all ranks, each device once.
Prints one line of JSON at the end.
"""

import argparse
import json
import os
import sys

import digits
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from zeus.distributed import gather
from zeus.monitor import ZeusMonitor


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default: %(default)s)")
    parser.add_argument("--gpus", type=int, nargs="*", help="GPUs to watch (default: all)")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    torch.manual_seed(0)
    is_distributed = "WORLD_SIZE" in os.environ
    where = digits.device()
    if is_distributed:
        if where.type == "cuda":
            where = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(where)
        dist.init_process_group("nccl" if where.type == "cuda" else "gloo")
    train, test = digits.load()
    sampler = DistributedSampler(train) if is_distributed else None
    batches = DataLoader(train, batch_size=32, shuffle=sampler is None, sampler=sampler)
    model = digits.network().to(where)
    if is_distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss = torch.nn.CrossEntropyLoss()

    monitor = ZeusMonitor(gpu_indices=args.gpus)
    with monitor.window("training") as training:
        for epoch in range(args.epochs):
            if sampler is not None:
                sampler.set_epoch(epoch)
            with monitor.window("epoch") as window:
                for images, labels in batches:
                    optimizer.zero_grad()
                    loss(model(images.to(where)), labels.to(where)).backward()
                    optimizer.step()
            print(f"epoch {epoch + 1}: {window.measurement:u} in {window.measurement.time:.2f} s")
    everything = gather(training.measurement, monitor)
    share = digits.accuracy(model, test, where)
    span = training.measurement.span
    result = {
        "accuracy": share,
        "begin_s": span.begin_s,
        "end_s": span.end_s,
        "total": everything.total.to_dict(),
        "devices": {device.device: device.energy.to_dict() for device in everything.devices if device.kind == "gpu"},
        "ranks": {device.device: device.ranks for device in everything.devices if device.kind == "gpu"},
    }
    if not is_distributed or dist.get_rank() == 0:
        print(f"all ranks: {everything}")
        print(json.dumps(result))
    if is_distributed:
        dist.destroy_process_group()
    return 0 if share > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
