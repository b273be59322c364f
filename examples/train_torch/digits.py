"""The handwritten digits that ship with scikit-learn, and a network that learns them."""

import torch
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, TensorDataset, random_split


def load() -> tuple[Dataset, Dataset]:
    """Training and test images, (n, 64) in 0..1, with their labels (n,); the same ones each time."""
    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target, dtype=torch.int64)
    generator = torch.Generator().manual_seed(0)
    train, test = random_split(TensorDataset(images, labels), [0.8, 0.2], generator)
    return train, test


def network(hidden: int = 256) -> torch.nn.Module:
    """64 pixels -> two hidden layers -> 10 classes."""
    return torch.nn.Sequential(
        torch.nn.Linear(64, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden),
        torch.nn.ReLU(),
        torch.nn.Linear(hidden, 10),
    )


def device() -> torch.device:
    """A GPU if PyTorch has one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def accuracy(model: torch.nn.Module, data: Dataset, where: torch.device) -> float:
    """The share of images whose digit the network tells."""
    images, labels = (torch.stack(column) for column in zip(*data))
    with torch.no_grad():
        told = model(images.to(where)).argmax(dim=1).cpu()
    return (told == labels).float().mean().item()
