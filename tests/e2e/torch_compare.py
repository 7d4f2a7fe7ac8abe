#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loss and every gradient of each network of the zoo beside PyTorch's, with the same weights and the same batch.

    tests/e2e/torch_compare.py EBB FOLDER quick|all|NET...

Weights and batch go to ebb, and gradients come back, as safetensors in FOLDER. A tensor is right when its relative
distance (L2) from PyTorch's float32 is at most 1e-4; or, where float32 itself is no better, when its distance from
PyTorch's float64 is at most twice that of PyTorch's float32. A bias in front of batch-norm, whose gradient is zero but
for rounding, is always judged by the second measure.

A ReLU at its kink falls either way by chance, in PyTorch too. Where one computation of PyTorch's leaves a tensor wrong,
float32 is therefore three (oneDNN on rows, on channels-last, and without oneDNN): the nearest counts for the
first measure, the widest for the second. The line of a network says for how many tensors that was needed.

What this can see depends on the state of the network. As it is made, with batch-norm's weights one and biases zero,
each ReLU has half of its values on either side and thousands at its kink: one that falls the other way moves every
gradient in front of it by a per cent, in any library, and a wrong gradient hides behind that. So weights are random and
channels lean: their mean lies 2 to 3 deviations beside zero (1.5 to 2.5 for small images, which have fewer values), up
or down, the same way in all layers, so that residual sums lean as well. Nearly everything is within 1e-5 then, and
errors show: the last case makes one of 1e-3 in each tensor of a network, one after the other.
"""
import functools
import json
import os
import struct
import subprocess
import sys

import numpy as np
import torch

import torch_nets

TOLERANCE = 1e-4
CLASSES = 10
DTYPES = {"float32": "F32", "int32": "I32"}
SHOWN = 12

# Images are as small as leaves batch-norm 16 values to average at the network's end; ebb's default batch is 4.
SMALL, COLOR = (1, 28, 28), (3, 32, 32)
IMAGES = {"mlp": SMALL, "perceptron:300": SMALL, "lenet": SMALL, "alexnet": (3, 99, 99), "alexnet_tv": (3, 99, 99),
          "densenet121": (3, 64, 64), "inception4": (3, 107, 107), "resnet18": (3, 48, 48), "resnet34": (3, 48, 48),
          "resnet50": (3, 48, 48), "resnet101": (3, 48, 48), "resnet152": (3, 48, 48), "resnet:1,1,2,1": (3, 48, 48),
          "resnet18_cifar": (3, 16, 16), "resnet34_cifar": (3, 16, 16), "resnet50_cifar": (3, 16, 16),
          "resnet101_cifar": (3, 16, 16)}
BATCH = 4
QUICK = ["mlp", "perceptron:300", "lenet", "alexnet", "alexnet_tv", "vgg11", "vgg13_bn", "resnet18", "resnet50",
         "resnet:1,1,2,1", "resnet20", "resnet_cifar:2", "resnet18_cifar", "vgg11_cifar", "densenet121", "inception4"]
ALL = QUICK + ["vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg16_bn", "vgg19_bn", "resnet34", "resnet101", "resnet152",
               "resnet32", "resnet44", "resnet56", "resnet110", "resnet34_cifar", "resnet50_cifar", "resnet101_cifar",
               "vgg13_cifar", "vgg16_cifar", "vgg19_cifar"]


def save(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    (n,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = np.frombuffer(data[8 + n + begin:8 + n + end], np.float32).reshape(entry["shape"])
    return tensors


def settle_conv(leans, conv, _, output):
    """The hook of a convolution that no batch-norm follows: its weights and biases become such that its result is
    what it would be behind one."""
    n = conv.out_channels
    mean, deviation = output.mean((0, 2, 3)), output.std((0, 2, 3))
    scale = torch.empty(n).uniform_(0.5, 1.5) / deviation
    shift = scale * (deviation * leans(n) - mean)
    conv.weight.mul_(scale.view(-1, 1, 1, 1))
    conv.bias.mul_(scale).add_(shift)
    return output * scale.view(1, -1, 1, 1) + shift.view(1, -1, 1, 1)


def settle_last(last, _, output):
    last.weight.div_(output.std())
    last.bias.div_(output.std())


def make_leans(least):
    """A function of a number of channels: in how many deviations of its values each one leans."""
    sign = torch.randint(0, 2, (4096,)) * 2 - 1
    return lambda n: sign[:n] * torch.empty(n).uniform_(least, least + 1)


def prepare(model, images, leans):
    """No dropout, weights as the head of this file says, and a softmax that is not saturated."""
    modules = list(model.modules())
    has_norm = any(isinstance(module, torch.nn.BatchNorm2d) for module in modules)
    hooks = [[m for m in modules if isinstance(m, torch.nn.Linear)][-1].register_forward_hook(settle_last)]
    for module in modules:
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            module.bias.copy_(module.weight * leans(module.num_features))
        elif isinstance(module, torch.nn.Conv2d) and not has_norm:
            hooks.append(module.register_forward_hook(functools.partial(settle_conv, leans)))
    model.train()(images)
    for hook in hooks:
        hook.remove()
    return model


class Reference:
    """A network in PyTorch with weights and a batch; losses and gradients of it as they are asked for. A result is
    {"loss": number, parameter: gradient}."""

    def __init__(self, net):
        torch.manual_seed(1)
        image = IMAGES.get(net, COLOR)
        self.images, self.labels = torch.randn(BATCH, *image), torch.randint(0, CLASSES, (BATCH,))
        with torch.no_grad():
            self.net, self.model = net, prepare(torch_nets.build(net, image, CLASSES), self.images,
                                               make_leans(1.5 if image == COLOR else 2.0))
        self.start = {name: t.clone() for name, t in self.model.state_dict().items()}

    def run(self, layout=torch.contiguous_format, kind=torch.float32, has_onednn=True):
        self.model.load_state_dict(self.start)
        self.model.zero_grad()
        model, images = self.model.to(kind, memory_format=layout), self.images.to(kind, memory_format=layout)
        with torch.backends.mkldnn.flags(enabled=has_onednn):
            loss = torch.nn.functional.cross_entropy(model(images), self.labels)
            loss.backward()
        made = {name: p.grad.numpy().copy() for name, p in model.named_parameters()}
        self.model.float()
        return {"loss": loss.detach().numpy(), **made}

    @functools.cached_property
    def single(self):
        return self.run()

    @functools.cached_property
    def others(self):
        return [self.run(torch.channels_last), self.run(has_onednn=False)]

    @functools.cached_property
    def exact(self):
        return self.run(kind=torch.float64)


def of_ebb(program, folder, reference):
    save(folder + "/weights", {name: t.numpy() for name, t in reference.start.items() if t.dtype == torch.float32})
    save(folder + "/batch", {"images": reference.images.numpy(), "labels": reference.labels.numpy().astype(np.int32)})
    _, channels, height, width = reference.images.shape
    command = [program, "train", reference.net, "--data", f"tensors:{folder}/batch", "--batch", str(BATCH),
               "--classes", str(CLASSES), "--image", f"{height}x{width}", "--channels", str(channels),
               "--load", folder + "/weights", "--steps", "1", "--no-dropout", "--no-eval",
               "--save-gradients", folder + "/gradients", "--json", *os.environ.get("ON", "").split()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ebb: exit status {done.returncode}: {done.stderr.strip()}")
    return {"loss": json.loads(done.stdout.splitlines()[0])["loss"], **load(folder + "/gradients")}


def apart(a, b):
    return float(np.linalg.norm(np.subtract(a, b, dtype=np.float64).ravel()))


def norm(x):
    return apart(x, 0.0)


class Comparison:
    """What differs between a result of ebb and a reference: findings, and figures for the line that is printed."""

    def __init__(self, got, reference):
        wanted = reference.single
        self.findings, self.worst, self.worst_name = [], 0.0, ""
        self.n_second, self.n_chance, self.ratio = 0, 0, 0.0
        if set(got) != set(wanted):
            self.findings.append(f"other parameters: {sorted(set(got) ^ set(wanted))[:SHOWN]}")
            return
        for name in wanted:
            self.judge(name, got[name], reference)

    def judge(self, name, got, reference):
        wanted = reference.single[name]
        if np.shape(got) != np.shape(wanted):
            self.findings.append(f"{name}: shape {np.shape(got)}, not {np.shape(wanted)}")
            return
        distance = apart(got, wanted) / norm(wanted)
        if distance > TOLERANCE:
            self.judge_beside_float64(name, got, reference)
        elif distance > self.worst:
            self.worst, self.worst_name = distance, name

    def judge_beside_float64(self, name, got, reference):
        exact = reference.exact[name]
        to_exact, of_single = apart(got, exact), apart(reference.single[name], exact)
        self.n_second += 1
        if to_exact > 2 * of_single:
            self.n_chance += 1
            singles = [single[name] for single in reference.others]
            if min(apart(got, single) for single in singles) <= TOLERANCE * norm(exact):
                return
            of_single = max(of_single, *(apart(single, exact) for single in singles))
        self.ratio = max(self.ratio, to_exact / max(of_single, 1e-30))
        if not to_exact <= 2 * of_single:
            scale = norm(exact)
            self.findings.append(f"{name}: {to_exact / scale:.2e} from float64, where float32 is "
                                 f"{of_single / scale:.2e} from it")

    def figures(self):
        text = f"worst {self.worst:.1e} ({self.worst_name})"
        if self.n_second > 0:
            text += f", {self.n_second} by float64 at {self.ratio:.2f} of float32's distance"
        if self.n_chance > 0:
            text += f" ({self.n_chance} with PyTorch's other ways)"
        return text


def report(name, findings, figures):
    for finding in findings[:SHOWN]:
        print("    " + finding)
    print(f"{'not ok' if findings else 'ok'} - {name}: {figures}", flush=True)
    return not findings


def compare_net(program, folder, net):
    reference = Reference(net)
    name = "%s %dx%dx%d" % (net, *IMAGES.get(net, COLOR))
    try:
        got = of_ebb(program, folder, reference)
    except (RuntimeError, OSError, ValueError) as error:
        return report(name, [str(error)], "no result")
    result = Comparison(got, reference)
    return report(name, result.findings, f"{len(got)} tensors, {result.figures()}")


def check_that_it_can_fail(program, folder, net):
    """An error of 1e-3 in any one tensor is found, and no other."""
    reference = Reference(net)
    got, blind = of_ebb(program, folder, reference), []
    for name in got:
        result = Comparison({**got, name: got[name] * np.float32(1.001)}, reference)
        if len(result.findings) != 1 or not result.findings[0].startswith(name + ":"):
            blind.append(f"{name}: {len(result.findings)} findings where it is wrong by 1e-3")
    return report(f"an error of 1e-3 in each tensor of {net}", blind, f"{len(got) - len(blind)} of {len(got)} seen")


def check_names(program):
    """Each network that ebb names is in the list above."""
    text = subprocess.run([program, "train", "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
    named = [line.split()[0] for line in text.split("\nnetworks:\n")[1].split("\n\n")[0].splitlines()]
    have = {net.split(":")[0] for net in ALL}
    return report("networks of the zoo", [f"{n}: not compared" for n in named if n.split(":")[0] not in have],
                  f"{len(named)} are known here")


def main():
    program, folder, nets = sys.argv[1], sys.argv[2], sys.argv[3:]
    nets = {"quick": QUICK, "all": ALL}.get(nets[0], nets)
    print(f"torch {torch.__version__}, batch {BATCH}")
    good = [check_names(program)] + [compare_net(program, folder, net) for net in nets]
    good.append(check_that_it_can_fail(program, folder, "resnet_cifar:2"))
    left_out = [net for net in ALL if net not in nets]
    if left_out:
        print(f"ok - networks left out # SKIP NETS=all compares these too: {' '.join(left_out)}")
    return 0 if all(good) else 1


sys.exit(main())
