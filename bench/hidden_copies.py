#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of the copies' time is hidden behind computing, as planned and in a recorded iteration, on the backend `cpu`.

    bench/hidden_copies.py --disk DIR [--ebb build/release/ebb] [--policies best,swap] [--memory 60%] [-o FILE.csv] [NET...]

Networks as in policies_executed.py. Copies go to the host's memory, and then, with --host-memory 0, to a file in DIR. A
copy is exposed while nothing is computed; the hidden share is what is left of the copies' time, those of several engines
added up. Predicted, what is exposed is the time that the plan waits for copies.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from policies_executed import NETS
from provenance import written

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = ["commit", "processor", "network", "policy", "tier", "budget", "copies_predicted_s", "hidden_predicted", "copies_s",
           "hidden", "step_predicted_s", "step_s"]


def copies_of(path):
    """(copies' time, part of it while nothing computed) in seconds, of a recorded iteration."""
    sys.path.insert(0, os.path.join(HERE, "..", "tests", "e2e"))
    from trace_reader import Trace
    changes = []  # (time, +1 or -1, is a copy)
    for event in Trace(path).events:
        kind, _, edge = event["kind"].partition("_")
        if kind in ("step", "copy"):
            changes.append((event["time"], 1 if edge == "begin" else -1, kind == "copy"))
    copying = exposed = open_copies = open_steps = last = 0
    for at, change, is_copy in sorted(changes):
        copying += (at - last) * open_copies
        exposed += (at - last) * (open_copies > 0 and open_steps == 0)
        open_copies += change * is_copy
        open_steps += change * (not is_copy)
        last = at
    return copying * 1e-9, exposed * 1e-9


def share(copying, exposed):
    return f"{1 - exposed / copying:.4f}" if copying > 0 else "nothing is copied"


def ebb(args, *words):
    """What it prints."""
    done = subprocess.run([args.ebb, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def row_of(args, folder, net, policy, tier):
    tiers = ["--host-memory", "0", "--disk", args.disk] if tier == "file" else []
    words = [net, *NETS[net], "--optimizer", "sgd", "--machine", os.path.join(folder, "machine.json"), "--memory", args.memory,
             "--policy", policy, *tiers, "--json"]
    plan = json.loads(ebb(args, "plan", *words))
    trace = os.path.join(folder, "trace")
    steps = ebb(args, "train", *words, "--data", "synthetic", "--steps", "6", "--record", trace).splitlines()
    copying, exposed = copies_of(trace)
    planned = sum(engine["busy_predicted_s"] for engine in plan["engines"] if engine["engine"] not in ("compute", "again"))
    times = sorted(step["time_s"] for step in map(json.loads, steps) if "time_s" in step)
    return [net, policy, tier, args.memory, f"{planned:.6f}", share(planned, plan["stall_time_predicted_s"]), f"{copying:.6f}",
            share(copying, exposed), f"{plan['step_time_predicted_s']:.6f}", f"{times[len(times) // 2]:.6f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nets", nargs="*", metavar="NET")
    parser.add_argument("--disk", required=True)
    parser.add_argument("--ebb", default="build/release/ebb")
    parser.add_argument("--policies", default="best,swap")
    parser.add_argument("--memory", default="60%")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ebb(args, "probe", "--disk", args.disk, "-o", os.path.join(folder, "machine.json"))
        rows = (row_of(args, folder, net, policy, tier) for net in args.nets or NETS for policy in args.policies.split(",")
                for tier in ("host", "file"))
        for row in written(args.out, COLUMNS, rows):
            print(*row, sep="\t", flush=True)


if __name__ == "__main__":
    main()
