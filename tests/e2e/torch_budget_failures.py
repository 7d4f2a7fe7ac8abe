#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ebb.torch.Budget where something fails: a read, a write, a thread, a plan, an interrupt; and where a process goes on beside the one
that it was forked from.

    tests/e2e/torch_budget_failures.py FOLDER
"""
import contextlib
import copy
import ctypes
import errno
import gc
import os
import random
import signal
import sys
import threading
import time
import weakref

import torch
from torch import nn
from torch.nn import functional

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "python")]

import ebb.torch
from ebb.torch import _pager, _slab
import torch_verdict
from torch_verdict import verdict

folder = sys.argv[1]
WIDTH = 160


class Training:
    """A plain loop, or one within a budget. moves: the model and the optimizer may move, too."""

    def __init__(self, budget=None, moves=False, spill=folder, optimizer=torch.optim.AdamW, depth=6):
        torch.manual_seed(3)
        self.model = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())])
        self.optimizer = optimizer(self.model.parameters(), 1e-3)
        owned = (self.model, self.optimizer) if moves else (None, None)
        self.fit = ebb.torch.Budget(budget, *owned, spill, 0, True) if budget is not None else None
        self.losses = []

    def one(self, i, seen=()):
        x = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(i))
        if isinstance(seen, list):
            seen.append(weakref.ref(x))
        with self.fit.step() if self.fit is not None else contextlib.nullcontext():
            self.optimizer.zero_grad()
            loss = self.model(x).square().mean()
            loss.backward()
            self.optimizer.step()
        self.losses.append(loss.item())

    def train(self, n, begin=0):
        for i in range(begin, begin + n):
            self.one(i)
        return self

    def bits(self):
        return self.losses, [parameter.detach().clone().numpy().tobytes() for parameter in self.model.parameters()]

    def n_unguarded(self):
        """Tensors that are away, and that nothing brings back when they are used."""
        owned = {id(tensor): tensor for _, tensor in self.fit._owned.tensors()}
        with torch._C.DisableTorchFunctionSubclass():
            return sum(type(tensor) in (torch.Tensor, nn.Parameter) and tensor.untyped_storage()._cdata in self.fit._pager.away
                       for tensor in owned.values())


@contextlib.contextmanager
def failing(name, at, error):
    """The at-th call of a function of os within the slab fails."""
    real, calls = getattr(os, name), [0]

    def call(*args):
        calls[0] += 1
        if calls[0] == at:
            raise OSError(error, os.strerror(error))
        return real(*args)
    setattr(_slab.os, name, call)
    try:
        yield
    finally:
        setattr(_slab.os, name, real)


def a_read_fails():
    training, raised, unguarded = Training("60%", True).train(4), 0, 0
    for at in range(1, 30):
        with failing("preadv", at, errno.EIO):
            try:
                training.one(4)
            except OSError:
                raised += 1
        unguarded += training.n_unguarded()
    verdict("a read fails: what is away is looked after", raised > 0 and unguarded == 0, raised, unguarded)


def a_write_fails():
    training = Training("60%", True).train(4)
    before, seen = training.bits(), []
    for parameter in training.model.parameters():
        parameter.sum()
    with failing("pwrite", 2, errno.ENOSPC):
        try:
            training.fit.put_away()
            verdict("put_away says that the disk is full", False)
        except OSError:
            pass
    verdict("put_away on a full disk: what is away is looked after", training.n_unguarded() == 0)
    verdict("and nothing is lost", training.bits() == before)
    with failing("pwrite", 1, errno.ENOSPC):
        try:
            training.one(4, seen)
            verdict("a step says that the disk is full", False)
        except OSError:
            pass
    gc.collect()
    verdict("a step that failed keeps nothing", bool(seen) and all(reference() is None for reference in seen))
    training.train(2, 5)
    verdict("training goes on after a failed step", training.fit.summary()["is_planned"] and training.losses[-1] < 1)


def no_thread():
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith("ebb copies"):
            raise RuntimeError("can't start new thread")
        start(thread)
    expected = Training(spill="ram", optimizer=torch.optim.SGD).train(4).bits()
    threading.Thread.start = refuse
    try:
        got = Training("70%", spill="ram", optimizer=torch.optim.SGD).train(4).bits()
    finally:
        threading.Thread.start = start
    verdict("no thread can be started: the same bits", got == expected)


def two_processes(moves):
    """Both train on; the one that was forked on other data. What it finds away it may be too late to read, which it says."""
    expected = Training(optimizer=torch.optim.SGD).train(8).bits()
    training = Training("60%" if moves else "75%", moves, optimizer=torch.optim.SGD).train(4)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            training.train(4, 100)
            status = 0
        except RuntimeError as error:
            status = 0 if "forked" in str(error) else 1
        finally:
            os._exit(status)
    training.train(4, 4)
    _, status = os.waitpid(child, 0)
    verdict(f"a fork, both train on{', all may move' if moves else ''}: the same bits", training.bits() == expected)
    verdict("the forked process trains, or says why not", status == 0, status)
    verdict("something had moved", training.fit.summary()["moved_out_bytes"] > 0)


def interrupted():
    """Ctrl-C while a copy is waited for: it goes on, and nothing under it is given up."""
    slab = _slab.Slab(None)
    pager = _pager.Pager(slab)
    storage = torch.full((1 << 28,), 7, dtype=torch.uint8).untyped_storage()
    page = pager.page(storage)
    pager.out(page)
    move, is_copying = ctypes.memmove, threading.Event()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it

    def slowly(*args):
        is_copying.set()
        time.sleep(0.5)
        move(*args)
    _slab.ctypes.memmove = slowly
    try:
        threading.Thread(target=lambda: (is_copying.wait(), time.sleep(0.1), os.kill(os.getpid(), signal.SIGINT))).start()
        pager.back(page)
        verdict("the interrupt comes", False)
    except KeyboardInterrupt:
        verdict("an interrupted copy: its storage stays", storage.nbytes() == page.n_bytes and bool(slab._under_way))
    finally:
        pager.settle()
        _slab.ctypes.memmove = move
        signal.signal(signal.SIGINT, before)
    verdict("and its bytes come", bool((torch.tensor([], dtype=torch.uint8).set_(storage) == 7).all()))


def interrupted_at_random():
    """Steps that Ctrl-C ends anywhere are undone and done again."""
    def train(training, draw):
        n_interrupts = 0
        for i in range(16):
            saved = copy.deepcopy((training.model.state_dict(), training.optimizer.state_dict()))
            is_done = False
            for n_tries in range(4):
                try:
                    try:
                        if draw is not None and n_tries < 3:
                            signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.001, 0.03 if i > 2 else 0.3))
                        training.one(i)
                        is_done = True
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    n_interrupts += 1
                if is_done:
                    break
                training.model.load_state_dict(saved[0])
                training.optimizer.load_state_dict(copy.deepcopy(saved[1]))
        return n_interrupts, training.bits()[1]

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    for moves in (False, True):
        kind = torch.optim.AdamW if moves else torch.optim.SGD
        _, expected = train(Training(optimizer=kind), None)
        n_interrupts, got = train(Training("60%" if moves else "75%", moves, optimizer=kind), random.Random(1))
        verdict(f"interrupts anywhere{', all may move' if moves else ''}: the same bits", n_interrupts > 3 and got == expected,
                n_interrupts)
    verdict("the program's handler is in place", signal.signal(signal.SIGALRM, before) is signal.default_int_handler)


def empty_at_first():
    """What had no bytes when it was recorded is noticed when it has some."""
    training = Training("85%", spill=None, optimizer=torch.optim.SGD)
    n_unlike = 0
    for i in range(5):
        x = torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(i))
        rows = torch.arange(0 if i < 4 else 40 * WIDTH) % WIDTH
        try:
            with training.fit.step():
                training.optimizer.zero_grad()
                y = training.model(x)
                (y.square().mean() + torch.tanh(y[rows]).square().sum()).backward()
                training.optimizer.step()
                del y
            n_unlike = training.fit.summary()["steps_unlike"]
        except ebb.torch.DoesNotFit:
            n_unlike = 1
    verdict("empty results that are not empty later: the step is unlike", n_unlike == 1, n_unlike)


def larger_after_small():
    """Steps with a larger batch after smaller ones: gradients of the step before do not come back only to go."""
    training = Training(800000, True, optimizer=torch.optim.Adam, depth=4)  # the gradients alone are half of that
    for i in range(7):
        with training.fit.step():
            training.optimizer.zero_grad()
            size = 1 if i < 3 else 256
            training.model(torch.randn(size, WIDTH, generator=torch.Generator().manual_seed(i))).square().sum().backward()
            training.optimizer.step()
    told = training.fit.summary()
    verdict("a larger batch after small ones: within the budget", told["peak_measured_bytes"] <= told["budget_bytes"], told)


def complex_parameters():
    """They stay, as their uses through conjugates are not seen. The step follows its plan."""
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH, dtype=torch.complex64), nn.Tanh())])
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)

    def train(budget):
        fit = ebb.torch.Budget(budget, model, optimizer, folder, 0, True)
        for i in range(5):
            with fit.step():
                optimizer.zero_grad()
                model(torch.ones(WIDTH, WIDTH, dtype=torch.complex64)).abs().square().mean().backward()
                optimizer.step()
        return fit.summary()
    try:
        train("10%")
        verdict("complex parameters: too little is refused", False)
    except ebb.torch.DoesNotFit as error:
        told = train(error.least_bytes)
        verdict("complex parameters: the least is kept", told["steps_unlike"] == 0 and told["moved_out_bytes"] > 0 and
                told["peak_measured_bytes"] <= told["budget_bytes"], told)


def tensors_without_memory():
    """Forward-mode derivatives have zeros that no memory is behind."""
    training = Training("100%", spill=None, optimizer=torch.optim.SGD)
    for i in range(3):
        with training.fit.step():
            x = torch.ones(4, WIDTH)
            with torch.autograd.forward_ad.dual_level():
                y = training.model(torch.autograd.forward_ad.make_dual(x, torch._efficientzerotensor((4, WIDTH))))
                y.square().mean().backward()
    verdict("zeros without memory", training.fit.summary()["is_planned"])


def compiled():
    """A model that torch.compile made is a step's like another."""
    def train(fit):
        torch.manual_seed(0)
        model = torch.compile(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)), backend="eager")
        optimizer, losses = torch.optim.SGD(model.parameters(), 1e-2), []
        for i in range(4):
            with fit.step() if fit is not None else contextlib.nullcontext():
                optimizer.zero_grad()
                loss = model(torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(i))).square().mean()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        return losses
    verdict("a compiled model: the same bits", train(None) == train(ebb.torch.Budget("90%", spill="ram", effort=0, quiet=True)))


