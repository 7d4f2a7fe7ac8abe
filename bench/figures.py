#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of 'Pinpointing the memory behaviours of DNN training' for ebb's own runs, as docs/behaviours.md
shows them, and its table of perceptrons; and the README's picture of a budget at work.

    bench/figures.py [--ebb PROGRAM] [-o FOLDER] [--only budget|gantt|intervals|scatter|breakdown|table]

Every number is `ebb report`'s: pictures are drawn from the object that a report's page holds. Times are measured on the
backend cpu; bytes over batch sizes and depths come from the backend dry, which computes nothing and has them exact.
Needs python3-matplotlib; tools/figures.sh sees to that.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.collections import PatchCollection  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402

plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ebb", "font.family": "sans-serif"})
MIB = 1 << 20
COLOURS = {"parameter": "#2f7fc4", "buffer": "#56b4e9", "gradient": "#e69f00", "activation": "#1f9e77",
           "optimizer_state": "#c26aa0", "temp": "#8c8c8c", "input": "#d95f30", "other": "#a89a1e",
           "workspace": "#8066cc", "unknown": "#6f8296"}
# Small enough for two cores, large enough to be of their kind.
RUNS = {"mlp": ["--batch", "64"], "alexnet": ["--batch", "8"], "vgg16": ["--batch", "2"], "resnet50": ["--batch", "2"]}
BATCHES = {"mlp": [1, 16, 64, 256, 1024, 4096], "alexnet": [1, 8, 32, 128, 256], "vgg16": [1, 4, 16, 32, 64],
           "resnet50": [1, 4, 16, 32, 64]}
BUDGET = "30%"
DEPTHS = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
# Inputs, hidden units, and the authors' intermediates in MiB and per cent of all (SINGA, examples/mlp).
TABLE = [(400, 3, 0.0367, 82.66), (3200, 3, 0.293, 82.75), (3200, 24, 1.319, 95.54), (3200, 192, 9.525, 99.33),
         (3200, 1536, 75.18, 99.88), (3200, 12288, 600.38, 99.95), (6400, 12288, 1200.53, 99.97),
         (12800, 12288, 2400.8, 99.98), (25600, 12288, 4801.4, 99.985)]


