# SPDX-License-Identifier: Apache-2.0
"""The zoo's networks as PyTorch modules, with the zoo's parameter names: torchvision's own where it has them, for
any size of image (its adaptive pools in front of classifiers are the identity at the sizes it was made for, and are
left out), and the others written out here. Dropout is left out of all."""
import torch
import torchvision
from torch import nn

TORCHVISION = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "densenet121"]


class Flat(nn.Module):
    """features, flatten, classifier."""

    def __init__(self, features, classifier):
        super().__init__()
        self.features, self.classifier = features, classifier

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


def size_behind(features, image):
    features.eval()
    with torch.no_grad():
        n = features(torch.zeros(1, *image)).numel()
    return n


def vgg(name, image, classes):
    depth, _, variant = name[3:].partition("_")
    letter = {"11": "A", "13": "B", "16": "D", "19": "E"}[depth]
    features = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs[letter], variant in ("bn", "cifar"))
    n = size_behind(features, image)
    if variant == "cifar":
        return Flat(features, nn.Sequential(nn.Linear(n, 512), nn.ReLU(), nn.Identity(), nn.Linear(512, classes)))
    return Flat(features, nn.Sequential(nn.Linear(n, 4096), nn.ReLU(), nn.Identity(),
                                        nn.Linear(4096, 4096), nn.ReLU(), nn.Identity(), nn.Linear(4096, classes)))


def alexnet_tv(image, classes):
    features = torchvision.models.alexnet().features
    return Flat(features, nn.Sequential(nn.Identity(), nn.Linear(size_behind(features, image), 4096), nn.ReLU(),
                                        nn.Identity(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, classes)))


def alexnet(image, classes):
    norm = lambda: nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)
    features = nn.Sequential(
        nn.Conv2d(image[0], 96, 11, 4), nn.ReLU(), norm(), nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, 1, 2), nn.ReLU(), norm(), nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, 1, 1), nn.ReLU(), nn.Conv2d(384, 384, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(3, 2))
    return Flat(features, nn.Sequential(nn.Linear(size_behind(features, image), 4096), nn.ReLU(), nn.Identity(),
                                        nn.Linear(4096, 4096), nn.ReLU(), nn.Identity(), nn.Linear(4096, classes)))


class Mlp(nn.Module):
    def __init__(self, image, classes):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(image[0] * image[1] * image[2], 512), nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, classes)

    def forward(self, x):
        return self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(torch.flatten(x, 1))))))


class Perceptron(nn.Module):
    def __init__(self, hidden, image, classes):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(image[0] * image[1] * image[2], hidden), nn.Linear(hidden, classes)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(torch.flatten(x, 1))))