def no_plan_for_more():
    """What the program keeps beside the step leaves no room: that is said in each step."""
    training = Training("85%", spill=None, optimizer=torch.optim.SGD).train(2)
    kept, refused = torch.ones(1 << 20), 0
    for i in range(3):
        try:
            training.one(2 + i)
        except ebb.torch.DoesNotFit:
            refused += 1
    del kept
    verdict("no room beside what is kept: each step is refused", refused == 3, refused)


def scripted():
    """A scripted module's parameters stay, and the others move."""
    training = Training("50%", True)
    training.fit = None
    training.model.append(torch.jit.script(nn.Linear(WIDTH, WIDTH)))
    training.optimizer = torch.optim.AdamW(training.model.parameters(), 1e-3)
    for name, owned in (("with its model", (training.model, training.optimizer)), ("with its optimizer", (None, training.optimizer))):
        training.fit = ebb.torch.Budget("70%", *owned, folder, 0, True)
        training.train(4)
        with torch.no_grad():
            training.model(torch.ones(1, WIDTH))
        verdict(f"a scripted module {name}: it stays, others move", training.fit.summary()["moved_out_bytes"] > 0)


def states_of_any_kind():
    """An optimizer may keep what it likes in its state."""
    class Counting(torch.optim.SGD):
        def step(self, closure=None):
            self.state["n"] = 1
            return super().step(closure)
    training = Training("100%", optimizer=Counting).train(4)
    verdict("a state that is no dict", len(training.losses) == 4)


