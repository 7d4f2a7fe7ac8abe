# SPDX-License-Identifier: Apache-2.0
"""Train one network in PyTorch for a few steps and print the seconds of each, one a line.

What PyTorch is measured with is its best: cudnn.benchmark, channels-last or not as the caller says (it tries both), SGD
with momentum through the fused or foreach form where the version has one, gradients set to None.

With --serve it stays: each line of stdin is a request, an object with `mode` (eager, checkpoint, compile), `batch`,
`steps` and perhaps `channels_last` (as --channels-last says) and `limit_bytes` of the whole card, and each is answered by a line, an object with `times` and
`peak_bytes` of the allocator, or with `error`. What the modes share is kept from request to request; the batch goes.
"""
import argparse
import json
import math
import sys
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


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


# ---- checkpoints --------------------------------------------------------------------------------

def pieces(model):
    """The modules of a chain that computes what the model does."""
    if isinstance(model, nn.Sequential):
        return list(model)
    if hasattr(model, "layer1"):  # ResNet
        blocks = [block for layer in (model.layer1, model.layer2, model.layer3, model.layer4) for block in layer]
        return [model.conv1, model.bn1, model.relu, model.maxpool, *blocks, model.avgpool, nn.Flatten(), model.fc]
    if hasattr(model, "avgpool"):  # VGG
        return [*model.features, model.avgpool, nn.Flatten(), *model.classifier]
    return [*model.features, nn.ReLU(True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), model.classifier]  # DenseNet


def segments(model):
    """About as many as there are modules in each. None begins with what would overwrite the input it needs again."""
    chain = pieces(model)
    length, found = max(1, math.isqrt(len(chain))), []
    for module in chain:
        if not found or (len(found[-1]) >= length and not isinstance(module, nn.ReLU)):
            found.append([])
        found[-1].append(module)
    return [nn.Sequential(*part) for part in found]


def with_checkpoints(model):
    parts = segments(model)

    def forward(x):
        for part in parts[:-1]:
            x = checkpoint(part, x, use_reentrant=False)
        return parts[-1](x)
    return forward


# ---- steps --------------------------------------------------------------------------------------

class Trainer:
    def __init__(self, args):
        self.args, self.device, self.forward = args, torch.device(args.device), {}
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.tf32
        torch.backends.cudnn.benchmark = True
        self.model, self.image = network(args.net)
        self.image = args.image or self.image
        self.model.train().to(self.device)
        self.lay_out(args.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.001, momentum=0.9)

    def lay_out(self, channels_last):
        self.channels_last = channels_last
        self.model.to(memory_format=torch.channels_last if channels_last else torch.contiguous_format)

    def mode(self, name):
        if name == "compile" and not hasattr(torch, "compile"):
            raise RuntimeError(f"PyTorch {torch.__version__} cannot compile")
        if name not in self.forward:
            made = {"eager": lambda m: m, "checkpoint": with_checkpoints, "compile": lambda m: torch.compile(m)}
            self.forward[name] = made[name](self.model)
        return self.forward[name]

    def steps(self, forward, batch, n):
        """Yields the seconds of each step."""
        images = torch.randn(batch, 3, self.image, self.image, device=self.device)
        labels = torch.randint(0, 1000, (batch,), device=self.device)
        if self.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        loss_fn = nn.CrossEntropyLoss()
        for _ in range(n):
            begin = time.perf_counter()
            self.optimizer.zero_grad(set_to_none=True)
            loss = loss_fn(forward(images), labels)
            loss.backward()
            self.optimizer.step()
            loss.item()
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            yield time.perf_counter() - begin

    def limit(self, limit_bytes):
        """What the card holds that is not the allocator's counts, as in ebb's --memory-includes-context."""
        free, total = torch.cuda.mem_get_info()
        context = total - free - torch.cuda.memory_reserved()
        torch.cuda.set_per_process_memory_fraction(max(0.0, limit_bytes - context) / total)

    def answer(self, request):
        on_card = self.device.type == "cuda"
        if on_card:
            torch.cuda.reset_peak_memory_stats()
            if "limit_bytes" in request:
                self.limit(request["limit_bytes"])
        try:
            self.lay_out(request.get("channels_last", self.args.channels_last))
            times = list(self.steps(self.mode(request["mode"]), request["batch"], request["steps"]))
            answer = {"times": times, "peak_bytes": torch.cuda.max_memory_reserved() if on_card else 0}
        except Exception as error:  # whatever a mode cannot do is its answer
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
        self.optimizer.zero_grad(set_to_none=True)
        if on_card:
            torch.cuda.empty_cache()
        return answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("net")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--image", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    trainer = Trainer(args)
    if args.serve:
        for line in sys.stdin:
            print(json.dumps(trainer.answer(json.loads(line))), flush=True)
    else:
        for seconds in trainer.steps(trainer.mode("eager"), args.batch, args.steps):
            print(f"{seconds:.6f}", flush=True)


if __name__ == "__main__":
    main()