class Lenet(nn.Module):
    def __init__(self, image, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(image[0], 20, 5), nn.Conv2d(20, 50, 5)
        side = [((s - 4) // 2 - 4) // 2 for s in image[1:]]
        self.fc1, self.fc2 = nn.Linear(50 * side[0] * side[1], 500), nn.Linear(500, classes)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.fc2(torch.relu(self.fc1(torch.flatten(x, 1))))


class Basic(nn.Module):
    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False), nn.BatchNorm2d(n_out)
        self.conv2, self.bn2 = nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False), nn.BatchNorm2d(n_out)
        self.downsample = None
        if stride != 1 or n_in != n_out:
            self.downsample = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class CifarResnet(nn.Module):
    def __init__(self, n, image, classes):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(image[0], 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        stage = lambda n_in, n_out, stride: nn.Sequential(Basic(n_in, n_out, stride),
                                                          *(Basic(n_out, n_out, 1) for _ in range(n - 1)))
        self.layer1, self.layer2, self.layer3 = stage(16, 16, 1), stage(16, 32, 2), stage(32, 64, 2)
        self.fc = nn.Linear(64, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(torch.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


def resnet_cifar_stem(name, image, classes):
    """torchvision's ResNet with a stem that keeps the image's size."""
    model = getattr(torchvision.models, name.partition("_")[0])(num_classes=classes)
    model.conv1, model.maxpool = nn.Conv2d(image[0], 64, 3, 1, 1, bias=False), nn.Identity()
    return model


# Inception v4 as data. A unit is (channels, kernel height, width, stride, pads); "max" a 3x3 pool of stride 2, "avg"
# a 3x3 pool of stride 1 whose padding does not count.
def unit(channels, height, width, stride=1, pads=True):
    return channels, height, width, stride, pads


class Unit(nn.Module):
    def __init__(self, n_in, channels, height, width, stride, pads):
        super().__init__()
        pad = (height // 2, width // 2) if pads and stride == 1 else 0
        self.conv = nn.Conv2d(n_in, channels, (height, width), stride, pad, bias=False)
        self.bn = nn.BatchNorm2d(channels, eps=1e-3)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


def chain(n_in, parts):
    """A module, its channels. One unit alone is not wrapped."""
    made = []
    for part in parts:
        if part == "avg":
            made.append(nn.AvgPool2d(3, 1, 1, count_include_pad=False))
        else:
            made.append(Unit(n_in, *part))
            n_in = part[0]
    return (made[0] if len(made) == 1 else nn.Sequential(*made)), n_in


class Mixed(nn.Module):
    """Branches by name, concatenated in their order."""

    def __init__(self, n_in, branches):
        super().__init__()
        self.order, self.n_out = [], 0
        for name, parts in branches:
            if parts == "max":
                made, n = nn.MaxPool2d(3, 2), n_in
            else:
                made, n = chain(n_in, parts)
            self.add_module(name, made)
            self.order.append(name)
            self.n_out += n

    def forward(self, x):
        return torch.cat([getattr(self, name)(x) for name in self.order], 1)


class Forked(nn.Module):
    """Inception-C: two of its branches fork at their end."""

    def __init__(self, n_in):
        super().__init__()
        self.branch0 = Unit(n_in, *unit(256, 1, 1))
        self.branch1_0 = Unit(n_in, *unit(384, 1, 1))
        self.branch1_1a, self.branch1_1b = Unit(384, *unit(256, 1, 3)), Unit(384, *unit(256, 3, 1))
        self.branch2_0, self.branch2_1 = Unit(n_in, *unit(384, 1, 1)), Unit(384, *unit(448, 3, 1))
        self.branch2_2 = Unit(448, *unit(512, 1, 3))
        self.branch2_3a, self.branch2_3b = Unit(512, *unit(256, 1, 3)), Unit(512, *unit(256, 3, 1))
        self.branch3 = chain(n_in, ["avg", unit(256, 1, 1)])[0]
        self.n_out = 1536

    def forward(self, x):
        one = self.branch1_0(x)
        two = self.branch2_2(self.branch2_1(self.branch2_0(x)))
        return torch.cat([self.branch0(x), self.branch1_1a(one), self.branch1_1b(one), self.branch2_3a(two),
                          self.branch2_3b(two), self.branch3(x)], 1)


A = [("branch0", [unit(96, 1, 1)]), ("branch1", [unit(64, 1, 1), unit(96, 3, 3)]),
     ("branch2", [unit(64, 1, 1), unit(96, 3, 3), unit(96, 3, 3)]), ("branch3", ["avg", unit(96, 1, 1)])]
B = [("branch0", [unit(384, 1, 1)]), ("branch1", [unit(192, 1, 1), unit(224, 1, 7), unit(256, 7, 1)]),
     ("branch2", [unit(192, 1, 1), unit(192, 7, 1), unit(224, 1, 7), unit(224, 7, 1), unit(256, 1, 7)]),
     ("branch3", ["avg", unit(128, 1, 1)])]
INCEPTION4 = [
    [("maxpool", "max"), ("conv", [unit(96, 3, 3, 2)])],
    [("branch0", [unit(64, 1, 1), unit(96, 3, 3, 1, False)]),
     ("branch1", [unit(64, 1, 1), unit(64, 1, 7), unit(64, 7, 1), unit(96, 3, 3, 1, False)])],
    [("conv", [unit(192, 3, 3, 2)]), ("maxpool", "max")],
    A, A, A, A,
    [("branch0", [unit(384, 3, 3, 2)]), ("branch1", [unit(192, 1, 1), unit(224, 3, 3), unit(256, 3, 3, 2)]),
     ("branch2", "max")],
    B, B, B, B, B, B, B,
    [("branch0", [unit(192, 1, 1), unit(192, 3, 3, 2)]),
     ("branch1", [unit(256, 1, 1), unit(256, 1, 7), unit(320, 7, 1), unit(320, 3, 3, 2)]), ("branch2", "max")],
    "C", "C", "C",
]


class Inception4(nn.Module):
    def __init__(self, image, classes):
        super().__init__()
        made = [Unit(image[0], *unit(32, 3, 3, 2)), Unit(32, *unit(32, 3, 3, 1, False)), Unit(32, *unit(64, 3, 3))]
        n = 64
        for branches in INCEPTION4:
            made.append(Forked(n) if branches == "C" else Mixed(n, branches))
            n = made[-1].n_out
        self.features = nn.Sequential(*made)
        self.last_linear = nn.Linear(n, classes)

    def forward(self, x):
        return self.last_linear(self.features(x).mean((2, 3)))


def build(name, image, classes):
    """image: (channels, height, width)."""
    if name in TORCHVISION:
        return getattr(torchvision.models, name)(num_classes=classes)
    if name.startswith("perceptron:"):
        return Perceptron(int(name.split(":")[1]), image, classes)
    if name.startswith("vgg"):
        return vgg(name, image, classes)
    if name.startswith("resnet_cifar:"):
        return CifarResnet(int(name.split(":")[1]), image, classes)
    if name.startswith("resnet:"):
        blocks = list(map(int, name.split(":")[1].split(",")))
        return torchvision.models.ResNet(torchvision.models.resnet.Bottleneck, blocks, num_classes=classes)
    if name.startswith("resnet") and name.endswith("_cifar"):
        return resnet_cifar_stem(name, image, classes)
    if name.startswith("resnet"):
        return CifarResnet((int(name[6:]) - 2) // 6, image, classes)
    return {"mlp": Mlp, "lenet": Lenet, "alexnet": alexnet, "alexnet_tv": alexnet_tv,
            "inception4": Inception4}[name](image, classes)