def ebb(*arguments):
    environment = dict(os.environ, OMP_WAIT_POLICY="passive")
    done = subprocess.run([options.ebb, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"ebb {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def record(net, *arguments, n_recorded=1):
    """What the page of a run's report holds."""
    trace, page = os.path.join(folder, "trace"), os.path.join(folder, "page.html")
    ebb("train", net, *arguments, "--steps", str(n_recorded + 1), "--record", trace, "--record-steps", str(n_recorded))
    ebb("report", trace, "-o", page)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    return json.loads(text.split('id="ebb-data">', 1)[1].split("</script>", 1)[0])


def measured(net):
    """Five iterations on cpu, run once for all figures."""
    if net not in measured.kept:
        measured.kept[net] = record(net, *RUNS[net], "--backend", "cpu", n_recorded=5)
    return measured.kept[net]


measured.kept = {}


def save(figure, name):
    path = os.path.join(options.out, name)
    figure.savefig(path, bbox_inches="tight", dpi=80, metadata={"Date": None})
    plt.close(figure)
    print(path)


# ---- figures -----------------------------------------------------------------------------------


def draw_budget():
    """Live bytes over one iteration, on the same scale: each tensor freed after its last use, and inside a budget."""
    net, options_of_net = "resnet50", ["--batch", "16", "--image", "128x128", "--backend", "cpu"]
    runs = [("freed after the last use", record(net, *options_of_net)),
            (f"--memory {BUDGET}", record(net, *options_of_net, "--memory", BUDGET))]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for axis, (title, data) in zip(axes, runs):
        curve = data["curve"]
        # The fullest moment of each hundredth is enough to see.
        fullest = {}
        for i, total in enumerate(map(sum, zip(*curve["live"].values()))):
            bin_idx = 100 * curve["x"][i] // data["end"]
            fullest[bin_idx] = max(fullest.get(bin_idx, (0, i)), (total, i))
        kept = [i for _, i in fullest.values()]
        live = {role: [ys[i] / MIB for i in kept] for role, ys in curve["live"].items() if any(ys)}
        axis.stackplot([100 * curve["x"][i] / data["end"] for i in kept], live.values(), labels=live,
                       colors=[COLOURS[role] for role in live], linewidth=0)
        axis.set(xlim=(0, 100), xlabel="% of the iteration", title=f"{title}: {max(map(sum, zip(*live.values()))):.0f} MiB")
    axes[0].set(ylabel="memory in use, MiB")
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=8, frameon=False, columnspacing=1)
    save(figure, "budget.svg")


def draw_gantt():
    figure, axes = plt.subplots(2, 2, figsize=(11, 7))
    for net, axis in zip(RUNS, axes.flat):
        data = measured(net)
        blocks, born = data["blocks"], 0
        rectangles, colours = [], []
        for i, delta in enumerate(blocks["born"]):
            born += delta
            rectangles.append(Rectangle((born / 1e9, blocks["y"][i] / MIB), blocks["life"][i] / 1e9,
                                        blocks["size"][i] / MIB))
            colours.append(COLOURS[data["roles"][blocks["role"][i]]])
        axis.add_collection(PatchCollection(rectangles, facecolors=colours, linewidths=0, rasterized=True))
        for part in data["parts"]:
            if part["kind"] == "iteration":
                axis.axvline(part["x"] / 1e9, color="black", linewidth=0.5)
        axis.set(xlim=(0, data["end"] / 1e9), ylim=(0, blocks["top"] / MIB), xlabel="seconds", ylabel="address, MiB",
                 title=f"{net}, {' '.join(RUNS[net]).lstrip('-')}")
    used = {role for net in RUNS for role in measured(net)["curve"]["live"]}
    handles = [Rectangle((0, 0), 1, 1, color=COLOURS[role]) for role in COLOURS if role in used]
    figure.legend(handles, [role for role in COLOURS if role in used], loc="lower center", ncol=8, frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    save(figure, "behaviours-gantt.svg")


def violin_of(cdf):
    """Density over the logarithm of the interval, from points of its distribution."""
    xs = [math.log10(max(x, 1) / 1e3) for x in cdf[0::2]]
    middles, densities = [], []
    for i in range(1, len(xs)):
        if xs[i] > xs[i - 1]:
            middles.append((xs[i] + xs[i - 1]) / 2)
            densities.append((cdf[2 * i + 1] - cdf[2 * i - 1]) / (xs[i] - xs[i - 1]))
    most = max(densities)
    return middles, [density / most for density in densities]


def draw_intervals():
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4))
    for n, (net, colour) in enumerate(zip(RUNS, ["#2f7fc4", "#e69f00", "#1f9e77", "#c26aa0"])):
        everything = measured(net)["intervals"]["pairs"][0]
        cdf = everything["cdf"]
        left.plot([max(x, 1) / 1e3 for x in cdf[0::2]], [100 * y for y in cdf[1::2]], label=net, color=colour)
        ys, widths = violin_of(cdf)
        right.fill_betweenx(ys, [n - 0.4 * w for w in widths], [n + 0.4 * w for w in widths], color=colour)
        right.plot([n], [math.log10(everything["p50"] / 1e3)], "o", color="white", markeredgecolor="black")
    left.axvline(25, color="black", linewidth=0.8, linestyle="--")
    left.set(xscale="log", xlabel="interval, microseconds (dashed: 25)", ylabel="% of intervals are at most", ylim=(0, 101))
    left.legend(frameon=False)
    low, high = (int(x) for x in right.get_ylim())
    right.set(xticks=range(len(RUNS)), xticklabels=RUNS, yticks=range(low, high + 1),
              yticklabels=[f"$10^{{{y}}}$" for y in range(low, high + 1)], ylabel="interval, microseconds (dot: median)")
    figure.tight_layout()
    save(figure, "behaviours-intervals.svg")


def draw_scatter():
    figure, axes = plt.subplots(2, 2, figsize=(11, 7))
    for net, axis in zip(RUNS, axes.flat):
        data = measured(net)
        cells, blocks = data["intervals"]["density"], data["blocks"]
        xs = [2 ** ((x + 0.5) / 4) / 1e3 for x in cells[0::3]]
        ys = [2 ** ((y + 0.5) / 4) / MIB for y in cells[1::3]]
        axis.scatter(xs, ys, s=[4 + 6 * math.log2(1 + n) for n in cells[2::3]], color="#2f7fc4", alpha=0.5, linewidths=0,
                     label="intervals", rasterized=True)
        largest = sorted(zip(blocks["idle"], blocks["size"]), key=lambda o: -o[0] * o[1])[:20]
        axis.scatter([o[0] / 1e3 for o in largest], [o[1] / MIB for o in largest], s=16, marker="D", color="#d95f30",
                     linewidths=0, label="the 20 largest")
        rate = data["report"]["swappable"]["bytes_per_s"] / 1e6  # bytes a microsecond
        line = [min(xs), max(xs)]
        axis.plot(line, [rate * x / MIB for x in line], color="black", linestyle="--", linewidth=0.8,
                  label="could leave below")
        axis.set(xscale="log", yscale="log", xlabel="interval, microseconds", ylabel="block, MiB", title=net,
                 ylim=(min(ys) / 2, max(ys) * 2))
    axes.flat[0].legend(frameon=False)
    figure.tight_layout()
    save(figure, "behaviours-scatter.svg")


