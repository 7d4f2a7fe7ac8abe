# SPDX-License-Identifier: Apache-2.0
"""What the sections of bench_cuda.py stand on: time that is shared out, commands that end with it, rows of a table."""
import concurrent.futures
import contextlib
import csv
import json
import os
import select
import statistics
import subprocess
import sys
import time

from provenance import commit, driver, processor

HERE = os.path.dirname(os.path.abspath(__file__))
COLUMNS = ("commit machine card section contender net batch image budget n median_s min_s max_s images_per_s "
           "predicted_s peak_bytes moved_bytes value note").split()
NO_FIT, NO_DEVICE = 1, 5  # ebb's exit codes


class OutOfTime(Exception):
    pass


class Failed(Exception):
    """A command's, with its exit code and what it had printed."""

    def __init__(self, code, text, printed=""):
        super().__init__(text)
        self.code, self.printed = code, printed


class Bench:
    """`args`: of the command line. `end`: of the section at hand, which no command outlasts."""

    def __init__(self, args, output):
        self.args, self.card = args, ""
        self.end = time.monotonic() + max(60, args.deadline)  # to find the card
        self.deadline = time.monotonic() + args.deadline
        self.section, self.left_out, self.failed, self.measured = "", [], [], set()
        self.planned = {}  # of plan_ahead: a plan's file or why there is none, by case, budget and options
        self.writer, self.output = csv.DictWriter(output, COLUMNS, lineterminator="\n"), output
        self.origin = {"commit": commit(args.build), "machine": processor()}

    # ---- rows

    def row(self, **figures):
        row = {**self.origin, "card": self.card, "section": self.section, **figures}
        self.writer.writerow({key: f"{x:.6g}" if isinstance(x, float) else x for key, x in row.items()})
        self.output.flush()  # what was measured stays, should the rest be stopped
        told = [f"{key} {row[key]:.4g}" if isinstance(row[key], float) else str(row[key])
                for key in COLUMNS[4:] if row.get(key) not in (None, "")]
        print(f"{self.section}: {', '.join(told)}", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def item(self, **names):
        """Around a part that may be left out or fail alone, in whatever way; either is a row, and counted. That
        something does not fit is an answer."""
        try:
            yield
        except OutOfTime:
            self.left_out.append(names)
            self.row(**names, note="left out: no time")
        except Failed as error:
            kept, word = {NO_FIT: ([], "does not fit"), NO_DEVICE: (self.left_out, "left out")}.get(
                error.code, (self.failed, "failed"))
            kept.append(names)
            self.row(**names, note=f"{word}: {error}")
        except Exception as error:  # an answer that is not what it should be
            self.failed.append(names)
            self.row(**names, note=f"failed: {type(error).__name__}: {error}")

    # ---- commands

    def left_s(self):
        return self.end - time.monotonic()

    @contextlib.contextmanager
    def half(self):
        """Around what may take half of the time that is left."""
        end = self.end
        self.end = time.monotonic() + self.left_s() / 2
        try:
            yield
        finally:
            self.end = end

    def parts(self, items):
        """The items, each with its share of what is left of the section."""
        end, items = self.end, list(items)
        for i, item in enumerate(items):
            self.end = time.monotonic() + (end - time.monotonic()) / (len(items) - i)
            yield item
        self.end = end

    def call(self, command):
        """Its stdout."""
        if self.left_s() < 0:
            raise OutOfTime
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=max(1.0, self.left_s()))
        except subprocess.TimeoutExpired:
            raise OutOfTime from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise Failed(done.returncode, lines[-1] if lines else f"exit status {done.returncode}", done.stdout)
        return done.stdout

    def ebb(self, command, case, *options):
        """ebb with a network: case is (net, batch, image). The objects that it prints."""
        net, batch, image = case
        more = [f"--{name.replace('_', '-')}" for name in ("tf32", "fast_algorithms") if getattr(self.args, name)]
        text = self.call([os.path.join(self.args.build, "ebb"), command, net, "--batch", str(batch), "--image",
                          f"{image}x{image}", "--backend", self.args.backend, *more, *options, "--json"])
        return [json.loads(line) for line in text.splitlines()]

    def train(self, case, steps, *options, warm_up=14):
        """(seconds of each step behind warm-up, the closing object). One step is issued and one is captured; where a plan
        copies, graph and streams are tried for five each, so that 14 lie behind all that."""
        warm_up = 1 if self.args.tiny else warm_up
        lines = self.ebb("train", case, "--steps", str(steps + warm_up), "--lr", "0.001", "--no-eval", *options)
        return [line["time_s"] for line in lines if "step" in line][warm_up:], lines[-1]

    def machine(self, case):
        """Options that name this machine's times for the case. They are kept beside the rows, for all cases, stages and
        modes: a time is filed under the card, the libraries' versions and the mode, and measured once."""
        folder = os.path.dirname(os.path.abspath(self.args.output)) if self.args.output else self.args.work
        path = os.path.join(folder, "machine.json")
        if case not in self.measured:
            kept = ["--machine", path] if os.path.exists(path) else []
            self.ebb("probe", case, "--reps", "2", *kept, "-o", path)
            self.measured.add(case)
        return ["--machine", path]

    def plan_ahead(self, cases, budgets, *options):
        """Plans for all of them at once, as many as there are processors: planning needs no card, which is what is dear.
        What fails or has no time is told by who asks for it."""
        jobs = {}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for case in cases:
                machine = self.machine(case)
                for budget in budgets:
                    key = (case, budget, *options)
                    name = "-".join(map(str, (*case, *key[1:])))
                    path = os.path.join(self.args.work, f"plan-{name}".replace(":", "_"))
                    if key not in self.planned:
                        jobs[pool.submit(self.ebb, "plan", case, *machine, "--memory", budget, "--algorithms", "fitting",
                                         *options, "-o", path)] = key, path
            for job, (key, path) in jobs.items():
                self.planned[key] = job.exception() or path

    def open_card(self):
        """Failed where there is none."""
        text = self.call([os.path.join(self.args.build, "ebb"), "probe", "--backend", self.args.backend, "--json"])
        found = json.loads(text)
        self.card = found["device"] + driver()
        self.writer.writeheader()

    def workspaces(self, case, rounds, percents):
        net, batch, image = case
        command = [os.path.join(self.args.build, "bench_workspaces"), net, str(batch), str(image), self.args.backend,
                   str(rounds)]
        text = self.call(command + ["tf32"] * self.args.tf32 + [str(p) for p in percents])
        return list(csv.DictReader(text.splitlines()))


