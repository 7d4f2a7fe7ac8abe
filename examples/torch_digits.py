# SPDX-License-Identifier: Apache-2.0
"""Trains a convolutional network of PyTorch on handwritten digits inside a budget:

    pip install torch ebb_memory-*.whl
    python torch_digits.py digits.csv.gz 60%

A row of the file is 64 pixels and the digit. The lines with `fit` are all that differs from a plain training loop.
"""
import csv
import gzip
import sys

import torch
from torch import nn

import ebb.torch


def digits(path):
    with gzip.open(path, "rt") as file:
        rows = torch.tensor([[float(value) for value in row] for row in csv.reader(file)])
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))]
    images, classes = rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()
    n = len(rows) * 4 // 5
    return (images[:n], classes[:n]), (images[n:], classes[n:])


def main(path, budget):
    torch.manual_seed(0)
    (x, y), (test_x, test_y) = digits(path)
    layers = [layer for i in range(8) for layer in (
        nn.Conv2d(16 if i else 1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())]
    model = nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    fit = ebb.torch.Budget(budget, spill="ram")
    for _ in range(5):
        for i in torch.randperm(len(x)).split(128)[:-1]:  # the last one is smaller
            with fit.step():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x[i]), y[i])
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        right = (model.eval()(test_x).argmax(1) == test_y).float().mean()
    print(fit.summary())
    print(f"last loss       {loss.item():.6f}\nright           {right:.1%} of {len(test_y)} digits that it has not seen")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} digits.csv.gz BUDGET")
    main(*sys.argv[1:])
