#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights to torchvision and back: tests/e2e/state_dict.py EBB FOLDER [NET...|all]

What `ebb train NET --save` writes loads into torchvision's network with strict=True, with its counts of batches; and
torchvision's own weights load into ebb, which gives back the same bits of every parameter. A step in between, whose
updates are left out (--save-gradients), moves the running statistics alone: as far as PyTorch's own step does.
"""
import json
import struct
import subprocess
import sys

import numpy as np
import torch
import torchvision

NAMES = {"alexnet_tv": "alexnet"}  # where torchvision calls it otherwise
DTYPES = {"F32": np.float32, "I64": np.int64}
QUICK = ["resnet18", "densenet121", "alexnet_tv"]
ALL = QUICK + ["resnet50", "vgg11_bn"]
CLASSES = 10


def save(path, tensors):
    header, content, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        array = tensor.detach().numpy()
        dtype = next(key for key, numpy_type in DTYPES.items() if array.dtype == numpy_type)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        content.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(content))


def load(path):
    with open(path, "rb") as file:
        data = file.read()
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + n])
    assert header.pop("__metadata__") == {"format": "pt"}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + n + offset for offset in entry["data_offsets"])
        array = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return tensors


def train(program, net, *options):
    command = [program, "train", net, "--classes", str(CLASSES), "--no-dropout", "--no-eval", "--machine", "machine",
               *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")


def batch_of(folder):
    """Two images of the size that torchvision's classifiers want, and a file of them."""
    images, labels = torch.randn(2, 3, 224, 224), torch.tensor([3, 7])
    save(folder + "/batch", {"images": images, "labels": labels})
    return images, f"tensors:{folder}/batch"


def differing(got, wanted, is_near):
    """The names of tensors that are not the same."""
    names = sorted(set(got) ^ set(wanted))
    for name in set(got) & set(wanted):
        a, b = got[name], wanted[name]
        fine = a.dtype == b.dtype and a.shape == b.shape
        if fine and is_near and a.dtype == torch.float32:
            fine = torch.allclose(a, b, rtol=1e-4, atol=1e-5)
        elif fine:
            fine = torch.equal(a, b)
        names += [] if fine else [name]
    return names


def cases(program, folder, net):
    """Names of cases, with what is wrong, "" for nothing."""
    torch.manual_seed(2)
    model = getattr(torchvision.models, NAMES.get(net, net))(num_classes=CLASSES)
    images, data = batch_of(folder)
    size = ["--data", data, "--batch", "2", "--optimizer", "sgd"]

    train(program, net, *size, "--steps", "3", "--save", folder + "/ours")
    try:
        model.load_state_dict(load(folder + "/ours"), strict=True)
        counts = {int(t) for name, t in model.state_dict().items() if name.endswith("num_batches_tracked")}
        yield "loads strictly", "" if counts <= {3} else f"counts of batches: {counts}"
    except RuntimeError as error:
        yield "loads strictly", str(error)

    save(folder + "/theirs", model.state_dict())
    train(program, net, *size, "--steps", "1", "--load", folder + "/theirs", "--save-gradients", folder + "/gradients",
          "--save", folder + "/back")
    back = load(folder + "/back")
    parameters = dict(model.named_parameters())
    yield "gives the same bits back", " ".join(differing({n: back.get(n) for n in parameters}, parameters, False))
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        model.train()(images)
    yield "statistics move alike", " ".join(differing(back, model.state_dict(), True))


def main():
    program, folder, nets = sys.argv[1], sys.argv[2], sys.argv[3:] or QUICK
    nets = ALL if nets == ["all"] else nets
    failed = False
    for net in nets:
        for name, wrong in cases(program, folder, net):
            print(f"{'not ok' if wrong else 'ok'} - {net}: {name}{': ' + wrong[:500] if wrong else ''}", flush=True)
            failed |= bool(wrong)
    return 1 if failed else 0


sys.exit(main())
