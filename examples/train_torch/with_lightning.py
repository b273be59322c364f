#!/usr/bin/env python3
"""Trains on handwritten digits with PyTorch Lightning, whose logs get the energy.

LIGHTNING=pytorch_lightning takes the library under its other name.
"""

import argparse
import os
import sys

import digits
import torch
from torch.utils.data import DataLoader

if os.environ.get("LIGHTNING") == "pytorch_lightning":
    import pytorch_lightning as lightning
    from pytorch_lightning.loggers import CSVLogger
else:
    import lightning.pytorch as lightning
    from lightning.pytorch.loggers import CSVLogger

from zeus.callbacks.lightning import ZeusCallback


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = digits.network()
        self.loss = torch.nn.CrossEntropyLoss()

    def training_step(self, batch, _) -> torch.Tensor:
        images, labels = batch
        return self.loss(self.model(images), labels)

    def validation_step(self, batch, _) -> None:
        images, labels = batch
        told = self.model(images).argmax(dim=1)
        self.log("accuracy", (told == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default: %(default)s)")
    parser.add_argument("--devices", type=int, default=1, help="processes, or GPUs (default: %(default)s)")
    parser.add_argument("--logs", default="logs", help="folder of the logs (default: %(default)s)")
    parser.add_argument("--cpu", action="store_true", help="train on the processor, even where there is a GPU")
    args = parser.parse_args()
    lightning.seed_everything(0)
    train, test = digits.load()
    trainer = lightning.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu" if args.cpu else "auto",
        devices=args.devices,
        callbacks=[ZeusCallback()],
        logger=CSVLogger(args.logs, name="", version=""),
        log_every_n_steps=20,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Classifier(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(test, batch_size=360))
    print(f"accuracy {trainer.callback_metrics['accuracy']:.3f}")
    return 0 if trainer.callback_metrics["accuracy"] > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
