# SPDX-License-Identifier: Apache-2.0
"""Train one network in PyTorch for a few steps and print the seconds of each, one a line.

What PyTorch is measured with is its best: channels-last or not as --channels-last says (the caller tries both),
SGD with momentum through the fused or foreach form where the version has one, gradients set to None.
"""
import argparse
import time

import torch
from torch import nn


def alexnet(classes):
    """The network of 2012 in one tower, as ebb's `alexnet`."""
    return nn.Sequential(
        nn.Conv2d(3, 96, 11, 4), nn.ReLU(True), nn.LocalResponseNorm(5, 1e-4, 0.75, 2), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, padding=2), nn.ReLU(True), nn.LocalResponseNorm(5, 1e-4, 0.75, 2), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, padding=1), nn.ReLU(True), nn.Conv2d(384, 384, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2), nn.Flatten(),
        nn.Linear(9216, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(),
        nn.Linear(4096, classes))


def network(name, classes=1000):
    if name == "alexnet":
        return alexnet(classes), 227
    import torchvision
    return getattr(torchvision.models, name)(), 224


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("net")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model, image = network(args.net)
    model.train()
    images = torch.randn(args.batch, 3, image, image)
    labels = torch.randint(0, 1000, (args.batch,))
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    for _ in range(args.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_fn(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        print(f"{time.perf_counter() - begin:.6f}", flush=True)


if __name__ == "__main__":
    main()
