#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the host does for a training step, beside computing: plainly, with rivals, with ebb.torch.Budget.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_host.py [-o FILE.csv]

PYTHON has torch and transformers. The network is a GPT-2 as deep as the small one (12 blocks) whose tensors are so small
that computing takes next to nothing. So a step's time is that of calling operators, which a card has to wait for where the
host is slower than it. One thread; the fastest of eight steps, in the time of that thread. "empty mode" calls
Python for each operator, and nothing else.
"""
import argparse
import contextlib
import gc
import os
import sys
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), HERE]

from provenance import written

COLUMNS = ("commit", "processor", "torch", "way", "step_ms", "times_plain", "recomputed_ops", "moved_out_bytes", "is_whole")
N_UNTIMED, N_TIMED = 4, 8
BUDGETS = [("70%", None, False), ("50%", None, False), ("60%", "ram", False), ("60%", "ram", True), ("45%", "ram", True)]


def network():
    import torch
    import transformers
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_layer=12, n_embd=64, n_head=2, vocab_size=200, n_positions=64, use_cache=False, bos_token_id=None, eos_token_id=None))
    return model, torch.optim.AdamW(model.parameters(), 1e-4, foreach=True), torch.randint(0, 200, (4, 48))


def fastest(around, model, optimizer, tokens):
    seconds = []
    for _ in range(N_UNTIMED + N_TIMED):
        begin = time.thread_time()
        with around():
            optimizer.zero_grad()
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
        seconds.append(time.thread_time() - begin)
    return min(seconds[N_UNTIMED:])


def checkpointed():
    from torch_budget import checkpoint_blocks
    found = network()
    checkpoint_blocks(found[0].transformer.h)
    return contextlib.nullcontext, None, found


def budget(share, spill, moves_all):
    import ebb.torch
    found = network()
    fit = ebb.torch.Budget(share, spill=spill, **dict(zip(("model", "optimizer"), found if moves_all else ())))
    return fit.step, fit, found


def ways():
    """(name, what makes (what is around each step, the Budget or None, network)) of each: a network lives no longer than its
    way, for ebb counts all tensors."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Empty(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **kwargs or {})

    yield "plain", lambda: (contextlib.nullcontext, None, network())
    yield "empty mode", lambda: (Empty, None, network())
    yield "save_on_cpu", lambda: (torch.autograd.graph.save_on_cpu, None, network())
    yield "checkpoint per block", checkpointed
    for share, spill, moves_all in BUDGETS:
        name = f"ebb at {share.replace('%', ' %')}{', copies' if spill else ''}{', all may move' if moves_all else ''}"
        yield name, lambda share=share, spill=spill, moves_all=moves_all: budget(share, spill, moves_all)


def timed(make):
    around, fit, found = make()
    seconds = fastest(around, *found)
    if fit is None:
        return seconds, "", "", ""
    told = fit.summary()
    return seconds, told["recomputed_ops"], told["moved_out_bytes"], fit._current.recording.is_whole


def rows():
    import torch
    plain = None
    for name, make in ways():
        seconds, *told = timed(make)
        gc.collect()
        plain = plain or seconds
        yield [torch.__version__, name, f"{1e3 * seconds:.4g}", f"{seconds / plain:.4g}", *told]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch
    torch.set_num_threads(1)
    for row in written(args.output, COLUMNS, rows()):
        print(*row[3:], sep=", ", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
