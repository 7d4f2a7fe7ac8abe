#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loss and every gradient of each network of the zoo beside PyTorch's, with the same weights and the same batch.

    tests/e2e/torch_compare.py EBB FOLDER [NET...]

Weights and batch go to ebb, and gradients come back, as safetensors in FOLDER. A tensor is right when its relative
distance (L2) from PyTorch's float32 is at most 1e-4, or where float32 itself is no better than that, when its distance
from PyTorch's float64 is at most twice that of PyTorch's float32. PyTorch's float32 is three computations of the
same thing (oneDNN on rows, on channels-last, and without oneDNN), for a ReLU at its kink falls either way by chance:
the nearest counts for the first measure, the widest for the second. Where a gradient is zero but for rounding (a
bias in front of batch-norm), there is nothing to be relative to: distances are taken relative to at least 1e-6 of
the norm of the whole gradient.
"""
import json
import struct
import subprocess
import sys

import numpy as np
import torch

import torch_nets

TOLERANCE = 1e-4
DTYPES = {"float32": "F32", "int32": "I32"}
DEFAULT = ["mlp", "lenet", "alexnet", "alexnet_tv", "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn",
           "vgg19_bn", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnet:1,1,2,1", "resnet20",
           "resnet32", "resnet44", "resnet56", "resnet110", "resnet_cifar:2", "densenet121", "inception4"]


def case(net):
    """(channels, height, width), batch, classes: small, but not so small that batch-norm has nothing to average."""
    if net in ("mlp", "lenet"):
        return (1, 28, 28), 8, 10
    if net.startswith("alexnet"):
        return (3, 99, 99), 4, 10
    if net == "inception4":
        return (3, 139, 139), 4, 10
    if net in ("resnet20", "resnet32", "resnet44", "resnet56", "resnet110") or net.startswith("resnet_cifar"):
        return (3, 32, 32), 8, 10
    return (3, 64, 64), 4, 10


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


def gradients(model, images, labels):
    """(loss, name -> gradient), as float64 arrays."""
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    return float(loss.detach()), {name: p.grad.double().numpy().copy() for name, p in model.named_parameters()}


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.train()


def of_torch(net, image, batch, classes):
    torch.manual_seed(1)
    model = without_dropout(torch_nets.build(net, image, classes))
    images, labels = torch.randn(batch, *image), torch.randint(0, classes, (batch,))
    weights = {name: t.numpy().copy() for name, t in model.state_dict().items() if t.dtype == torch.float32}
    start = {name: t.clone() for name, t in model.state_dict().items()}
    singles = []
    for layout, has_onednn in ((torch.contiguous_format, True), (torch.channels_last, True),
                               (torch.contiguous_format, False)):
        model.load_state_dict(start)
        with torch.backends.mkldnn.flags(enabled=has_onednn):
            singles.append(gradients(model.to(memory_format=layout), images.to(memory_format=layout), labels))
    model.load_state_dict(start)
    double = gradients(model.double(), images.double(), labels)
    return weights, images.numpy(), labels.numpy().astype(np.int32), singles, double


def of_ebb(program, folder, net, weights, images, labels):
    save(folder + "/weights", weights)
    save(folder + "/batch", {"images": images, "labels": labels})
    command = [program, "train", net, "--data", f"tensors:{folder}/batch", "--batch", str(len(labels)),
               "--classes", str(10), "--image", "%dx%d" % images.shape[2:], "--channels", str(images.shape[1]),
               "--load", folder + "/weights", "--steps", "1", "--no-dropout", "--no-eval",
               "--save-gradients", folder + "/gradients", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ebb: exit status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[0])["loss"], load(folder + "/gradients")


def norm(x):
    return float(np.linalg.norm(x))


def compare(ebb, singles, double):
    """Findings, the worst relative distance from float32, how many tensors needed the second measure."""
    found, worst, n_second = [], 0.0, 0
    floor = 1e-6 * np.sqrt(sum(norm(g) ** 2 for g in double[1].values()))
    if set(ebb[1]) != set(double[1]):
        return [f"gradients of other parameters: {sorted(set(ebb[1]) ^ set(double[1]))[:6]}"], 1.0, 0
    rows = [("loss", ebb[0], [single[0] for single in singles], double[0])]
    rows += [(name, ebb[1][name], [single[1][name] for single in singles], double[1][name]) for name in double[1]]
    for name, got, wanted, exact in rows:
        if np.shape(got) != np.shape(exact):
            found.append(f"{name}: shape {np.shape(got)}, not {np.shape(exact)}")
            continue
        got, scale = np.asarray(got, np.float64), max(norm(exact), floor)
        distance = min(norm(got - w) for w in wanted) / scale
        to_exact, of_single = norm(got - exact) / scale, max(norm(w - exact) for w in wanted) / scale
        worst = max(worst, distance)
        if distance > TOLERANCE:
            n_second += 1
            if not to_exact <= 2 * of_single:
                found.append(f"{name}: {distance:.2e} from float32, {to_exact:.2e} from float64; "
                             f"float32 is {of_single:.2e} from float64")
    return found, worst, n_second


def main():
    program, folder, nets = sys.argv[1], sys.argv[2], sys.argv[3:] or DEFAULT
    failed = False
    for net in nets:
        image, batch, classes = case(net)
        weights, images, labels, singles, double = of_torch(net, image, batch, classes)
        try:
            found, worst, n_second = compare(of_ebb(program, folder, net, weights, images, labels), singles, double)
        except (RuntimeError, OSError, ValueError) as error:
            found, worst, n_second = [str(error)], 1.0, 0
        print("\n".join("    " + finding for finding in found[:12]) + ("\n" if found else "") +
              f"{'not ok' if found else 'ok'} - {net} beside torch {torch.__version__}: worst {worst:.1e}, "
              f"{n_second} of {len(double[1]) + 1} by the measure of float64", flush=True)
        failed |= bool(found)
    return 1 if failed else 0


sys.exit(main())
