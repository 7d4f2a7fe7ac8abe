# SPDX-License-Identifier: Apache-2.0
"""AutoSwap's rules once more, for tests/unit/test_autoswap.c: autoswap.py [EVENTS LOADS PEAK]

Writes a sequence of events, the candidates in it, and for each rule and limit which of them are chosen, in which order,
and the overhead; as the authors' code has it, and corrected (src/plan/autoswap.h lists the differences). Without
arguments the events are made up from a fixed seed. With arguments they are those of files in the form of the authors'
vec_block_fresh_vgg.csv and load_origin_vgg.csv, and PEAK is the number of the event of the peak in an iteration.

It is written from the text and from the description of the rules, not from the C code, and as directly as can be.
"""
import sys

OUT = (0.0756, 47200.0)  # ns for each byte, and for each copy
IN = (0.0823, 9700.0)


class Candidate:
    def __init__(self, number, size, r, d):
        self.number, self.size, self.r, self.d = number, size, r, d
        self.out = OUT[0] * size + OUT[1]
        self.into = IN[0] * size + IN[1]


def made_up():
    """(length, times, loads, candidates): 40 blocks around a peak, and some noise."""
    state = 12345

    def draw(below):
        nonlocal state
        state = (state * 1103515245 + 12345) % 2**31
        return state // 65536 % below

    length, peak = 120, 55
    step = [20000 + 1000 * draw(90) for _ in range(length)]
    times, now = [], 0
    for i in range(3 * length):
        times.append(float(now))
        now += step[i % length]
    load = [64 * 2**20 + 4096 * draw(200) for _ in range(length)]
    candidates = []
    for number in range(40):
        r, d = draw(peak), peak + 1 + draw(length - peak - 2)
        if number % 8 == 7:
            r -= length // 3
        candidates.append(Candidate(number, 2**18 * (1 + draw(12)), r, d))
        for i in range(min(r, 0), length):
            load[i % length] += candidates[-1].size if r <= i <= d + 3 else 0
    loads = [float(load[i % length]) for i in range(3 * length)]
    return length, times, loads, candidates


def of_files(events_path, loads_path, peak):
    with open(loads_path) as file:
        loads = [float(line) for line in file]
    length = len(loads) // 3
    rows = []
    with open(events_path) as file:
        for i, line in enumerate(file):
            kind, address, size, time = line.split()
            rows.append((i - length, kind, address, int(size), float(time)))
    times = [row[4] - rows[0][4] for row in rows]
    blocks = []
    for row in sorted(rows, key=lambda row: row[2]):
        if blocks and blocks[-1][0][2] == row[2] and row[1] != "Malloc":
            blocks[-1].append(row)
        else:
            blocks.append([row])
    candidates = []
    for block in blocks:
        for a, b in zip(block, block[1:]):
            if a[0] < peak < b[0] and block[0][3] >= 2**20:
                candidates.append(Candidate(len(candidates), b[3], a[0], b[0]))
    return length, times, loads, candidates


