#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss and every gradient of one step of a backend beside another's, by default ref's.

    tests/card/beside_ref.py EBB FOLDER BACKEND [OTHER]

A tensor is right when its relative distance (L2) is at most 1e-4, and so is the loss. Networks with batch-norm are left
to torch_compare.py, which makes weights for which that can be asked: with weights as they are made, thousands of values
lie at a ReLU's kink, and one that falls the other way moves all gradients by more.
"""
import array
import json
import math
import os
import struct
import subprocess
import sys

TOLERANCE = 1e-4
NETS = [("mlp", "28x28"), ("lenet", "28x28"), ("alexnet", "67x67"), ("vgg11", "32x32")]
SMALL = 2  # of them are a rehearsal


def load(path):
    """The tensors of a safetensors file, as arrays of float."""
    with open(path, "rb") as file:
        data = file.read()
    (n,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            tensors[name] = array.array("f", data[8 + n + begin:8 + n + end])
    return tensors


def step(program, folder, backend, net, image):
    path = f"{folder}/gradients-{backend}"
    command = [program, "train", net, "--image", image, "--batch", "4", "--classes", "10", "--steps", "1", "--seed", "3",
               "--no-dropout", "--no-eval", "--backend", backend, "--save-gradients", path, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ebb: exit status {done.returncode}: {done.stderr.strip()}")
    return {"loss": array.array("f", [json.loads(done.stdout.splitlines()[0])["loss"]]), **load(path)}


def apart(got, wanted):
    distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, wanted)))
    return distance / max(math.sqrt(sum(b * b for b in wanted)), 1e-30)


def compare(program, folder, backend, other, net, image):
    try:
        got, wanted = (step(program, folder, name, net, image) for name in (backend, other))
    except (RuntimeError, OSError, ValueError, IndexError, KeyError, struct.error) as error:
        print(f"    {error}\nnot ok - {net} beside {other}")
        return False
    far = {name: apart(got[name], wanted[name]) for name in wanted if len(got.get(name, ())) == len(wanted[name])}
    worst = max(far, key=far.get)
    good = set(far) == set(got) == set(wanted) and not far[worst] > TOLERANCE and not math.isnan(sum(far.values()))
    print(f"{'ok' if good else 'not ok'} - {net} beside {other}: {len(far)} of {len(wanted)} tensors, "
          f"worst {far[worst]:.1e} ({worst})", flush=True)
    return good


def main():
    program, folder, backend, other = (sys.argv[1:] + ["ref"])[:4]
    nets = NETS[:SMALL] if os.environ.get("SMALL") else NETS
    return 0 if all([compare(program, folder, backend, other, *net) for net in nets]) else 1


sys.exit(main())
