#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Placement files for the tests, from seeds: make_place.py FOLDER

Numbers come from a generator of its own, so that a file is the same under every Python.
"""
import os
import sys


class Numbers:
    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


def write(folder, name, columns, rows):
    with open(os.path.join(folder, name + ".csv"), "w", encoding="utf-8", newline="") as file:
        file.write(columns + "\n")
        file.writelines(",".join(map(str, row)) + "\n" for row in rows)


def random_rows(seed, n):
    numbers = Numbers(seed)
    for i in range(n):
        first = numbers.below(n)
        yield f"b{i}", first, first + 1 + numbers.below(20), 64 * (1 + numbers.below(100))


def training_rows(n_layers):
    """Activations that pile up and are freed backwards, with a gradient beside each."""
    for i in range(n_layers):
        size = 4096 * (1 + (n_layers - i) % 7)
        yield f"weights{i}", 0, 2 * n_layers + 1, 1024 * (1 + i % 5)
        yield f"activation{i}", i, 2 * n_layers - i, size
        yield f"gradient{i}", 2 * n_layers - i - 1, 2 * n_layers - i + 1, size


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    plain = "id,lower,upper,size"
    write(folder, "random", plain, random_rows(1, 60))
    write(folder, "training", plain, training_rows(12))
    write(folder, "aligned", plain + ",alignment",
          [(*row, (1, 96, 256)[i % 3]) for i, row in enumerate(random_rows(2, 40))])
    write(folder, "gaps", plain + ",gaps",
          [(name, first, last, size, f"{first + 1}-{last}@0:64" if i % 4 == 0 and last > first + 1 else "")
           for i, (name, first, last, size) in enumerate(random_rows(3, 40))])
    write(folder, "many", plain, random_rows(4, 120000))


main()
