"""Train a small sequence model with torch_memops.nn under torch.compile, beside torch.nn in eager mode.

The two models share weights and data, so their losses agree but for rounding.
"""

from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_memops
import torch_memops.nn

VOCABULARY, CHANNELS, CLASSES = 32, 16, 4


class Model(nn.Module):
    """Token sequences [B, L] to scores [B, CLASSES]."""

    def __init__(self, layers: ModuleType) -> None:
        super().__init__()
        self.embed = layers.Embedding(VOCABULARY, CHANNELS)
        self.conv = layers.Conv1d(CHANNELS, CHANNELS, 5, padding="same")
        self.out = layers.Linear(CHANNELS, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens).transpose(1, 2)
        return self.out(F.relu(self.conv(x)).mean(dim=2))


def losses(model: nn.Module, tokens: Tensor, labels: Tensor, steps: int) -> list[float]:
    """The loss of each step of plain gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    history = []
    for _ in range(steps):
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    return history


def main() -> None:
    device = "cuda" if torch_memops.cuda_available() else "cpu"
    torch.backends.cudnn.allow_tf32 = False  # convolutions in full f32, to compare the losses
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (64, 100), device=device)
    labels = tokens[:, 0] % CLASSES
    reference = Model(torch.nn).to(device)
    model = Model(torch_memops.nn).to(device)
    model.load_state_dict(reference.state_dict())

    model.compile(fullgraph=True)
    ours = losses(model, tokens, labels, steps=20)
    theirs = losses(reference, tokens, labels, steps=20)
    difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    print(f"loss {ours[0]:.4f} -> {ours[-1]:.4f} (torch_memops.nn, compiled)")
    print(f"loss {theirs[0]:.4f} -> {theirs[-1]:.4f} (torch.nn)")
    print(f"largest difference of a step: {difference:.1e}")
    if not difference < 1e-3:
        raise SystemExit("the two models differ by more than rounding")


if __name__ == "__main__":
    main()
