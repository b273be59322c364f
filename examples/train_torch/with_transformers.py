#!/usr/bin/env python3
"""Trains on handwritten digits with the Trainer of Transformers, whose logs get the energy."""

import argparse
import json
import sys
from pathlib import Path

import digits
import numpy as np
import torch
from transformers import Trainer, TrainingArguments

from zeus.callbacks.huggingface import ZeusTrainerCallback


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = digits.network()

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = self.model(images)
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


def collate(examples: list[tuple[torch.Tensor, torch.Tensor]]) -> dict[str, torch.Tensor]:
    images, labels = zip(*examples)
    return {"images": torch.stack(images), "labels": torch.stack(labels)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10, help="passes over the data (default: %(default)s)")
    parser.add_argument("--logs", default="logs", help="folder of the logs (default: %(default)s)")
    parser.add_argument("--cpu", action="store_true", help="train on the processor, even where there is a GPU")
    args = parser.parse_args()
    train, test = digits.load()
    torch.manual_seed(0)
    trainer = Trainer(
        model=Classifier(),
        args=TrainingArguments(
            args.logs,
            num_train_epochs=args.epochs,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=360,
            learning_rate=3e-3,
            eval_strategy="epoch",
            logging_steps=20,
            save_strategy="no",
            use_cpu=args.cpu,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=train,
        eval_dataset=test,
        data_collator=collate,
        compute_metrics=lambda told: {"accuracy": float(np.mean(told.predictions.argmax(1) == told.label_ids))},
    )
    callback = ZeusTrainerCallback.attach(trainer)
    trainer.train()
    with callback.evaluation():
        results = trainer.evaluate()
    if trainer.is_world_process_zero():
        Path(args.logs).mkdir(parents=True, exist_ok=True)
        Path(args.logs, "history.json").write_text(json.dumps(trainer.state.log_history, indent=1))
    print(f"accuracy {results['eval_accuracy']:.3f}")
    return 0 if results["eval_accuracy"] > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
