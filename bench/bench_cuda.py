#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All that is to be measured on a card, in one call of at most eight minutes, as one CSV (`make bench-cuda`).

    bench/bench_cuda.py --build build/release [--torch PYTHON] [--only SECTION[,SECTION...] | --stage N] [-o FILE.csv]

Each section has a share of the time that is left when it begins, and what it does not use is the next one's. What there
was no time for is a row with that note, and is counted at the end; so is what failed, and the rest goes on. Rows are
written as they come. --stage N is one of the calls that a card is lent for piece by piece. `--backend cpu --tiny` runs every section with small
networks on the processor: for testing this program, not for figures. docs/cuda.md says what the columns mean.
"""
import argparse
import concurrent.futures
import json
import os
import sys
import tempfile
import time


from cuda_bench import (NO_DEVICE, NO_FIT, Bench, Failed, OutOfTime, Torch, alternate, better_layout, ebb_contender,
                        figures, largest, planned_contender, torch_contender)
from hidden_copies import copies_of

HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 1 << 30
CARD = 12 * GIB

FULL = {
    "throughput": [("resnet50", 256, 224), ("vgg16", 128, 224), ("alexnet", 1024, 227), ("densenet121", 128, 224)],
    "budgets": ("100%", "50%", "25%"),
    "steps": 5,
    "feed": ("100%", "70%"),
    # The paper's table 5, largest batches with 12 GB: Caffe, MXNet, Torch, TensorFlow, SuperNeurons.
    "batch": [("alexnet", 227, (768, 768, 1024, 1408, 1792)), ("vgg16", 224, (48, 64, 48, 80, 224)),
              ("inception4", 299, (16, None, None, 64, 240)), ("resnet50", 224, (24, 80, 32, 128, 384)),
              ("resnet101", 224, (16, 48, 16, 80, 256)), ("resnet152", 224, (16, 32, 16, 48, 176))],
    # n3 of resnet:6,32,n3,6: the paper's 1,920 layers, its 2,498, and beyond
    "depth": ("resnet:6,32,{},6", 134, 3, 16, 224, (596, 789, 1000, 1500, 2500)),
    "ten_thousand": ("resnet_cifar:1667", 128, 32),  # 6 * 1667 + 2 = 10,004 layers
    "offload": [("vgg16", 128, 224), ("resnet50", 256, 224)],
    "predict": ("90%", "75%", "60%", "40%", "30%"),
    "workspaces": [("alexnet", 256, 227), ("vgg16", 64, 224), ("resnet50", 128, 224)],
    "capture": [("resnet50", 16, 224), ("resnet_cifar:111", 64, 32)],
    "card": CARD,
}
TINY = {
    "throughput": [("resnet18", 2, 32)],
    "budgets": ("100%", "70%"),
    "steps": 1,
    "feed": ("100%",),
    "batch": [("lenet", 28, (8, 8, 8, 8, 64))],  # to begin with
    "depth": ("resnet_cifar:{}", 2, 6, 2, 32, (1, 2)),
    "ten_thousand": ("resnet_cifar:3", 2, 32),
    "offload": [("resnet_cifar:1", 4, 32)],
    "predict": ("90%",),
    "workspaces": [("lenet", 8, 28)],
    "capture": [("resnet_cifar:1", 2, 32)],
    "card": 16 << 20,
}


def throughput(bench, cases):
    """Throughput against budget, beside PyTorch's modes; value: time over PyTorch eager's. Both sides take the algorithms
    that were measured to be fastest, ebb those that fit the budget."""
    budgets = cases["budgets"][:bench.args.budgets]
    bench.plan_ahead(cases["throughput"], budgets)
    for case in bench.parts(cases["throughput"]):
        with Torch(bench, case[0], case[2]) as torch:
            contenders = {}
            ours = [(("ebb", budget), planned_contender(bench, case, cases["steps"], budget)) for budget in budgets]
            last, peak_bytes = better_layout(bench, torch, case, cases["steps"]) if bench.args.torch else (True, 0)
            if peak_bytes > 0:
                half = str(peak_bytes // 2)
                bench.plan_ahead([case], [half])
                ours.append((("ebb, half of torch's bytes", half), planned_contender(bench, case, cases["steps"], half)))
            theirs = [((f"torch {mode}", ""), torch_contender(torch, case, cases["steps"], mode, last))
                      for mode in ("eager", "checkpoint") if mode in bench.args.modes] if bench.args.torch else []
            for pair in zip(ours, theirs):  # in turns; zip ends with the shorter
                contenders.update(pair)
            contenders.update(ours + theirs)
            done = alternate(bench, case, contenders, ("torch eager", ""), "value: time over torch eager's")
            if theirs and "compile" in bench.args.modes:  # compiling takes a minute: with what time is left, beside ebb alone
                compiled = {("torch compile", ""): torch_contender(torch, case, cases["steps"], "compile", last)}
                compiled.update(ours[:1])
                alternate(bench, case, compiled, ours[0][0], "value: time over ebb's beside torch compile")
        for (name, budget), (median, told) in done.items():
            if name == "ebb":
                bench.pairs[case, budget] = (told["predicted_s"], median)


# ---- wider and deeper ----------------------------------------------------------------------------

def host_bytes(bench):
    """What the host's memory may be used for: seven tenths of it."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return [] if bench.args.tiny else ["--host-memory", str(total * 7 // 10)]