WARM_UP = 3


class Torch:
    """A PyTorch that stays, for one network; requests as torch_worker.py has them. Without one, nothing answers."""

    def __init__(self, bench, net, image):
        self.bench, self.child = bench, None
        if not bench.args.torch:
            return
        command = [bench.args.torch, "-W", "ignore", os.path.join(HERE, "torch_worker.py"), net, "--serve",
                   "--channels-last", "--image", str(image), "--device", bench.args.backend]
        with contextlib.suppress(OSError):
            self.child = subprocess.Popen(command + ["--tf32"] * bench.args.tf32, stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, text=True)

    def ask(self, **request):
        if self.child is None:
            raise Failed(NO_DEVICE, "PyTorch is not there (or did not answer in time)")
        try:
            print(json.dumps(request), file=self.child.stdin, flush=True)
        except BrokenPipeError:
            raise Failed(NO_DEVICE, "PyTorch has ended") from None
        if not select.select([self.child.stdout], [], [], max(0.0, self.bench.left_s()))[0]:
            self.close()
            raise OutOfTime
        line = self.child.stdout.readline()
        if not line:
            raise Failed(NO_DEVICE, "PyTorch has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Failed(NO_FIT if "out of memory" in answer["error"] else NO_DEVICE, answer["error"])
        return answer

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.communicate()
            self.child = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- what several sections do --------------------------------------------------------------------

def figures(batch, rounds):
    """Of the rounds' median step times."""
    median = statistics.median(rounds)
    return {"n": len(rounds), "median_s": median, "min_s": min(rounds), "max_s": max(rounds),
            "images_per_s": batch / median}


def ebb_contender(bench, case, steps, *options):
    return lambda: measured(bench, case, steps, *options)


def planned_contender(bench, case, steps, budget, *options):
    """What plan_ahead planned with these options."""
    def measure():
        plan = bench.planned[case, budget, *options]
        if isinstance(plan, Exception):
            raise plan
        return measured(bench, case, steps, *options, "--plan", plan)
    return measure


def measured(bench, case, steps, *options):
    times, end = bench.train(case, steps, *bench.machine(case), *options)
    return statistics.median(times), {"predicted_s": end["step_time_predicted_s"],
                                      "peak_bytes": end["peak_measured_bytes"],
                                      "moved_bytes": end["moved_out_bytes"] + end["moved_in_bytes"]}


def better_layout(bench, torch, case, steps):
    """Whether PyTorch is faster with channels last, and its peak in bytes then (0: not known); both are rows. Where
    neither runs, as it is usually."""
    net, batch, image = case
    seconds, peaks = {}, {}
    if torch.child is None:  # its contenders say so
        return True, 0
    for last in (True, False):
        names = {"contender": f"torch eager, channels {'last' if last else 'first'}", "net": net, "batch": batch,
                 "image": image}
        with bench.item(**names):
            seconds[last], told = torch_contender(torch, case, steps, "eager", last)()
            bench.row(**names, **figures(batch, [seconds[last]]), **told, note="to find PyTorch's better layout")
            peaks[last] = told["peak_bytes"]
    best = min(seconds, key=seconds.get, default=True)
    return best, peaks.get(best, 0)


def torch_contender(torch, case, steps, mode, channels_last):
    def measure():
        answer = torch.ask(mode=mode, batch=case[1], steps=steps + WARM_UP, channels_last=channels_last)
        return statistics.median(answer["times"][WARM_UP:]), {"peak_bytes": answer["peak_bytes"]}
    return measure


def alternate(bench, case, contenders, base, note):
    """Rounds in which each contender, by (name, budget), has its turn; value is its time over the base's. One that
    fails or has no time left has had its last turn; what it measured before counts. No round begins that would not
    end."""
    net, batch, image = case
    rounds, told, out = {}, {}, set()
    round_s = 0.0
    for _ in range(bench.args.rounds):
        if rounds and bench.left_s() < round_s:
            break
        begin = time.monotonic()
        for key, measure in contenders.items():
            names = {"contender": key[0], "net": net, "batch": batch, "image": image, "budget": key[1]}
            if key in out:
                continue
            out.add(key)
            with bench.item(**names):
                seconds, told[key] = measure()
                rounds.setdefault(key, []).append(seconds)
                out.discard(key)
        round_s = time.monotonic() - begin
    for key, seconds in rounds.items():
        value = statistics.median(seconds) / statistics.median(rounds[base]) if base in rounds else ""
        bench.row(contender=key[0], net=net, batch=batch, image=image, budget=key[1], value=value, note=note,
                  **figures(batch, seconds), **told[key])
    return {key: (statistics.median(seconds), told[key]) for key, seconds in rounds.items()}


def largest(fits, start, limit, growth=1.5):
    """(the largest number up to limit, to a thirty-second or 1, for which fits(number) holds, 0: none; whether the time
    was enough to say so: else the largest found in it). growth: of the first step beyond a good start."""
    low, high, at = 0, limit + 1, min(start, limit)
    while high - low > max(1, high // 32):
        try:
            fit = fits(at)
        except OutOfTime:
            if low == 0:
                raise
            return low, False
        if fit:
            low, growth = at, min(2.0, growth**2)
        else:
            high = at
        at = (low + high) // 2 if high <= limit else min(limit, max(low + 1, int(low * growth)))
    return low, True
