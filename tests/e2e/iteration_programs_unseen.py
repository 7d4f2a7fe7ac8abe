# SPDX-License-Identifier: Apache-2.0
"""More programs as iteration_programs.py has them, written after the finder's confidence had been set on those.

What the finder said of them when it first saw them is in docs/iteration.md.
"""
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

import iteration_programs
from iteration_programs import TURN, each, tell

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


# ---- networks of other kinds -----------------------------------------------------------------------

@program
def vision_transformer_warm_up():
    class Vision(nn.Module):
        def __init__(self, n=32):
            super().__init__()
            self.patches, self.first = nn.Conv2d(3, n, 4, 4), nn.Parameter(torch.zeros(1, 1, n))
            self.places = nn.Parameter(torch.randn(1, 17, n))
            layer = nn.TransformerEncoderLayer(n, 4, 64, 0.1, batch_first=True, norm_first=True)
            self.layers, self.head = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(n, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.layers(x)[:, 0])

    model = Vision()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0}])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 4))
    for _ in each(6):
        images, labels = torch.randn(8, 3, 16, 16), torch.randint(0, 10, (8,))
        loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@program
def gru_truncated():
    words, body, head = nn.Embedding(40, 24), nn.GRU(24, 48, 2), nn.Linear(48, 40)
    parameters = [*words.parameters(), *body.parameters(), *head.parameters()]
    optimizer = torch.optim.RMSprop(parameters, 1e-3)
    text = torch.randint(0, 40, (101, 8))
    hidden = None
    for start in each(range(0, 100, 10)):
        out, hidden = body(words(text[start:start + 10]), hidden)
        hidden = hidden.detach()
        loss = F.cross_entropy(head(out).flatten(0, 1), text[start + 1:start + 11].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(parameters, 0.5)
        optimizer.step()


@program
def graph_convolution():
    n = 60
    edges = (torch.rand(n, n) < 0.1).float() + torch.eye(n)
    scale = edges.sum(1).rsqrt()
    edges = scale[:, None] * edges * scale
    features, labels, known = torch.randn(n, 20), torch.randint(0, 4, (n,)), torch.rand(n) < 0.5
    first, second = nn.Linear(20, 16), nn.Linear(16, 4)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], weight_decay=5e-4)

    def network():
        return edges @ second(F.dropout(torch.relu(edges @ first(features)), 0.5))

    for _ in range(3):
        for _ in each(4):
            optimizer.zero_grad()
            loss = F.cross_entropy(network()[known], labels[known])
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            (network().argmax(1)[~known] == labels[~known]).float().mean().item()


@program
def u_net():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            pair = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())
            self.down1, self.down2, self.middle = pair(1, 8), pair(8, 16), pair(16, 16)
            self.up2, self.up1, self.out = pair(32, 8), pair(16, 8), nn.Conv2d(8, 2, 1)

        def forward(self, x):
            a = self.down1(x)
            b = self.down2(F.max_pool2d(a, 2))
            c = self.middle(F.max_pool2d(b, 2))
            d = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
            return self.out(self.up1(torch.cat([F.interpolate(d, scale_factor=2), a], 1)))

    model = Net()
    optimizer = torch.optim.NAdam(model.parameters())
    for _ in each(5):
        image, mask = torch.randn(4, 1, 16, 16), torch.randint(0, 2, (4, 16, 16))
        score = model(image)
        chance = score.softmax(1)[:, 1]
        overlap = 1 - 2 * (chance * mask).sum() / (chance.sum() + mask.sum() + 1)
        optimizer.zero_grad(set_to_none=True)
        (F.cross_entropy(score, mask) + overlap).backward()
        optimizer.step()


