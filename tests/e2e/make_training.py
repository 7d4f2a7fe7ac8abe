#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a trace as the import of a snapshot of PyTorch's makes it, of a transformer in training, without PyTorch.

    PYTHONPATH=python make_training.py OUT [--layers N] [--iterations N]

Roles are not told; call stacks have PyTorch's frames. Weights are there before the recording, without a stack but those
of the first layer. The allocator is make_snapshot.py's, one for each pool and stream; gradients are reduced on a second
stream. The last iteration runs out of memory in its backward pass.
"""
import argparse

from ebb import trace
from make_snapshot import MIB, Allocator

TELLS = (trace.TELLS_TIMES | trace.TELLS_ADDRESSES | trace.TELLS_SEGMENTS | trace.TELLS_STACKS | trace.TELLS_BEFORE)
HIDDEN = MIB // 8


class Training:
    def __init__(self, path, n_layers):
        self.writer = trace.Writer(path, TELLS)
        self.n_layers, self.now = n_layers, 0
        self.pools, self.block_of = {}, {}
        for key, value in (("source", "pytorch snapshot"), ("space.0", "cuda:0"), ("row.0", "stream 0"),
                           ("row.1", "stream 7")):
            self.writer.note(key, value)
        main = self.writer.frame(0, "<module>", "/home/me/train.py", 41)
        self.step = self.writer.frame(main, "train_step", "/home/me/train.py", 23)

    def stack(self, *frames):
        at = self.step
        for function, file, line in frames:
            at = self.writer.frame(at, function, file, line)
        return at

    def layer(self, i, what, line):
        call = ("_call_impl", "torch/nn/modules/module.py", 1784)
        return self.stack(call, ("forward", "/home/me/model.py", 30), call, (what, "/home/me/model.py", line + i % 2))

    def flush(self, allocator):
        """What the allocator did as events of the trace; the address of what it gave last."""
        given = None
        for action, address, size, (stack, before) in allocator.events:
            self.now += 700
            self.writer.stack(stack)
            if action == "alloc":
                given = address
                self.block_of[address] = self.writer.alloc(self.now, size, trace.UNKNOWN, 0, address, 0, before)
            elif action == "free_requested":
                self.writer.free(self.now, self.block_of.pop(address))
            elif action == "segment_alloc":
                self.writer.segment_alloc(0 if before else self.now, 0, address, size)
        allocator.events.clear()
        return given

    def alloc(self, size, stack, row=0, before=False):
        key = (size > MIB, row)
        if key not in self.pools:
            self.pools[key] = Allocator(0x7f0000000000 + (len(self.pools) << 36))
        self.writer.row(row)
        self.pools[key].alloc(size, (stack, before))
        return self.pools[key], self.flush(self.pools[key])

    def free(self, block):
        allocator, address = block
        allocator.free(address, (self.step, False))
        self.flush(allocator)

    def weights(self):
        convert = self.stack(("_apply", "torch/nn/modules/module.py", 900), ("convert", "torch/nn/modules/module.py", 1150))
        for i in range(self.n_layers):
            for size in (12 * HIDDEN, HIDDEN // 64):
                self.alloc(size, convert if i == 0 else 0, before=True)

    def iteration(self, state, runs_out):
        kept, gradients = [], []
        batch = self.alloc(HIDDEN // 2, self.stack(("fetch", "torch/utils/data/_utils/fetch.py", 52)))
        for i in range(self.n_layers):
            scores = self.alloc(9 * HIDDEN, self.layer(i, "forward", 60))
            kept += [self.alloc(n * HIDDEN, self.layer(i, "forward", line)) for n, line in ((8, 62), (16, 70), (4, 78))]
            kept.append(self.alloc(HIDDEN // 32, self.layer(i, "forward", 80)))
            self.free(scores)
        backward = self.stack(("backward", "torch/_tensor.py", 648))
        for i in reversed(range(self.n_layers)):
            for _ in range(4):
                temp = self.alloc(8 * HIDDEN, backward)
                self.free(kept.pop())
                self.free(temp)
            gradients += [self.alloc(12 * HIDDEN, backward), self.alloc(HIDDEN // 64, backward)]
            bucket = self.alloc(12 * HIDDEN, self.stack(("backward", "torch/_tensor.py", 648), ("allreduce", "ddp.py", 7)), row=1)
            self.free(bucket)
            if runs_out and i == self.n_layers // 2:
                self.writer.stack(backward)
                self.now += 700
                self.writer.mark(self.now, trace.ANNOTATION, self.writer.string("out of memory: 805306368 bytes asked for, "
                                 "150994944 left on the device"), 805306368)
                return
        adam = self.stack(("step", "torch/optim/adamw.py", 220), ("_init_group", "torch/optim/adamw.py", 130))
        if not state:
            state += [self.alloc(n, adam) for _ in range(self.n_layers) for n in (12 * HIDDEN, 12 * HIDDEN)]
        self.free(self.alloc(12 * HIDDEN, adam))
        for gradient in gradients:
            self.free(gradient)
        self.free(batch)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--iterations", type=int, default=3)
    arguments = parser.parse_args()
    training, state = Training(arguments.out, arguments.layers), []
    training.weights()
    for i in range(arguments.iterations):
        training.iteration(state, i + 1 == arguments.iterations)
    training.writer.close()


main()