class Planner:
    def __init__(self, length, times, loads, candidates, coded):
        self.length, self.times, self.loads, self.coded = length, times, loads, coded
        self.candidates = candidates
        for c in candidates:
            c.doa = self.time(c.d) - self.time(c.r) - c.out - (0 if coded else c.into)
            c.aoa = c.doa * c.size if c.doa >= 0 else c.doa / c.size
            wrong = loads[c.number % len(loads)]
            c.wdoa = sum(wrong if coded else loads[j + length] for j in range(c.r, c.d))

    def time(self, event):
        return self.times[event + self.length]

    def change(self, load, first, last, by):
        for j in range(first, last):
            if self.coded:
                load[j + self.length] += by
            else:
                for k in range(3):
                    load[j % self.length + k * self.length] += by

    def orders(self):
        def falling(key):
            return sorted(self.candidates, key=key, reverse=True)

        orders = {"doa": falling(lambda c: c.doa), "aoa": falling(lambda c: c.aoa), "wdoa": falling(lambda c: c.wdoa)}
        left, load, taken = list(self.candidates), list(self.loads), []
        while left:
            for c in left:
                c.swdoa = sum(load[j + self.length] for j in range(c.r, c.d))
            left = sorted(left, key=lambda c: c.swdoa, reverse=True)
            taken.append(left.pop(0))
            self.change(load, taken[-1].r, taken[-1].d, -taken[-1].size)
        orders["swdoa"] = sorted(taken, key=lambda c: c.swdoa, reverse=True)
        ranks = {c.number: sum(orders[rule].index(c) for rule in ("doa", "aoa", "wdoa")) for c in self.candidates}
        orders["vote"] = sorted(self.candidates, key=lambda c: ranks[c.number])
        return orders

    def select(self, order, limit):
        load, chosen = list(self.loads), []
        peak = max(load[self.length:2 * self.length])
        for c in order:
            if peak <= limit and not (self.coded and not chosen):
                break
            self.change(load, c.r if self.coded else c.r + 1, c.d, -c.size)
            chosen.append(c)
            peak = max(load[self.length:2 * self.length])
        return chosen

    def overhead(self, chosen, limit):
        load = list(self.loads)
        if self.coded:
            return self.coded_outs(load, chosen, limit) + self.coded_ins(load, chosen, limit)
        return self.outs(load, chosen, limit) + self.ins(load, chosen, limit)

    # ---- as coded

    def over(self, load, limit):
        n = self.length
        over = [i for i in range(n) if load[n + i] > limit]
        first = over[0] if over else 0
        over = [i for i in range(first + 1, n + 1) if load[n + i] > limit]
        last = over[-1] - 1 if over else n
        return (-1 if first == 0 else first), (-1 if last == n else last)

    def coded_outs(self, load, chosen, limit):
        total, before = 0.0, None
        for c in sorted(chosen, key=lambda c: c.r):
            at = c.r if before is None else max(c.r, before)
            end = self.time(at) + c.out
            while end > self.time(at):
                at += 1
            at = min(at, c.d - 1)
            self.change(load, at, c.d, -c.size)
            first, _ = self.over(load, limit)
            if first != -1 and first <= at:
                self.change(load, first - 1, at + 1, -c.size)
                at = first - 1
            total += max(end - self.time(at), 0)
            before = at
        return total

    def coded_ins(self, load, chosen, limit):
        total, before = 0.0, None
        by_leaving = sorted(chosen, key=lambda c: c.r)
        for c in sorted(by_leaving, key=lambda c: c.d, reverse=True):
            at = c.d if before is None else min(c.d, before)
            begin = self.time(at) - c.into
            at = max(at, c.r)
            self.change(load, at, c.d, c.size)
            _, last = self.over(load, limit)
            if last != -1 and last >= at:
                self.change(load, at, last + 1, -c.size)
                total += self.time(last) - begin
            before = at
        return total

    # ---- corrected

    def outs(self, load, chosen, limit):
        total, free = 0.0, float("-inf")
        for c in sorted(chosen, key=lambda c: c.r):
            ready = c.r + 1
            free = max(self.time(ready), free) + c.out
            ended = min(next(i for i in range(ready, 2 * self.length) if self.time(i) >= free), c.d)
            c.gone = next((i for i in range(ready, ended) if load[i + self.length] > limit), ended)
            self.change(load, c.gone, c.d, -c.size)
            if c.gone < ended:
                total += max(free - self.time(c.gone), 0)
        return total

    def ins(self, load, chosen, limit):
        total, end = 0.0, float("inf")
        by_leaving = sorted(chosen, key=lambda c: c.r)
        for c in sorted(by_leaving, key=lambda c: c.d, reverse=True):
            end = min(self.time(c.d), end) - c.into
            begun = max(next(i for i in range(c.d, -self.length - 1, -1) if self.time(i) <= end), c.gone)
            self.change(load, begun, c.d, c.size)
            back = max((i + 1 for i in range(begun, c.d) if load[i + self.length] > limit), default=begun)
            self.change(load, begun, back, -c.size)
            if back > begun:
                total += max(self.time(back) - end, 0)
                end = max(self.time(back), end)
        return total


def main():
    length, times, loads, candidates = of_files(*sys.argv[1:3], int(sys.argv[3])) if sys.argv[1:] else made_up()
    print("length", length)
    for time, load in zip(times, loads):
        print("event", repr(time), repr(load))
    for c in candidates:
        print("candidate", c.size, c.r, c.d, repr(c.out), repr(c.into))
    peak = max(loads[length:2 * length])
    limits = range(280 << 20, 680 << 20, 10 << 20) if sys.argv[1:] else [int(peak * p / 100) for p in (95, 85, 75, 65)]
    for mode in ("coded", "corrected"):
        planner = Planner(length, times, loads, candidates, mode == "coded")
        for rule, order in planner.orders().items():
            for limit in limits:
                chosen = planner.select(order, limit)
                names = " ".join(str(c.number) for c in chosen)
                print("expect", mode, rule, limit, repr(planner.overhead(chosen, limit)), len(chosen), names)


main()