@program
def translation():
    n = 32
    source, target, head = nn.Embedding(30, n), nn.Embedding(30, n), nn.Linear(n, 30)
    model = nn.Transformer(n, 2, 2, 2, 64, 0.0, batch_first=True)
    parameters = [p for part in (source, target, head, model) for p in part.parameters()]
    optimizer = torch.optim.Adam(parameters, betas=(0.9, 0.98))
    for _ in each(5):
        asked, answer = torch.randint(0, 30, (4, 9)), torch.randint(0, 30, (4, 8))
        mask = nn.Transformer.generate_square_subsequent_mask(7)
        out = head(model(source(asked), target(answer[:, :-1]), tgt_mask=mask))
        loss = F.cross_entropy(out.transpose(1, 2), answer[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def experts():
    gate, out = nn.Linear(24, 4), nn.Linear(24, 10)
    networks = nn.ModuleList(nn.Sequential(nn.Linear(24, 48), nn.GELU(), nn.Linear(48, 24)) for _ in range(4))
    optimizer = torch.optim.AdamW([*gate.parameters(), *out.parameters(), *networks.parameters()])
    for _ in each(8):
        x, y = torch.randn(32, 24), torch.randint(0, 10, (32,))
        weight, chosen = gate(x).softmax(-1).max(-1)
        mixed = torch.zeros_like(x)
        for i, network in enumerate(networks):
            rows = (chosen == i).nonzero()[:, 0]
            if len(rows):
                mixed = mixed.index_add(0, rows, network(x[rows]) * weight[rows, None])
        loss = F.cross_entropy(out(x + mixed), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def flow():
    halves = [nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 16)) for _ in range(6)]
    optimizer = torch.optim.Adamax([p for half in halves for p in half.parameters()])
    for _ in each(6):
        a, b = torch.randn(64, 16).chunk(2, 1)
        log_slope = 0
        for half in halves:
            scale, shift = half(a).chunk(2, 1)
            a, b = b * scale.tanh().exp() + shift, a
            log_slope = log_slope + scale.tanh().sum(1)
        loss = (0.5 * (a.square().sum(1) + b.square().sum(1)) - log_slope).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def differential_equation():
    slope, head = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8)), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*slope.parameters(), *head.parameters()], 0.01, nesterov=True, momentum=0.9)
    for _ in each(5):
        x, h = torch.randn(16, 8), 0.1
        for _ in range(5):
            k1 = slope(x)
            k2 = slope(x + h / 2 * k1)
            k3 = slope(x + h / 2 * k2)
            k4 = slope(x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        loss = head(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def sounds():
    model = nn.Sequential(nn.Conv1d(1, 8, 9, 2), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 16, 9, 2),
                          nn.BatchNorm1d(16), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 5))
    optimizer = torch.optim.RAdam(model.parameters())
    for epoch in range(2):
        model.train()
        for _ in each(5):
            sound, label = torch.randn(6, 1, 200), torch.randint(0, 5, (6,))
            sound = sound + 0.01 * torch.randn_like(sound)
            optimizer.zero_grad()
            loss = F.nll_loss(model(sound).log_softmax(1), label)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses = [F.nll_loss(model(torch.randn(12, 1, 200)).log_softmax(1), torch.randint(0, 5, (12,)))
                      for _ in range(2)]
        torch.stack(losses).mean().item()


# ---- ways to learn ---------------------------------------------------------------------------------

@program
def contrast():
    body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten())
    head = nn.Sequential(nn.Linear(16 * 9, 32), nn.ReLU(), nn.Linear(32, 16))
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], 0.1, momentum=0.9, weight_decay=1e-4)
    for _ in each(6):
        image = torch.rand(8, 3, 16, 16)
        views = torch.cat([image.flip(3), image + 0.1 * torch.randn_like(image)])
        z = F.normalize(head(body(views)), dim=1)
        likeness = (z @ z.T / 0.5).masked_fill(torch.eye(16, dtype=torch.bool), -1e9)
        loss = F.cross_entropy(likeness, torch.arange(16).roll(8))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def momentum_teacher():
    student = iteration_programs.perceptron(32)
    teacher, guess = copy.deepcopy(student).requires_grad_(False), nn.Linear(10, 10)
    optimizer = torch.optim.Adam([*student.parameters(), *guess.parameters()])
    for _ in each(6):
        x = torch.randn(16, 32)
        with torch.no_grad():
            wanted = F.normalize(teacher(x + 0.1 * torch.randn_like(x)), dim=-1)
        loss = -(F.normalize(guess(student(x)), dim=-1) * wanted).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.01)


