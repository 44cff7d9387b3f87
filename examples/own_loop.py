"""Your own network and training loop with one loss of this package: BatchMean triplet plus cross-entropy."""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from rankingmatch.losses import batch_mean_triplet

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 300

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
labels = torch.tensor(digits.target)
train, test = slice(0, 200), slice(200, None)

network = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
for step in range(steps):
    rows = torch.randint(200, (64,))
    logits = network(images[train][rows])
    ranking = batch_mean_triplet(logits, labels[train][rows])  # pulls the logits of a class together
    loss = F.cross_entropy(logits, labels[train][rows]) + ranking
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.3f}, ranking loss {ranking.item():.3f}")

with torch.no_grad():
    wrong = (network(images[test]).argmax(1) != labels[test]).float().mean()
print(f"test error {100 * wrong.item():.1f}%")
