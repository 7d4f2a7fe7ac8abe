#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of sizes that vary, or of other operators each, plainly and within a budget: how many steps pass it, and what they take.

    EBB_LIBRARY=build/release/libebb.so PYTHON bench/torch_sizes.py [-o FILE.csv] [--steps 60] [--shares 70 50 35] [NAME...]

PYTHON has torch, torchvision and transformers; cc is needed, for the counter. The programs: `lengths`, a GPT-2 of 4 blocks with 4
sequences of 32 to 512 words; `pairs`, a translator with 8 pairs of 16 to 128 words each; `images`, ResNet-18 with 8 images of
64 to 160 points; `layers`, 8 layers of a transformer of which each step skips some; `trees`, 64 sequences of 24 vectors that are
combined in another order in each step. A row is a program within a share of what its largest step needs: the steps whose peak, as
tests/e2e/count_alloc.c counts it, is above the budget, plainly and with ebb; the time of all steps and of those of the second half
over that of the same steps plainly (of the processor, one thread). Each run is a process of its own.
"""
import argparse
import csv
import gc
import hashlib
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "python"), HERE]

from provenance import commit, processor
from torch_counted import Counter, preload
from torch_programs import in_a_process

COLUMNS = ("commit", "processor", "torch", "program", "share", "budget_bytes", "steps", "plain_above", "plain_peak_bytes", "above",
           "counted_peak_bytes", "recorded", "plans", "steps_unlike", "time", "time_second_half", "same_bits", "message")


def lengths(rng):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    model = GPT2LMHeadModel(GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=2000, n_positions=512))

    def loss_of():
        words = torch.randint(0, 2000, (4, rng.randint(32, 512)))
        return model(input_ids=words, labels=words).loss
    return model, loss_of


def pairs(rng):
    import torch
    from torch import nn
    model = nn.ModuleList([nn.Embedding(2000, 256), nn.Transformer(256, 4, 3, 3, 1024, batch_first=True), nn.Linear(256, 2000)])

    def loss_of():
        source, target = (torch.randint(0, 2000, (8, rng.randint(16, 128))) for _ in range(2))
        embed, transform, words_of = model
        found = words_of(transform(embed(source), embed(target)))
        return nn.functional.cross_entropy(found.flatten(0, 1), target.flatten())
    return model, loss_of


def images(rng):
    import torch
    import torchvision
    model = torchvision.models.resnet18(num_classes=10)

    def loss_of():
        width = 8 * rng.randint(8, 20)
        return torch.nn.functional.cross_entropy(model(torch.randn(8, 3, width, width)), torch.randint(0, 10, (8,)))
    return model, loss_of


def layers(rng):
    import torch
    from torch import nn
    model = nn.ModuleList(nn.TransformerEncoderLayer(256, 4, 1024, 0.1, batch_first=True) for _ in range(8))

    def loss_of():
        x = torch.randn(8, 128, 256)
        for layer in model:
            x = layer(x) if rng.random() < 0.75 else x
        return x.square().mean()
    return model, loss_of


def trees(rng):
    import torch
    from torch import nn
    model = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 256), nn.Tanh())

    def loss_of():
        nodes = list(torch.randn(24, 64, 256))
        while len(nodes) > 1:
            at = rng.randrange(len(nodes) - 1)
            nodes[at:at + 2] = [model(torch.cat(nodes[at:at + 2], 1))]
        return nodes[0].square().mean()
    return model, loss_of


PROGRAMS = {made.__name__: made for made in (lengths, pairs, images, layers, trees)}


def run(name, budget, args):
    """What a program does, in this process. budget: None: plainly."""
    import torch
    import ebb.torch
    torch.set_num_threads(1)
    counter = Counter()
    counter.peak()
    before = counter.bytes
    torch.manual_seed(7)
    model, loss_of = PROGRAMS[name](random.Random(7))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    fit = ebb.torch.Budget(budget, effort=1, quiet=True) if budget is not None else None
    told = {"losses": [], "peaks": [], "seconds": [], "torch": torch.__version__}

    def train():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        told["losses"].append(loss.item())
    try:
        for _ in range(args.steps):
            gc.collect()
            counter.peak()
            begin = time.process_time()
            if fit is None:
                train()
            else:
                with fit.step():
                    train()
            told["seconds"].append(time.process_time() - begin)
            told["peaks"].append(counter.peak() - before)
    except ebb.torch.DoesNotFit as error:
        told["error"], told["least"] = str(error).split("\n")[0], error.least_bytes
    if fit is not None:
        told.update(fit.summary(), recorded=fit._n_recorded)
    bits = b"".join(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes() for tensor in model.parameters())
    told["weights"] = hashlib.blake2b(bits).hexdigest()
    return told


def row(name, share, plain, args):
    budget = int(share / 100 * max(plain["peaks"]))
    got = in_a_process(run, name, budget, args)
    n_tries = 0
    while got.get("least") and n_tries < 5:  # a later step may need more than the least of an earlier one
        n_tries, budget = n_tries + 1, got["least"]
        got = in_a_process(run, name, budget, args)
    half = args.steps // 2
    is_same = (got["losses"], got["weights"]) == (plain["losses"], plain["weights"])
    return {"torch": plain["torch"], "program": name, "share": share, "budget_bytes": budget, "steps": args.steps,
            "plain_above": sum(peak > budget for peak in plain["peaks"]), "plain_peak_bytes": max(plain["peaks"]),
            "above": sum(peak > budget for peak in got["peaks"]), "counted_peak_bytes": max(got["peaks"]),
            **{key: got.get(key) for key in ("recorded", "plans", "steps_unlike")},
            "time": f"{sum(got['seconds']) / sum(plain['seconds']):.2f}",
            "time_second_half": f"{sum(got['seconds'][half:]) / sum(plain['seconds'][half:]):.2f}",
            "same_bits": "yes" if is_same else "no", "message": got.get("error", "")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", default="/dev/null")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--shares", type=float, nargs="+", default=[70, 50, 35])
    parser.add_argument("names", nargs="*", help=" ".join(PROGRAMS))
    args = parser.parse_args()
    preload()
    with open(args.output, "w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for name in args.names or PROGRAMS:
            plain = in_a_process(run, name, None, args)
            for share in args.shares:
                found = {"commit": commit(), "processor": processor(), **row(name, share, plain, args)}
                table.writerow(found)
                file.flush()
                print(" ".join(f"{key}={found[key]}" for key in COLUMNS[3:]), flush=True)


if __name__ == "__main__":
    main()