@program
def diffusion_averaged():
    model = nn.Sequential(nn.Linear(17, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 16))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in each(7):
        x, t, noise = torch.randn(32, 16), torch.rand(32, 1), torch.randn(32, 16)
        mixed = (t * math.pi / 2).cos() * x + (t * math.pi / 2).sin() * noise
        loss = F.mse_loss(model(torch.cat([mixed, t], 1)), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update_parameters(model)
    x = torch.randn(8, 16)
    with torch.no_grad():
        for i in range(10):
            x = x - 0.1 * average(torch.cat([x, torch.full((8, 1), 1 - i / 10)], 1))


@program
def masked_words():
    n = 32
    words, head = nn.Embedding(52, n), nn.Linear(n, 52)
    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(n, 2, 64, 0.1, batch_first=True), 3,
                                   enable_nested_tensor=False)
    parameters = [*words.parameters(), *layers.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    for _ in each(6):
        text = torch.randint(0, 50, (4, 16))
        hidden = torch.rand(4, 16) < 0.15
        hidden[:, 0] = True
        out = head(layers(words(text.masked_fill(hidden, 51))))
        loss = F.cross_entropy(out[hidden], text[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def q_learning():
    network = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
    target = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters())
    states, nexts = torch.zeros(100, 6), torch.zeros(100, 6)
    actions, rewards = torch.zeros(100, dtype=torch.long), torch.zeros(100)
    state = torch.randn(6)
    for i in each(30):
        with torch.no_grad():
            action = network(state).argmax() if torch.rand(()) > 0.2 else torch.randint(0, 3, ())
        moved = state + 0.1 * torch.randn(6)
        states[i], nexts[i], actions[i], rewards[i] = state, moved, action, moved.sum()
        state = moved
        if i < 16:
            continue
        drawn = torch.randint(0, i, (16,))
        with torch.no_grad():
            wanted = rewards[drawn] + 0.9 * target(nexts[drawn]).max(1).values
        loss = F.smooth_l1_loss(network(states[drawn]).gather(1, actions[drawn, None])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 5 == 0:
            target.load_state_dict(network.state_dict())


@program
def proximal_policy():
    policy, value = iteration_programs.perceptron(12), nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 3e-4)
    for _ in each(3):
        state, seen, done = torch.randn(8, 12), [], []
        with torch.no_grad():
            for _ in range(8):
                action = torch.distributions.Categorical(logits=policy(state)).sample()
                seen.append(state)
                done.append(action)
                state = state + 0.1 * torch.randn(8, 12)
            seen, done = torch.cat(seen), torch.cat(done)
            before = policy(seen).log_softmax(-1).gather(1, done[:, None])
            gain = torch.randn(64, 1)
        for rows in each([part for _ in range(3) for part in torch.randperm(64).split(16)]):
            ratio = (policy(seen[rows]).log_softmax(-1).gather(1, done[rows, None]) - before[rows]).exp()
            loss = -torch.min(ratio * gain[rows], ratio.clamp(0.8, 1.2) * gain[rows]).mean()
            loss = loss + 0.5 * (value(seen[rows]) - gain[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


@program
def evolution():
    model = iteration_programs.perceptron(16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    weights = nn.utils.parameters_to_vector(model.parameters()).detach()
    for _ in each(5):
        x, y = torch.randn(16, 16), torch.randint(0, 10, (16,))
        moves, losses = [], []
        with torch.no_grad():
            for _ in range(6):
                moves.append(torch.randn_like(weights))
                nn.utils.vector_to_parameters(weights + 0.05 * moves[-1], model.parameters())
                losses.append(F.cross_entropy(model(x), y))
            nn.utils.vector_to_parameters(weights, model.parameters())
            losses = torch.stack(losses)
            slope = ((losses - losses.mean())[:, None] * torch.stack(moves)).mean(0)
            start = 0
            for p in model.parameters():
                p.grad = slope[start:start + p.numel()].view_as(p).clone()
                start += p.numel()
        optimizer.step()
        weights = nn.utils.parameters_to_vector(model.parameters()).detach()


@program
def layer_by_layer():
    layers = [nn.Sequential(nn.Linear(48, 48), nn.ReLU()) for _ in range(4)]
    heads = [nn.Linear(48, 10) for _ in layers]
    optimizers = [torch.optim.Adam([*layer.parameters(), *head.parameters()]) for layer, head in zip(layers, heads)]
    for _ in each(5):
        x, y = torch.randn(16, 48), torch.randint(0, 10, (16,))
        for layer, head, optimizer in each(zip(layers, heads, optimizers)):
            x = layer(x.detach())
            optimizer.zero_grad()
            F.cross_entropy(head(x), y).backward()
            optimizer.step()


@program
def alternating_factors():
    wanted = torch.randn(60, 50)
    left, right = nn.Parameter(torch.randn(60, 8)), nn.Parameter(torch.randn(8, 50))
    optimizers = torch.optim.Adam([left], 0.01), torch.optim.SGD([right], 0.01, momentum=0.5)
    for _ in each(5):
        for optimizer in each(optimizers):
            tell(TURN)
            loss = (left @ right - wanted).square().mean()
            for one in optimizers:
                one.zero_grad()
            loss.backward()
            optimizer.step()


@program
def sparse_and_dense():
    words, head = nn.EmbeddingBag(200, 16, sparse=True), nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    of_words, of_head = torch.optim.SparseAdam(words.parameters()), torch.optim.Adam(head.parameters())
    for _ in each(6):
        text, label = torch.randint(0, 200, (16, 12)), torch.randint(0, 2, (16,))
        of_words.zero_grad()
        of_head.zero_grad()
        F.cross_entropy(head(words(text)), label).backward()
        of_words.step()
        of_head.step()


@program
def two_backward_passes():
    body, mark, size = iteration_programs.perceptron(32), nn.Linear(10, 3), nn.Linear(10, 1)
    optimizer = torch.optim.Adam([*body.parameters(), *mark.parameters(), *size.parameters()])
    for _ in each(6):
        x = torch.randn(16, 32)
        shared = body(x)
        optimizer.zero_grad()
        F.cross_entropy(mark(shared), torch.randint(0, 3, (16,))).backward(retain_graph=True)
        F.mse_loss(size(shared), torch.randn(16, 1)).backward()
        optimizer.step()


@program
def head_first_then_all():
    body, head = iteration_programs.convolutions()[:-1], nn.Linear(16 * 36, 4)
    for p in body.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam(head.parameters())
    for i in each(9):
        if i == 3:
            for p in body.parameters():
                p.requires_grad_(True)
            optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], 1e-4)
        image, label = torch.randn(8, 3, 16, 16), torch.randint(0, 4, (8,))
        optimizer.zero_grad()
        F.cross_entropy(head(body(image)), label).backward()
        optimizer.step()


@program
def low_rank_updates():
    class Added(nn.Module):
        def __init__(self, linear, rank=2):
            super().__init__()
            self.linear = linear.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(rank, linear.in_features))
            self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

        def forward(self, x):
            return self.linear(x) + x @ self.a.T @ self.b.T

    model = iteration_programs.Transformer(3).requires_grad_(False)
    for layer in model.layers:
        layer.attention.qkv, layer.attention.out = Added(layer.attention.qkv), Added(layer.attention.out)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3)
    text = torch.randint(0, 50, (40, 12))
    for part in each(text.split(4)):
        loss = F.cross_entropy(model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten())
        (loss / 2).backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def larger_and_larger():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for size in (8, 12, 16):
        for _ in each(4):
            image, label = torch.randn(8, 3, size, size), torch.randint(0, 10, (8,))
            optimizer.zero_grad()
            F.cross_entropy(model(image), label).backward()
            optimizer.step()


# ---- ways to step ----------------------------------------------------------------------------------

@program
def step_within_backward():
    model = iteration_programs.perceptron(48, 5)
    optimizers = {p: torch.optim.SGD([p], 0.01, momentum=0.9) for p in model.parameters()}

    def step(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step)
    for _ in each(6):
        x, y = torch.randn(16, 48), torch.randint(0, 10, (16,))
        F.cross_entropy(model(x), y).backward()


@program
def optimizer_of_ones_own():
    class Lion(torch.optim.Optimizer):
        def __init__(self, parameters, lr=1e-3):
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["m"] = torch.zeros_like(p)
                    p.add_((0.9 * state["m"] + 0.1 * p.grad).sign(), alpha=-group["lr"])
                    state["m"].lerp_(p.grad, 0.01)

    model = iteration_programs.perceptron(48, 5)
    optimizer = Lion(model.parameters())
    for _ in each(6):
        x, y = torch.randn(16, 48), torch.randint(0, 10, (16,))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program
def functional_descent():
    model = iteration_programs.perceptron(24)
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss_of(weights, x, y):
        return F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)

    for _ in each(6):
        slopes, loss = torch.func.grad_and_value(loss_of)(weights, torch.randn(16, 24), torch.randint(0, 10, (16,)))
        weights = {name: w - 0.1 * slopes[name] for name, w in weights.items()}


