#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb's plans beside Checkmate's and Moccasin's on the instances that were published with their results.

    bench/race_checkmate.py --build build/release [--monet FOLDER] [--moccasin FOLDER] [--effort 10]
                            [--within SECONDS] [-o OUT.csv]

FOLDER of --monet is github utsaslab/monet-schedules: PyTorch graphs with the plans that Gurobi found for Checkmate's
integer program in up to 24 hours. FOLDER of --moccasin is data/ of github haoming-codes/moccasin. Nothing is copied, and
a figure is the time with recomputation over the time without. `solver` is the other side's: of the plan in the pickle,
or typed in from the page that published it. Its budget is a limit on the load; ebb's peak is as placed, within the same.

A pickle runs what it names when it is loaded; here all but arrays and containers become empty objects. Needs numpy.
"""
import argparse
import collections
import importlib
import json
import math
import os
import pickle
import sys
import tempfile

from ebb_plan import plan_within, time_over
from provenance import written

GIB = 1 << 30
# Folder, name of a file, budgets in GiB (what is fixed is taken off).
MONET = [
    ("checkmate_r50_184_24hr", "checkmate_solution_resnet50_184_normal_%.2f.pkl", (5, 6, 7, 8, 9, 10)),
    ("checkmate_mobilenet_272_24hr", "checkmate_solution_mobilenet_v2_272_normal_%.2f.pkl", (5, 6, 7, 8, 9, 10)),
    ("checkmate_unet_11_24hr", "checkmate_solution_un_11_normal_%.2f.pkl", (5, 6, 7, 8, 9, 10)),
    ("checkmate_vgg16_176_24hr", "checkmate_solution_vgg16_176_normal_%.2f.pkl", (8, 9, 10)),
]
# The plans of this one were not published; its graph is that of another run, its costs a file's. The objectives are
# those of Gurobi's logs there.
GOOGLENET = ("monet_googlenet_320_24hr/solution_googlenet_320_inplace_normal_10.00.pkl", "cost_googlenet_320_normal.pkl",
             {5: None, 6: 1.0683, 7: 1.0539, 9: 1.0313, 10: 1.0222, 15: 1.0000})
# Share of the peak without a budget: time in Moccasin's table of results (Bartan et al., ICML 2023).
MOCCASIN = {
    "random_layered_n100_": {0.9: None, 0.8: None},
    "random_layered_n250_": {0.9: 1.009, 0.8: 1.049},
    "random_layered_n500_": {0.9: None, 0.8: None},
    "random_layered_n1000_": {0.9: 1.007, 0.8: 1.034},
}
COLUMNS = ["commit", "processor", "instance", "budget", "budget_bytes", "solver", "solver_s", "best", "best_bound",
           "best_peak_bytes", "best_effort", "best_s", "best_cpu_s"]


class Empty:
    """In place of the classes that a pickle names."""

    def __init__(self, *args, **kwargs):
        pass

    def __setstate__(self, state):
        self.__dict__.update(state if isinstance(state, dict) else {})


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if module.split(".")[0] == "numpy":
            return getattr(importlib.import_module(module), name)
        if module == "builtins" and name == "getattr":
            return lambda *_: Empty
        if module == "builtins" and name in ("list", "set", "dict", "int", "float"):
            return {"list": list, "set": set, "dict": dict, "int": int, "float": float}[name]
        return getattr(collections, name) if module == "collections" else type(name, (Empty,), {})


def load(path):
    with open(path, "rb") as file:
        return Unpickler(file).load()


def first(costs):
    return float(costs[0]) if len(costs) > 0 else 0.0


def monet_graph(info, costs):
    """The graph as node-link JSON, costs in hundredths of a millisecond, and the bytes that are always taken."""
    nodes = [{"id": i, "name": info.nodes[i].op, "cost_cpu": costs[i], "cost_ram": int(info.nodes[i].mem)}
             for i in range(info.size)]
    links = [{"source": int(a), "target": int(b)} for a, b, *_ in info.edge_list]
    return ({"directed": True, "multigraph": False, "graph": {}, "nodes": nodes, "links": links},
            int(info.nodes[info.size - 1].fixed_mem))


def monet_instances(folder):
    for sub, pattern, sizes in MONET:
        for gib in sizes:
            info, solution = load(os.path.join(folder, sub, pattern % gib))
            costs = [round(first(info.nodes[i].workspace_compute) * 100) for i in range(info.size)]
            graph, fixed = monet_graph(info, costs)
            took = float((solution.r.sum(axis=0) * costs).sum())
            yield (f"{info.model_name}_{info.bs}", f"{gib} GiB", graph, gib * GIB - fixed, took / sum(costs),
                   f"{float(solution.solve_time):.0f}")
    path, cost_path, told = GOOGLENET
    info, _ = load(os.path.join(folder, path))
    file_costs = load(os.path.join(folder, cost_path))[1]
    costs = [round(first(file_costs[i]) * 100) for i in range(info.size)]
    graph, fixed = monet_graph(info, costs)
    for gib, solver in told.items():
        yield f"{info.model_name}_{info.bs}", f"{gib} GiB", graph, gib * GIB - fixed, solver, ""


def moccasin_instances(folder):
    for name in sorted(os.listdir(folder)):
        told = next((MOCCASIN[begin] for begin in MOCCASIN if name.startswith(begin)), None)
        if told is None and not name.endswith("train_nx.json"):
            continue
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            graph = json.load(file)
        for share, solver in (told or {0.9: None, 0.8: None}).items():
            yield name.split(" ")[0].split("_w")[0], f"{share:.0%}", graph, share, solver, ""


class Planner:
    def __init__(self, args, folder):
        self.args = args
        self.graph = os.path.join(folder, "graph.json")
        self.machine = os.path.join(folder, "machine.json")
        with open(self.machine, "w", encoding="utf-8") as file:
            json.dump({"format": "ebb-machine", "version": 2, "rates": {"overhead_ns": 0}}, file)

    def plan(self, seconds, effort, *options):
        return plan_within(seconds, effort, os.path.join(self.args.build, "ebb"), self.graph, "--machine", self.machine,
                           "--host-memory", "0", *options)

    def row(self, instance):
        name, budget, graph, size, solver, seconds = instance
        with open(self.graph, "w", encoding="utf-8") as file:
            json.dump(graph, file)
        free = self.plan(None, 0, "--policy", "liveness")
        size = int(free["peak_planned_bytes"] * size) if size < 1 else size
        got = self.plan(self.args.within, self.args.effort, "--memory", str(size))
        return [name, budget, size, "" if solver is None else f"{solver:.4f}", seconds,
                *time_over(got, free["step_time_predicted_s"]), got.get("peak_planned_bytes", ""),
                got["effort"], f"{got['plan_s']:.1f}", f"{got['plan_cpu_s']:.1f}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--monet")
    parser.add_argument("--moccasin")
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--effort", type=int, default=10)
    parser.add_argument("--within", type=float, metavar="SECONDS", help="more effort, as long as a plan takes no longer")
    parser.add_argument("-o", dest="out")
    args = parser.parse_args()
    instances = [*(monet_instances(args.monet) if args.monet else ()),
                 *(moccasin_instances(args.moccasin) if args.moccasin else ())]
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(args, folder)
        for row in written(args.out, COLUMNS, map(planner.row, instances)):
            if row[3] and row[5] != "none":
                ratios.append(float(row[5]) / float(row[3]))
            if args.out:
                print(*row, sep="\t", flush=True)
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"best over solver: geometric mean {mean:.4f} of {len(ratios)}, worst {max(ratios):.4f}", file=sys.stderr)


if __name__ == "__main__":
    main()
