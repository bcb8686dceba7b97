"""A small classifier of scikit-learn's digits, with torch.nn's layers or with torch_memops.nn's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

TEST_SAMPLES = 360
BATCH = 64
LEVELS = 17  # a digit's pixels are whole numbers from 0 to 16


class Classifier(nn.Module):
    """Pixels as tokens: an embedding, two convolutions along the 64 pixels, two linear layers."""

    def __init__(self, layers: ModuleType) -> None:
        super().__init__()
        self.embed = layers.Embedding(LEVELS, 8)
        self.conv1 = layers.Conv1d(8, 32, 5, padding="same")
        self.conv2 = layers.Conv1d(32, 32, 9, stride=4, padding=4)
        self.hidden = layers.Linear(32 * 16, 64)
        self.out = layers.Linear(64, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.embed(pixels).transpose(1, 2)
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.out(F.relu(self.hidden(x.flatten(1))))


@dataclass(frozen=True)
class History:
    """losses: the mean training loss of each epoch; accuracy: of the test samples, 0 to 1."""

    losses: list[float]
    accuracy: float
    seconds: float


def load_data(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training pixels int64 [1437, 64] and labels, test pixels [360, 64] and labels."""
    digits = load_digits()
    pixels = torch.from_numpy(digits.data).long()
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(pixels), generator=torch.Generator().manual_seed(0))
    pixels, labels = pixels[order].to(device), labels[order].to(device)
    return (
        pixels[TEST_SAMPLES:],
        labels[TEST_SAMPLES:],
        pixels[:TEST_SAMPLES],
        labels[:TEST_SAMPLES],
    )


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """The model is too small to share out: on a busy machine threads would wait for each other at
    every op, for most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@one_thread()
def train(
    layers: ModuleType, device: torch.device, epochs: int, after_epoch: Callable[[float], None]
) -> History:
    """Trains with Adam from seed 0; `layers` is torch.nn or torch_memops.nn. One CPU thread."""
    pixels, labels, test_pixels, test_labels = load_data(device)
    torch.manual_seed(0)
    model = Classifier(layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    shuffle = torch.Generator().manual_seed(1)
    losses = []
    start = time.perf_counter()
    for _ in range(epochs):
        total = torch.zeros((), device=device)
        order = torch.randperm(len(pixels), generator=shuffle).to(device)
        for batch in order.split(BATCH):
            loss = F.cross_entropy(model(pixels[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch)
        losses.append(total.item() / len(pixels))
        after_epoch(losses[-1])
    seconds = time.perf_counter() - start
    with torch.no_grad():
        right = (model(test_pixels).argmax(1) == test_labels).sum().item()
    return History(losses, right / TEST_SAMPLES, seconds)


def accuracy_noise(accuracy: float) -> float:
    """Two standard errors of the difference between two measured accuracies of this size; one
    test sample at least."""
    variance = 2 * accuracy * (1 - accuracy) / TEST_SAMPLES
    return max(2 * variance**0.5, 1 / TEST_SAMPLES)


def disagreement(ours: History, theirs: History) -> str | None:
    """What differs by more than noise between the two trainings, or None."""
    noise = accuracy_noise(theirs.accuracy)
    if not abs(ours.accuracy - theirs.accuracy) <= noise:
        return (
            f"training: accuracy {ours.accuracy:.1%} with torch_memops.nn and "
            f"{theirs.accuracy:.1%} with torch.nn, noise {noise:.1%}"
        )
    if not abs(ours.losses[0] - theirs.losses[0]) <= 0.01 * theirs.losses[0]:
        return (
            f"training: loss of the first epoch {ours.losses[0]:.4f} with torch_memops.nn and "
            f"{theirs.losses[0]:.4f} with torch.nn, from the same weights and batches"
        )
    return None