@program
def ensemble():
    models = [iteration_programs.perceptron(24) for _ in range(3)]
    weights, buffers = torch.func.stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    optimizer = torch.optim.Adam(weights.values())
    for _ in each(5):
        x, y = torch.randn(16, 24), torch.randint(0, 10, (16,))
        out = torch.func.vmap(lambda w, b: torch.func.functional_call(base, (w, b), (x,)))(weights, buffers)
        loss = F.cross_entropy(out.flatten(0, 1), y.repeat(3))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def compiled():
    model = iteration_programs.perceptron(32)
    fast = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.Adam(model.parameters())
    for _ in each(6):
        x, y = torch.randn(16, 32), torch.randint(0, 10, (16,))
        optimizer.zero_grad()
        F.cross_entropy(fast(x), y).backward()
        optimizer.step()


@program
def half_weights_and_masters():
    model = iteration_programs.perceptron(48, 4)
    masters = [p.detach().clone().requires_grad_() for p in model.parameters()]
    model.bfloat16()
    optimizer = torch.optim.Adam(masters)
    for _ in each(6):
        x, y = torch.randn(16, 48, dtype=torch.bfloat16), torch.randint(0, 10, (16,))
        F.cross_entropy(model(x).float(), y).backward()
        for master, p in zip(masters, model.parameters()):
            master.grad, p.grad = p.grad.float(), None
        optimizer.step()
        with torch.no_grad():
            for master, p in zip(masters, model.parameters()):
                p.copy_(master)


