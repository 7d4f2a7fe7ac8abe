# SPDX-License-Identifier: Apache-2.0
"""Small networks of the families that users train, each with a batch and a loss, for the tests and benches of budgets.

`NETS`: name -> function(scale) that gives (model, batch of a step's number, loss of a batch, an optimizer's maker).
"""
import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Of a transformer, as GPT-2's and ViT's: attention and a perceptron, each behind a norm, with dropout."""

    def __init__(self, width, heads, is_causal, dropout):
        super().__init__()
        self.heads, self.is_causal, self.dropout = heads, is_causal, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        x = x + functional.dropout(self.out(y.transpose(1, 2).reshape(b, t, c)), self.dropout, self.training)
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, width, depth, length, words=512, dropout=0.1):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, width // 32, True, dropout) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = self.drop(self.words(x) + self.places(torch.arange(x.shape[1])))
        return self.head(self.norm(self.blocks(x)))


class Vit(nn.Module):
    def __init__(self, width, depth, patch=8, classes=10):
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, width, patch, patch), nn.Parameter(torch.zeros(1, 1, width))
        self.blocks = nn.Sequential(*(Block(width, width // 32, False, 0.0) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(len(x), -1, -1), x), 1)
        return self.head(self.norm(self.blocks(x))[:, 0])


class Residual(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Identity() if n_in == n_out else nn.Sequential(
            nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += self.short(x)
        return self.relu(y)


class Unet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.ModuleList(self.pair(3 if i == 0 else width << i - 1, width << i) for i in range(3))
        self.up = nn.ModuleList(self.pair(3 * width << i, width << i) for i in range(2))
        self.out = nn.Conv2d(width, 4, 1)

    @staticmethod
    def pair(n_in, n_out):
        return nn.Sequential(nn.Conv2d(n_in, n_out, 3, padding=1), nn.GroupNorm(4, n_out), nn.SiLU(),
                             nn.Conv2d(n_out, n_out, 3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(inplace=True))

    def forward(self, x):
        kept = []
        for i, block in enumerate(self.down):
            x = block(functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for i in (1, 0):
            x = self.up[i](torch.cat((functional.interpolate(x, scale_factor=2), kept[i]), 1))
        return self.out(x)


class Lstm(nn.Module):
    def __init__(self, width, words=256):
        super().__init__()
        self.words, self.lstm = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(width, words)

    def forward(self, x):
        return self.head(self.lstm(self.words(x))[0])


def _numbers(seed, *size, high):
    return torch.randint(0, high, size, generator=torch.Generator().manual_seed(seed))


def _images(seed, *size):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def _text_loss(model, batch):
    return functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


def _image_loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def _adamw(model):
    return torch.optim.AdamW(model.parameters(), 1e-3)


def gpt(n=1):
    def batch(i):
        x = _numbers(i, 16 * n, 65, high=512)
        return x[:, :-1], x[:, 1:]
    return Gpt(64 * n, 2 + 2 * n, 64), batch, _text_loss, _adamw


def vit(n=1):
    def batch(i):
        return _images(i, 16 * n, 3, 64, 64), _numbers(i, 16 * n, high=10)
    return Vit(64 * n, 2 + 2 * n), batch, _image_loss, _adamw


def resnet(n=1):
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True), Residual(16, 16, 1),
                          Residual(16, 32 * n, 2), Residual(32 * n, 32 * n, 1), Residual(32 * n, 64 * n, 2),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64 * n, 10))

    def batch(i):
        return _images(i, 8 * n, 3, 32, 32), _numbers(i, 8 * n, high=10)
    return model, batch, _image_loss, lambda m: torch.optim.SGD(m.parameters(), 0.05, momentum=0.9)


def unet(n=1):
    def batch(i):
        return _images(i, 4 * n, 3, 32, 32), _numbers(i, 4 * n, 32, 32, high=4)
    return Unet(8 * n), batch, _image_loss, _adamw


def lstm(n=1):
    def batch(i):
        x = _numbers(i, 16 * n, 33, high=256)
        return x[:, :-1], x[:, 1:]
    return Lstm(64 * n), batch, _text_loss, _adamw


NETS = {"gpt": gpt, "vit": vit, "resnet": resnet, "unet": unet, "lstm": lstm}


def plain_step(model, batch, loss_of, optimizer):
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return loss.detach()


def accumulating_step(model, batch, loss_of, optimizer):
    optimizer.zero_grad()
    total = 0
    for part in zip(*(x.chunk(2) for x in batch)):
        loss = loss_of(model, part) / 2
        loss.backward()
        total = total + loss.detach()
    optimizer.step()
    return total


def bf16_step(model, batch, loss_of, optimizer):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return loss.detach()


STEPS = {"": plain_step, "accumulated": accumulating_step, "bf16": bf16_step}
