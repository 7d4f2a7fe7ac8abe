# SPDX-License-Identifier: Apache-2.0
"""Networks that people train, at the sizes they have, with batches that a step of seconds on one core allows.

`NETS`: name -> function that gives (model, batch of a step's number, loss of a batch, optimizer, blocks to checkpoint).
"""
import torch
from torch import nn
from torch.nn import functional


def _numbers(i, *size, high):
    return torch.randint(0, high, size, generator=torch.Generator().manual_seed(i))


def _images(i, n, size):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(i))


def _adamw(model):
    return torch.optim.AdamW(model.parameters(), 1e-4)


def _class_loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def gpt2(n=1, length=256):
    """GPT-2 small of transformers: 124 million parameters."""
    import transformers
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    model.train()

    def batch(i):
        tokens = _numbers(i, n, length, high=50257)
        return tokens, tokens
    return model, batch, lambda model, batch: model(input_ids=batch[0], labels=batch[1]).loss, _adamw(model), \
        model.transformer.h


def vit(n=2):
    import torchvision
    model = torchvision.models.vit_b_16(weights=None)
    return model, lambda i: (_images(i, n, 224), _numbers(i, n, high=1000)), _class_loss, _adamw(model), \
        model.encoder.layers


def resnet50(n=8, size=96):
    import torchvision
    model = torchvision.models.resnet50(weights=None)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
    blocks = [block for layer in (model.layer1, model.layer2, model.layer3, model.layer4) for block in layer]
    return model, lambda i: (_images(i, n, size), _numbers(i, n, high=1000)), _class_loss, optimizer, blocks


class Unet(nn.Module):
    """Of Ronneberger and others, with batch-norm: five levels of two convolutions."""

    def __init__(self, width, depth, classes):
        super().__init__()
        self.down = nn.ModuleList(self.pair(3 if i == 0 else width << i - 1, width << i) for i in range(depth))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(width << i + 1, width << i, 2, 2) for i in range(depth - 1))
        self.up = nn.ModuleList(self.pair(width << i + 1, width << i) for i in range(depth - 1))
        self.out = nn.Conv2d(width, classes, 1)

    @staticmethod
    def pair(n_in, n_out):
        return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True),
                             nn.Conv2d(n_out, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True))

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = self.up[i](torch.cat((kept[i], self.grow[i](x)), 1))
        return self.out(x)


def unet(n=2, size=96):
    model = Unet(32, 5, 4)
    return model, lambda i: (_images(i, n, size), _numbers(i, n, size, size, high=4)), _class_loss, _adamw(model), \
        [*model.down, *model.up]


class Lstm(nn.Module):
    """The medium one of Zaremba and others: two layers of 650."""

    def __init__(self, words=10000, width=650):
        super().__init__()
        self.words, self.lstm = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True, dropout=0.5)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0])


def lstm(n=20, length=35):
    model = Lstm()

    def batch(i):
        x = _numbers(i, n, length + 1, high=10000)
        return x[:, :-1], x[:, 1:]
    return model, batch, lambda model, batch: functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten()), \
        torch.optim.SGD(model.parameters(), 1.0), []


NETS = {"gpt2": gpt2, "vit_b_16": vit, "resnet50": resnet50, "unet": unet, "lstm": lstm}