def draw_bars(axis, names, reports, key, title):
    bottom = [0.0] * len(names)
    sums = [sum(share["bytes"] for share in report[key]) for report in reports]
    for role, colour in COLOURS.items():
        heights = [100 * sum(share["bytes"] for share in report[key] if share["role"] == role) / whole
                   for report, whole in zip(reports, sums)]
        if max(heights) > 0:
            axis.bar(names, heights, bottom=bottom, color=colour, label=role)
            bottom = [a + b for a, b in zip(bottom, heights)]
    for i, whole in enumerate(sums):
        axis.text(i, 101, f"{whole / MIB:.0f}" if whole >= 10 * MIB else f"{whole / MIB:.1f}", ha="center", fontsize=7)
    axis.set(ylim=(0, 110), title=title)
    axis.tick_params(axis="x", labelsize=8)


def draw_breakdown():
    figure, axes = plt.subplots(2, 5, figsize=(15, 6.5), sharey=True)
    columns = [(net, [str(b) for b in BATCHES[net]],
                [record(net, "--batch", str(b), "--backend", "dry")["report"] for b in BATCHES[net]]) for net in RUNS]
    columns.append(("ResNet, batch 32, by depth", [net.removeprefix("resnet") for net in DEPTHS],
                    [record(net, "--batch", "32", "--backend", "dry")["report"] for net in DEPTHS]))
    for column, (net, names, reports) in enumerate(columns):
        title = net if " " in net else f"{net}, by batch"
        draw_bars(axes[0][column], names, reports, "live_at_peak", title)
        draw_bars(axes[1][column], names, reports, "static", "")
    axes[0][0].set_ylabel("% at the peak (above: MiB)")
    axes[1][0].set_ylabel("% of an iteration's blocks (above: MiB)")
    handles = {}
    for axis in axes.flat:
        handles.update(dict(zip(*reversed(axis.get_legend_handles_labels()))))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=8, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    save(figure, "behaviours-breakdown.svg")


# ---- the table of perceptrons --------------------------------------------------------------------


def authors_rule(inputs, hidden):
    """What gives the authors' nine rows: 4H + 12 floats an input and each parameter's gradient are intermediates; 5
    floats an input and the parameters are not."""
    parameters = 4 * (2 * hidden + hidden + 2 * hidden + 2)
    intermediates = 4 * inputs * (4 * hidden + 12) + parameters
    return intermediates, 4 * inputs * 5 + parameters


def print_table():
    print("| inputs x hidden | authors', MiB | authors', % | their rule, MiB | their rule, % | ebb, MiB | ebb, % |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for inputs, hidden, mib, percent in TABLE:
        report = record(f"perceptron:{hidden}", "--batch", str(inputs), "--channels", "2", "--image", "1x1", "--classes",
                        "2", "--optimizer", "sgd", "--backend", "dry")["report"]
        uses = {share["use"]: share["bytes"] for share in report["uses_static"]}
        intermediates, rest = authors_rule(inputs, hidden)
        mine, whole = uses.get("intermediate", 0), sum(uses.values())
        print(f"| {inputs} x {hidden} | {mib} | {percent} | {intermediates / MIB:.4g} | "
              f"{100 * intermediates / (intermediates + rest):.3f} | {mine / MIB:.4g} | {100 * mine / whole:.3f} |")


DRAW = {"budget": draw_budget, "gantt": draw_gantt, "intervals": draw_intervals, "scatter": draw_scatter, "breakdown": draw_breakdown,
        "table": print_table}
parser = argparse.ArgumentParser(description="the figures of docs/behaviours.md")
parser.add_argument("--ebb", default="build/release/ebb")
parser.add_argument("-o", dest="out", default="docs/images")
parser.add_argument("--only", choices=DRAW)
options = parser.parse_args()
os.makedirs(options.out, exist_ok=True)
with tempfile.TemporaryDirectory() as folder:
    for name, draw in DRAW.items():
        if options.only in (None, name):
            draw()