def has_plan(bench, case, budget, path, *options):
    """Whether there is a plan; it is in the file then."""
    try:
        bench.ebb("plan", case, "--memory", str(budget), *host_bytes(bench), *options, "-o", path)
        return True
    except Failed as error:
        if error.code != NO_FIT:
            raise
        return False


def on_card(bench, cases, case, *options):
    """Train for real on the emulated card: (times, closing object)."""
    return bench.train(case, min(2, cases["steps"]), *host_bytes(bench), *options, warm_up=3)


def room(bench, cases, net, image):
    """What the context leaves of the emulated card, with a little for what comes later: graphs, code of libraries."""
    context = bench.train((net, 1, image), 1)[1]["context_bytes"]
    return max(1, cases["card"] - context - min(64 << 20, cases["card"] // 100))


def least_budget(bench, case):
    """From the answer to one that is too small."""
    try:
        bench.ebb("plan", case, "--memory", "4KiB")
    except Failed as error:
        if error.code != NO_FIT:
            raise
        return json.loads(error.printed)["least_budget_bytes"]
    raise Failed(NO_FIT, "4 KiB are enough")


def guess(bench, net, image, budget, start):
    """The batch whose least budget this is, were it a straight line through those of two batches."""
    once, twice = (least_budget(bench, (net, n, image)) for n in (start, 2 * start))
    return start if twice <= once else max(1, int(start * (1 + (budget - once) / (twice - once))))


def plan_file(bench, net, number):
    return os.path.join(bench.args.work, f"card-{net}-{number}".replace(":", "_"))


def widest_ebb(bench, net, image, budget, start):
    """(batch, whether the search was whole), by plans."""
    def fits(n):
        return has_plan(bench, (net, n, image), budget, plan_file(bench, net, n), "--effort", "0")
    return largest(fits, guess(bench, net, image, budget, start), 64 * start, growth=1.1)


def widest_torch(bench, cases, net, image, start):
    with Torch(bench, net, image) as torch:
        def runs(batch):
            try:
                torch.ask(mode="eager", batch=batch, steps=2, limit_bytes=cases["card"])
                return True
            except Failed as error:
                if error.code != NO_FIT:
                    raise
                return False
        return largest(runs, start, 64 * start)


def found(is_whole):
    return "value: largest batch" + ("" if is_whole else " found; the search had no more time")


def batch(bench, cases):
    """The largest batch on an emulated card, run for real, beside the paper's figures (on a K40 of 12 GB). All searches
    go on at once, since they time nothing."""
    for net, image, paper in cases["batch"]:
        for name, figure in zip(("Caffe", "MXNet", "Torch", "TensorFlow", "SuperNeurons"), paper):
            if figure is not None and not bench.args.tiny:
                bench.row(contender=f"paper: {name}", net=net, budget="12 GB", value=figure,
                          note="value: largest batch")
    budget = room(bench, cases, *cases["batch"][0][:2])
    ours, theirs = {}, {}
    with bench.half(), concurrent.futures.ThreadPoolExecutor(2 * len(cases["batch"])) as pool:
        for net, image, paper in cases["batch"]:
            ours[net] = pool.submit(widest_ebb, bench, net, image, budget, paper[-1])
            if net != "inception4" and bench.args.torch and bench.args.backend == "cuda":  # no limit on the processor
                theirs[net] = pool.submit(widest_torch, bench, cases, net, image, paper[2])
    for net, image, paper in bench.parts(cases["batch"]):
        names = {"net": net, "image": image, "budget": cases["card"]}
        with bench.item(contender="ebb", **names):
            n, is_whole = ours[net].result()
            if n == 0:
                raise Failed(NO_FIT, "no batch fits")
            times, end = on_card(bench, cases, (net, n, image), "--plan", plan_file(bench, net, n))
            bench.row(contender="ebb", batch=n, **names, **figures(n, times), value=n, note=found(is_whole),
                      predicted_s=end["step_time_predicted_s"], moved_bytes=end["moved_out_bytes"] + end["moved_in_bytes"],
                      peak_bytes=end["peak_measured_bytes"] + end["context_end_bytes"])
        if net == "inception4":
            bench.row(contender="torch eager", **names, note="torchvision has no Inception v4")
        elif net in theirs:
            with bench.item(contender="torch eager", **names):
                n, is_whole = theirs[net].result()
                bench.row(contender="torch eager", batch=n, **names, value=n, note=found(is_whole))


def depth_row(bench, cases, case, layers, plan):
    net, size, image = case
    names = {"contender": "ebb", "net": net, "batch": size, "image": image, "budget": cases["card"]}
    with bench.item(**names):
        if not plan.result():
            bench.row(**names, value=layers, n=0, note="does not fit; value: layers")
            return False
        times, end = on_card(bench, cases, case, "--plan", plan_file(bench, net, size))
        bench.row(**names, value=layers, note="value: layers", **figures(size, times),
                  predicted_s=end["step_time_predicted_s"], moved_bytes=end["moved_out_bytes"] + end["moved_in_bytes"],
                  peak_bytes=end["peak_measured_bytes"] + end["context_end_bytes"])
    return True


def depth(bench, cases):
    """The paper's depth test: as deep as it goes on the emulated card; and ten thousand layers. Plans are made at once."""
    form, base, each, size, image, counts = cases["depth"]
    bench.row(contender="paper: SuperNeurons", net="ResNet", batch=16, image=224, budget="12 GB", value=1920,
              note="value: layers")
    net, *rest = cases["ten_thousand"]
    deep = [((net, *rest), 6 * int(net.split(":")[1]) + 2)] + [((form.format(n), size, image), base + each * n)
                                                              for n in counts]
    budget = room(bench, cases, net, rest[1])
    with bench.half(), concurrent.futures.ThreadPoolExecutor(len(deep)) as pool:
        plans = [pool.submit(has_plan, bench, case, budget, plan_file(bench, *case[:2]), "--effort", "0")
                 for case, _ in deep]
    for (case, layers), plan in zip(deep, plans):
        if not depth_row(bench, cases, case, layers, plan) and case[0] != net:
            break


# ---- copies and predictions ----------------------------------------------------------------------

def offload(bench, cases):
    """How much of the copies' time is hidden behind computing, from a recorded step; value: that share."""
    for case in cases["offload"]:
        for budget in cases["budgets"][1:]:
            names = {"contender": "ebb", "net": case[0], "batch": case[1], "image": case[2], "budget": budget}
            with bench.item(**names):
                path = os.path.join(bench.args.work, "trace")
                times, end = bench.train(case, cases["steps"], *bench.machine(case), "--memory", budget, "--record",
                                         path)
                copying, exposed = copies_of(path)
                bench.row(**names, **figures(case[1], times), value=1 - exposed / copying if copying > 0 else "",
                          note=f"value: hidden share of {copying:.6f} s of copies",
                          peak_bytes=end["peak_measured_bytes"],
                          moved_bytes=end["moved_out_bytes"] + end["moved_in_bytes"],
                          predicted_s=end["step_time_predicted_s"])


def predict(bench, cases):
    """Predicted over measured step time: the pairs of `throughput` and those of other budgets; value: the ratio."""
    bench.plan_ahead(cases["throughput"], cases["budgets"] + cases["predict"])
    for case in bench.parts(cases["throughput"]):
        for budget in cases["budgets"] + cases["predict"]:
            names = {"contender": "ebb", "net": case[0], "batch": case[1], "image": case[2], "budget": budget}
            with bench.item(**names):
                if (case, budget) not in bench.pairs:
                    seconds, told = planned_contender(bench, case, cases["steps"], budget)()
                    bench.pairs[case, budget] = (told["predicted_s"], seconds)
                predicted, measured = bench.pairs[case, budget]
                bench.row(**names, median_s=measured, predicted_s=predicted, value=predicted / measured,
                          note="value: predicted over measured")
    off = [abs(p / m - 1) for p, m in bench.pairs.values()]
    if off:
        bench.row(contender="ebb", n=len(off), value=max(off), note="value: largest relative error; "
                  f"{sum(x <= 0.03 for x in off)} of {len(off)} pairs within 3 %")


# ---- algorithms, graphs --------------------------------------------------------------------------

def workspaces(bench, cases):
    """Throughput against budget by how algorithms are chosen (bench_workspaces.c); value: most scratch of a step."""
    for case in bench.parts(cases["workspaces"]):
        for budget in cases["budgets"]:
            percent = int(budget.rstrip("%"))
            names = {"net": case[0], "batch": case[1], "image": case[2], "budget": budget}
            with bench.item(contender="all ways", **names):
                for row in bench.workspaces(case, cases["steps"], [percent]):
                    if row["rounds"] == "0":
                        bench.row(contender=row["way"], **names, note="does not fit")
                        continue
                    median = float(row["median_s"])
                    bench.row(contender=row["way"], **names, n=row["rounds"], median_s=median, min_s=row["min_s"],
                              max_s=row["max_s"], images_per_s=case[1] / median, predicted_s=row["predicted_s"],
                              peak_bytes=row["peak_bytes"], value=row["scratch_bytes"],
                              note="value: most scratch bytes of a step")


def capture(bench, cases):
    """Captured iterations beside streams; value: time over streams'."""
    for case in bench.parts(cases["capture"]):
        for budget in cases["budgets"][:2]:
            contenders = {("streams", budget): ebb_contender(bench, case, 3 * cases["steps"], "--memory", budget,
                                                             "--no-capture"),
                          ("captured", budget): ebb_contender(bench, case, 3 * cases["steps"], "--memory", budget)}
            alternate(bench, case, contenders, ("streams", budget), "value: time over streams'")


def feed(bench, cases):
    """Batches copied in during the iteration before (early), beside the copy at its beginning (first); value: time over
    first's."""
    times = ("first", "early")
    for when in times:
        bench.plan_ahead(cases["throughput"], cases["feed"], "--feed", when)
    for case in bench.parts(cases["throughput"]):
        for budget in cases["feed"]:
            contenders = {(f"ebb, {when}", budget): planned_contender(bench, case, cases["steps"], budget, "--feed", when)
                          for when in times}
            alternate(bench, case, contenders, ("ebb, first", budget), "value: time over that of the feed at first")


SECTIONS = {  # with their shares of the time
    throughput: 170,
    batch: 80,
    depth: 50,
    offload: 20,
    predict: 75,
    workspaces: 40,
    capture: 15,
    feed: 60,
}

# What is measured in one piece of a card's time, most urgent first; each leaves room for the tests of its stage.
STAGES = {
    1: {"only": "throughput,capture", "tf32": True, "rounds": 2, "budgets": 2, "deadline": 280},
    2: {"only": "throughput,offload,predict", "deadline": 450},
    3: {"only": "batch,depth", "deadline": 240},
}


def run_sections(bench, chosen):
    cases = dict(TINY if bench.args.tiny else FULL)
    if bench.args.nets:
        for name in ("throughput", "batch"):
            cases[name] = [case for case in cases[name] if case[0] in bench.args.nets]
    for i, section in enumerate(chosen):
        bench.section = section.__name__
        left = bench.deadline - time.monotonic()
        bench.end = time.monotonic() + left * SECTIONS[section] / sum(SECTIONS[s] for s in chosen[i:])
        with bench.item(contender="all"):
            section(bench, cases)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="sections:\n" + "\n".join(f"  {s.__name__:11} {s.__doc__}"
                                                                       for s in SECTIONS))
    parser.add_argument("--build", default="build/release", help="the folder with ebb and bench_workspaces")
    parser.add_argument("--torch", help="a Python that imports torch and torchvision")
    parser.add_argument("--only", help="these sections, with commas")
    parser.add_argument("--stage", type=int, choices=STAGES,
                        help="; ".join(f"{n}: " + ", ".join(f"{key} {value}" for key, value in stage.items())
                                       for n, stage in STAGES.items()))
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--tf32", action="store_true", help="on both sides")
    parser.add_argument("--fast-algorithms", action="store_true", help="ebb's may depend on the order of threads, too")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nets", type=lambda text: text.split(","), help="of throughput, batch, predict and feed (all)")
    parser.add_argument("--budgets", type=int, help="how many of the budgets, largest first, throughput takes (all)")
    parser.add_argument("--modes", type=lambda text: text.split(","), default=["eager", "checkpoint", "compile"],
                        help="PyTorch's, of throughput (eager,checkpoint,compile)")
    parser.add_argument("--deadline", type=float, default=450, help="seconds for all")
    parser.add_argument("-o", "--output")
    stage = parser.parse_known_args()[0].stage
    parser.set_defaults(**STAGES.get(stage, {}))
    args = parser.parse_args()
    names = [s.__name__ for s in SECTIONS]
    only = args.only.split(",") if args.only else names
    if set(only) - set(names):
        parser.error(f"there is no section {', '.join(sorted(set(only) - set(names)))}; there are {', '.join(names)}")
    return args, [s for s in SECTIONS if s.__name__ in only]


def main():
    args, chosen = parse()
    with tempfile.TemporaryDirectory() as args.work:
        output = open(args.output, "w", newline="", encoding="utf-8") if args.output else sys.stdout
        bench = Bench(args, output)
        bench.pairs = {}
        try:
            bench.open_card()
        except (Failed, OutOfTime) as error:
            if args.output:
                os.remove(args.output)
            why = str(error) or "ebb probe does not answer"
            print(f"{why}\nbench_cuda: {len(chosen)} sections not run", file=sys.stderr)
            return getattr(error, "code", NO_DEVICE)
        run_sections(bench, chosen)
    print(f"bench_cuda: {len(chosen)} sections run, {len(bench.left_out)} parts left out for time or want, "
          f"{len(bench.failed)} failed", file=sys.stderr)
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
