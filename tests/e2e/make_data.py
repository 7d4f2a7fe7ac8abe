#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small data sets in every format that `ebb train --data` reads: make_data.py FOLDER writes FOLDER/mnist,
FOLDER/cifar10, FOLDER/cifar100 and FOLDER/tensors.safetensors, the same bytes each time."""
import gzip
import json
import os
import random
import struct
import sys

N_TRAIN, N_TEST = 64, 16


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def mnist(folder, rng):
    for prefix, n in (("train", N_TRAIN), ("t10k", N_TEST)):
        images = struct.pack(">IIII", 0x803, n, 28, 28) + rng.randbytes(n * 28 * 28)
        labels = struct.pack(">II", 0x801, n) + bytes(rng.randrange(10) for _ in range(n))
        write(f"{folder}/{prefix}-images-idx3-ubyte", images)
        write(f"{folder}/{prefix}-labels-idx1-ubyte.gz", gzip.compress(labels, mtime=0))


def cifar(rng, n, label_bytes):
    return b"".join(bytes(rng.randrange(10) for _ in range(label_bytes)) + rng.randbytes(3072) for _ in range(n))


def safetensors(tensors):
    """tensors: name -> (dtype, shape, bytes)."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


def main():
    top, rng = sys.argv[1], random.Random(5)
    mnist(top + "/mnist", rng)
    for number in range(1, 6):
        write(f"{top}/cifar10/data_batch_{number}.bin", cifar(rng, N_TRAIN // 4, 1))
    write(f"{top}/cifar10/test_batch.bin", cifar(rng, N_TEST, 1))
    write(f"{top}/cifar100/train.bin", cifar(rng, N_TRAIN, 2))
    write(f"{top}/cifar100/test.bin", cifar(rng, N_TEST, 2))
    images = struct.pack(f"<{8 * 784}f", *(rng.gauss(0, 1) for _ in range(8 * 784)))
    labels = struct.pack("<8i", *(rng.randrange(10) for _ in range(8)))
    both = {"images": ("F32", [8, 1, 28, 28], images), "labels": ("I32", [8], labels)}
    write(top + "/tensors.safetensors", safetensors(both))
    both["labels"] = ("I32", [8], struct.pack("<8i", 0, 1, 2, 3, 10, 5, 6, 7))
    write(top + "/label.safetensors", safetensors(both))


main()