def masks():
    """An argument that has to be named is as good as another: masks of attention."""
    def train(budget, hook=False):
        torch.manual_seed(0)
        layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(8))
        optimizer, x, losses = torch.optim.SGD(layers.parameters(), 1e-2), torch.randn(2, 4, 128, 32), []
        fit = ebb.torch.Budget(budget, effort=0, quiet=True) if budget is not None else None
        for i in range(5):
            with fit.step() if fit is not None else contextlib.nullcontext():
                optimizer.zero_grad()
                y, mask = 0, torch.randn(128, 128)
                for k, layer in enumerate(layers):
                    if not hook:
                        mask = torch.randn(128, 128) * (k + 1)
                    y = y + layer(functional.scaled_dot_product_attention(x * (k + 1) if hook else x, x, x, attn_mask=mask))
                if hook and i == 4:
                    y.register_hook(lambda gradient: (mask.add_(1), None)[1])
                loss = y.square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                del loss, y, mask
        return losses, [layer.weight.detach().numpy().tobytes() for layer in layers], fit
    plain, got = train(None), train("60%")
    told = got[2].summary()
    verdict("masks: the same bits", plain[:2] == got[:2])
    verdict("masks: the planned peak", told["recomputed_ops"] > 0 and told["peak_measured_bytes"] <= told["peak_planned_bytes"], told)
    expected = train(None, True)
    try:
        verdict("a hook writes a mask: the same bits", expected[:2] == train("60%", True)[:2])
    except RuntimeError as error:
        verdict("a hook writes a mask: that is said", "changed in place" in str(error), error)


def sparse_results():
    """A graph that is never used goes, with what lies in it."""
    training = Training("80%", spill="ram", optimizer=torch.optim.SGD).train(1)
    indices, seen = torch.stack([torch.arange(600) // 30, torch.arange(600) % 30]), []
    for i in range(6):
        with training.fit.step():
            training.optimizer.zero_grad()
            y = training.model(torch.randn(WIDTH, WIDTH))
            values = torch.randn(600, requires_grad=True)
            result = torch.sparse.softmax(torch.sparse_coo_tensor(indices, values, (20, 30)), 1)
            seen.append(weakref.ref(values))
            del result, values
            y.square().mean().backward()
            training.optimizer.step()
            del y
    gc.collect()
    verdict("graphs of sparse tensors go", not any(reference() is not None for reference in seen), seen)


def main():
    torch.set_num_threads(1)
    a_read_fails()
    a_write_fails()
    no_thread()
    two_processes(False)
    two_processes(True)
    interrupted()
    interrupted_at_random()
    empty_at_first()
    larger_after_small()
    complex_parameters()
    tensors_without_memory()
    compiled()
    no_plan_for_more()
    scripted()
    states_of_any_kind()
    masks()
    sparse_results()
    sys.exit(torch_verdict.status)


if __name__ == "__main__":
    main()
