"""Callbacks for frameworks that own the training loop: they measure it, and log what it used.

`zeus.callbacks.lightning.ZeusCallback` is for PyTorch Lightning,
`zeus.callbacks.huggingface.ZeusTrainerCallback` for the Trainer of Transformers and those of TRL.
For a loop of your own there is `zeus.monitor.ZeusMonitor`.
"""