@program
def accumulation_by_remainder():
    model = iteration_programs.perceptron(32)
    optimizer = torch.optim.Adam(model.parameters())
    data = [(torch.randn(8, 32), torch.randint(0, 10, (8,))) for _ in range(14)]
    for first in each(range(0, 14, 4)):
        for i in range(first, min(first + 4, 14)):
            x, y = data[i]
            (F.cross_entropy(model(x), y) / 4).backward()
            if i % 4 == 3 or i == 13:
                optimizer.step()
                optimizer.zero_grad()


@program
def loader_with_worker():
    data = torch.utils.data.TensorDataset(torch.randn(90, 24), torch.randint(0, 10, (90,)))
    model = iteration_programs.perceptron(24)
    optimizer = torch.optim.AdamW(model.parameters())
    best = math.inf
    for _ in range(2):
        for x, y in each(torch.utils.data.DataLoader(data, 16, num_workers=1)):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            best = min(best, loss.item())


# ---- what trains nothing ---------------------------------------------------------------------------

@program
def saliency():
    model = iteration_programs.convolutions().eval().requires_grad_(False)
    for _ in range(6):
        image = torch.randn(4, 3, 16, 16, requires_grad=True)
        model(image).max(1).values.sum().backward()
        image.grad.abs().amax(1)


@program
def statistics_anew():
    model = iteration_programs.residual(3)
    with torch.no_grad():
        for _ in range(8):
            model(torch.randn(8, 3, 16, 16))


@program
def dropout_many_times():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 64), nn.ReLU(), nn.Dropout(),
                          nn.Linear(64, 10)).train()
    x = torch.randn(16, 32)
    with torch.no_grad():
        chances = torch.stack([model(x).softmax(-1) for _ in range(12)])
    chances.var(0).sum().item()
