# SPDX-License-Identifier: Apache-2.0
"""Small PyTorch programs as people write them, each in one function, for torch_iterations.py.

`each(n)` counts iterations: what a program does for each value is one true iteration; where one stands in another, either
may be taken for it. Where an iteration has several passes, memory alone does not tell which is the first: `tell(TURN)`
is where it might as well begin. A program that trains nothing does not call them. PROGRAMS: name to function, in order.
"""
import copy

import torch
from torch import nn
from torch.nn import functional as F

PROGRAMS = {}
BEGIN, TURN, END = ("the program: " + what for what in ("begin", "turn", "end"))
_listeners = []  # called with BEGIN where an iteration begins, with END where it ends, with TURN within it


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def tell(what):
    for listener in _listeners:
        listener(what)


def each(iterable):
    values = iter(range(iterable) if isinstance(iterable, int) else iterable)
    while True:
        tell(BEGIN)
        value = next(values, None)
        if value is None:
            tell(END)
            return
        yield value
        tell(END)


def listen(*listeners):
    _listeners[:] = listeners


# ---- networks --------------------------------------------------------------------------------------

def perceptron(width=64, depth=3):
    layers = [layer for _ in range(depth - 1) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def convolutions():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16),
                         nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 36, 10))


class Residual(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(),
                                  nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n))

    def forward(self, x):
        return F.relu(x + self.body(x))


def residual(n_blocks=6):
    return nn.Sequential(nn.Conv2d(3, 8, 3), *(Residual(8) for _ in range(n_blocks)), nn.AdaptiveAvgPool2d(1),
                         nn.Flatten(), nn.Linear(8, 10))


class Attention(nn.Module):
    def __init__(self, n, n_heads=2):
        super().__init__()
        self.n_heads, self.qkv, self.out = n_heads, nn.Linear(n, 3 * n), nn.Linear(n, n)

    def forward(self, x, cache=None):
        b, t, n = x.shape
        q, k, v = (part.view(b, t, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            if "k" in cache:
                k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
            cache["k"], cache["v"] = k, v
        weights = (q @ k.transpose(-1, -2) / 4).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, n))


class Layer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(n), Attention(n), nn.LayerNorm(n)
        self.mlp = nn.Sequential(nn.Linear(n, 4 * n), nn.GELU(), nn.Linear(4 * n, n))

    def forward(self, x, cache=None):
        x = x + self.attention(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, n_layers=8, n=32, n_words=50):
        super().__init__()
        self.words, self.head = nn.Embedding(n_words, n), nn.Linear(n, n_words)
        self.layers = nn.ModuleList(Layer(n) for _ in range(n_layers))

    def forward(self, words, caches=None):
        x = self.words(words)
        for i, layer in enumerate(self.layers):
            x = layer(x, None if caches is None else caches[i])
        return self.head(x)


class Recurrent(nn.Module):
    def __init__(self, n=32):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(16, n), nn.Linear(n, 10)

    def forward(self, x):
        h = c = torch.zeros(x.shape[0], 32)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
        return self.head(h)


def batch(n=16, *shape):
    return torch.randn(n, *(shape or (64,))), torch.randint(0, 10, (n,))


def words(n=4, length=12):
    return torch.randint(0, 50, (n, length))


def next_word_loss(model, text):
    return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


def learn(model, optimizer, x, y):
    """An iteration as most programs have it."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


def learn_words(model, optimizer, text):
    optimizer.zero_grad()
    next_word_loss(model, text).backward()
    optimizer.step()


# ---- plain trainings -------------------------------------------------------------------------------

def train(model, optimizer, make_batch=batch, n=6):
    for _ in each(n):
        learn(model, optimizer, *make_batch())


def images():
    return batch(8, 3, 16, 16)


@program
def sgd():
    model = perceptron()
    train(model, torch.optim.SGD(model.parameters(), 0.01))


@program
def momentum():
    model = perceptron()
    train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9))


@program
def adam():
    model = perceptron()
    train(model, torch.optim.Adam(model.parameters()))


@program
def adam_loop():
    model = perceptron(depth=8)
    train(model, torch.optim.Adam(model.parameters(), foreach=False))


@program
def adam_foreach():
    model = perceptron(depth=8)
    train(model, torch.optim.Adam(model.parameters(), foreach=True))


@program
def adam_fused():
    model = perceptron()
    train(model, torch.optim.Adam(model.parameters(), fused=True))


@program
def adagrad():
    model = perceptron(depth=6)
    train(model, torch.optim.Adagrad(model.parameters(), foreach=False))


@program
def convolution():
    model = convolutions()
    train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), images)


@program
def resnet():
    model = residual()
    train(model, torch.optim.AdamW(model.parameters()), images)


@program
def equal_layers():
    model = perceptron(depth=24)
    train(model, torch.optim.SGD(model.parameters(), 0.01))


@program
def transformer_adamw():
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in each(5):
        loss = next_word_loss(model, words())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def transformer_sgd():
    model = Transformer(12)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in each(5):
        learn_words(model, optimizer, words())


@program
def lstm_unrolled():
    model = Recurrent()
    train(model, torch.optim.Adam(model.parameters()), lambda: batch(8, 20, 16), 5)


@program
def lstm():
    model, head = nn.LSTM(16, 32, 2, batch_first=True), nn.Linear(32, 10)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], 0.1, momentum=0.9)
    for _ in each(6):
        x, y = batch(8, 20, 16)
        optimizer.zero_grad()
        F.cross_entropy(head(model(x)[0][:, -1]), y).backward()
        optimizer.step()


@program
def autoencoder():
    encoder, decoder = nn.Linear(64, 16), nn.Linear(8, 64)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for _ in each(7):
        x, _ = batch()
        mean, spread = encoder(x).chunk(2, -1)
        drawn = mean + torch.randn_like(mean) * spread.exp()
        loss = F.mse_loss(decoder(drawn), x) + (mean.square() + spread.exp() - spread).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def recommender():
    users, items = nn.Embedding(100, 16), nn.Embedding(200, 16)
    optimizer = torch.optim.Adagrad([*users.parameters(), *items.parameters()])
    for _ in each(8):
        score = (users(torch.randint(0, 100, (32,))) * items(torch.randint(0, 200, (32,)))).sum(-1)
        loss = F.binary_cross_entropy_with_logits(score, torch.rand(32).round())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# ---- how people train ------------------------------------------------------------------------------

@program
def gradients_kept():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in each(6):
        x, y = batch()
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def accumulate(model, optimizer, n_parts=4, n=5, **zero):
    for _ in each(n):
        for _ in range(n_parts):
            x, y = batch()
            loss = F.cross_entropy(model(x), y) / n_parts
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(**zero)


@program
def accumulation_adam():
    model = perceptron()
    accumulate(model, torch.optim.Adam(model.parameters()))


@program
def accumulation_sgd():
    model = perceptron()
    accumulate(model, torch.optim.SGD(model.parameters(), 0.01))


@program
def accumulation_kept():
    model = perceptron()
    accumulate(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), set_to_none=False)


@program
def accumulation_transformer():
    model = Transformer(4)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in each(4):
        for _ in range(3):
            (next_word_loss(model, words()) / 3).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@program
def micro_batches():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in each(6):
        x, y = batch(32)
        optimizer.zero_grad()
        loss = 0
        for part_x, part_y in zip(x.split(8), y.split(8)):
            loss = loss + F.cross_entropy(model(part_x), part_y)
        loss.backward()
        optimizer.step()


@program
def evaluation_between():
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3):
        for _ in each(4):
            learn(model, optimizer, *batch())
        with torch.no_grad():
            for _ in range(3):
                x, y = batch(32)
                F.cross_entropy(model(x), y).item()


@program
def evaluation_long():
    model = residual(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(2):
        for _ in each(4):
            learn(model, optimizer, *images())
        model.eval()
        with torch.no_grad():
            for _ in range(20):
                model(images()[0]).argmax(-1)
        model.train()


@program
def one_step_long_evaluation():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in each(1):
        learn(model, optimizer, *batch())
    with torch.no_grad():
        for _ in range(15):
            model(batch()[0])


@program
def one_step():
    model = Transformer(12)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in each(1):
        learn_words(model, optimizer, words())


@program
def one_step_adam_loop():
    model = perceptron(depth=16)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for _ in each(1):
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program
def schedule_and_clipping():
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in each(8):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


@program
def logging():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for i in each(9):
        loss = learn(model, optimizer, *batch())
        if i % 3 == 2:
            loss.item()
            [parameter.grad.norm().item() for parameter in model.parameters()]


@program
def saving():
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for i in each(9):
        learn(model, optimizer, *batch())
        if i % 4 == 3:
            copy.deepcopy(model.state_dict())


@program
def averaged_weights():
    model = perceptron()
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in each(6):
        learn(model, optimizer, *batch())
        with torch.no_grad():
            for a, b in zip(average.parameters(), model.parameters()):
                a.mul_(0.99).add_(0.01 * b)


@program
def warm_up_differs():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for i in each(9):
        learn(model, optimizer, *batch(4 if i < 3 else 16))


@program
def batches_vary():
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for n in each([16, 16, 7, 16, 12, 16, 16, 9]):
        learn(model, optimizer, *batch(n))


@program
def texts_vary():
    model = Transformer(4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for length in each([9, 14, 11, 17, 8, 12, 15]):
        learn_words(model, optimizer, words(4, length))


@program
def sequences_vary():
    model = Recurrent()
    optimizer = torch.optim.Adam(model.parameters())
    for length in each([9, 14, 11, 17, 8, 12]):
        learn(model, optimizer, *batch(8, length, 16))


@program
def last_batch_smaller():
    model = convolutions()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(3):
        for n in each([8, 8, 8, 3]):
            learn(model, optimizer, *batch(n, 3, 16, 16))


@program
def stopped_early():
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for i in each(7):
        x, y = batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if i == 6:
            break
        loss.backward()
        optimizer.step()


@program
def data_loader():
    data = torch.utils.data.TensorDataset(torch.randn(80, 64), torch.randint(0, 10, (80,)))
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in range(2):
        for x, y in each(torch.utils.data.DataLoader(data, 16, shuffle=True)):
            learn(model, optimizer, x, y)


@program
def mixed_precision():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    for _ in each(6):
        x, y = batch()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@program
def checkpointed_layers():
    model = Transformer(6)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in each(5):
        text = words()
        optimizer.zero_grad()
        x = model.words(text[:, :-1])
        for layer in model.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        F.cross_entropy(model.head(x).flatten(0, 1), text[:, 1:].flatten()).backward()
        optimizer.step()


# ---- several networks, optimizers, passes ----------------------------------------------------------

def gan(n_critic):
    maker, judge = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64)), nn.Sequential(
        nn.Linear(64, 32), nn.LeakyReLU(), nn.Linear(32, 1))
    of_maker, of_judge = torch.optim.Adam(maker.parameters()), torch.optim.Adam(judge.parameters())
    for _ in each(6):
        for _ in range(n_critic):
            of_judge.zero_grad()
            (F.softplus(-judge(batch()[0])).mean() + F.softplus(judge(maker(torch.randn(16, 8)).detach())).mean()
             ).backward()
            of_judge.step()
        tell(TURN)
        of_maker.zero_grad()
        F.softplus(-judge(maker(torch.randn(16, 8)))).mean().backward()
        of_maker.step()


@program
def gan_two_optimizers():
    gan(1)


@program
def gan_three_critics():
    gan(3)


def wgan(n_critic, make_optimizer):
    """As in the paper, which takes five steps of the critic for one of the generator."""
    maker, critic = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 64)), nn.Sequential(
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
    of_maker, of_critic = make_optimizer(maker.parameters()), make_optimizer(critic.parameters())
    for _ in each(6):
        for _ in range(n_critic):
            loss = critic(maker(torch.randn(16, 8)).detach()).mean() - critic(batch()[0]).mean()
            of_critic.zero_grad()
            loss.backward()
            of_critic.step()
            for p in critic.parameters():
                p.data.clamp_(-0.01, 0.01)
        tell(TURN)
        of_maker.zero_grad()
        (-critic(maker(torch.randn(16, 8))).mean()).backward()
        of_maker.step()


@program
def wgan_four_critics():
    wgan(4, torch.optim.Adam)


@program
def wgan_five_critics():
    wgan(5, torch.optim.RMSprop)


@program
def gan_sgd():
    maker, judge = perceptron(64, 3), perceptron(10, 2)
    of_maker, of_judge = torch.optim.SGD(maker.parameters(), 0.1), torch.optim.SGD(judge.parameters(), 0.1)
    for _ in each(7):
        of_judge.zero_grad()
        fake = maker(torch.randn(16, 64))
        (judge(fake.detach()).mean() - judge(torch.randn(16, 10)).mean()).backward()
        of_judge.step()
        tell(TURN)
        of_maker.zero_grad()
        judge(fake).mean().backward()
        of_maker.step()


@program
def two_optimizers():
    body, head = perceptron(), nn.Linear(10, 10)
    optimizers = torch.optim.SGD(body.parameters(), 0.01, momentum=0.9), torch.optim.Adam(head.parameters())
    for _ in each(6):
        x, y = batch()
        for optimizer in optimizers:
            optimizer.zero_grad()
        F.cross_entropy(head(body(x)), y).backward()
        for optimizer in optimizers:
            optimizer.step()


@program
def optimizer_for_each_parameter():
    model = perceptron(depth=5)
    optimizers = [torch.optim.Adam([parameter]) for parameter in model.parameters()]
    for _ in each(5):
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def closure_of(model, optimizer, x, y):
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return closure


@program
def lbfgs():
    model = perceptron(32, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
    for _ in each(6):
        optimizer.step(closure_of(model, optimizer, *batch(16, 32)))


@program
def lbfgs_line_search():
    model = perceptron(32, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    closure = closure_of(model, optimizer, *batch(16, 32))
    for _ in each(4):
        optimizer.step(closure)


@program
def distillation():
    teacher, student = perceptron(depth=6), perceptron(depth=3)
    optimizer = torch.optim.Adam(student.parameters())
    for _ in each(6):
        x, _ = batch()
        with torch.no_grad():
            wanted = teacher(x).softmax(-1)
        optimizer.zero_grad()
        F.kl_div(student(x).log_softmax(-1), wanted).backward()
        optimizer.step()


@program
def siamese():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in each(6):
        a, b = model(batch()[0]), model(batch()[0])
        optimizer.zero_grad()
        (1 - F.cosine_similarity(a, b)).mean().backward()
        optimizer.step()


@program
def tasks_in_turn():
    body, heads = perceptron(), [nn.Linear(10, 10), nn.Linear(10, 3)]
    optimizer = torch.optim.Adam([*body.parameters(), *heads[0].parameters(), *heads[1].parameters()])
    for _ in each(5):
        for head in each(heads):
            x, _ = batch()
            optimizer.zero_grad()
            head(body(x)).square().mean().backward()
            optimizer.step()


@program
def sharpness_aware():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in each(6):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            moves = [0.05 * p.grad / (p.grad.norm() + 1e-9) for p in model.parameters()]
            for p, move in zip(model.parameters(), moves):
                p.add_(move)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves):
                p.sub_(move)
        optimizer.step()


@program
def gradient_penalty():
    model = perceptron()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in each(6):
        x, y = batch()
        x.requires_grad_()
        loss = F.cross_entropy(model(x), y)
        slope, = torch.autograd.grad(loss, x, create_graph=True)
        optimizer.zero_grad()
        (loss + slope.square().sum()).backward()
        optimizer.step()


@program
def adversarial():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    for _ in each(6):
        x, y = batch()
        move = torch.zeros_like(x)
        for _ in range(3):
            move.requires_grad_()
            slope, = torch.autograd.grad(F.cross_entropy(model(x + move), y), move)
            move = (move + 0.1 * slope.sign()).detach()
        tell(TURN)
        optimizer.zero_grad()
        F.cross_entropy(model(x + move), y).backward()
        optimizer.step()


@program
def meta_learning():
    model = nn.Linear(16, 10)
    optimizer = torch.optim.Adam(model.parameters())
    for _ in each(5):
        weights = dict(model.named_parameters())
        for _ in range(3):
            x, y = batch(8, 16)
            loss = F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            weights = {name: w - 0.1 * s for (name, w), s in zip(weights.items(), slopes)}
        x, y = batch(8, 16)
        optimizer.zero_grad()
        F.cross_entropy(torch.func.functional_call(model, weights, (x,)), y).backward()
        optimizer.step()


@program
def policy_gradient():
    policy = perceptron(16, 3)
    optimizer = torch.optim.Adam(policy.parameters())
    for _ in each(5):
        state, seen, done = torch.randn(8, 16), [], []
        with torch.no_grad():
            for _ in range(6):
                action = torch.distributions.Categorical(logits=policy(state)).sample()
                seen.append(state)
                done.append(action)
                state = state + 0.1 * torch.randn(8, 16)
        chances = policy(torch.cat(seen)).log_softmax(-1).gather(1, torch.cat(done)[:, None])
        optimizer.zero_grad()
        (-chances * torch.randn(48, 1)).mean().backward()
        optimizer.step()


@program
def generating_between():
    model = Transformer(3)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for _ in each(4):
            learn_words(model, optimizer, words())
        with torch.no_grad():
            text = words(1, 3)
            for _ in range(8):
                text = torch.cat([text, model(text)[:, -1].argmax(-1, keepdim=True)], 1)


# ---- without an optimizer --------------------------------------------------------------------------

@program
def parameter_loop():
    model = perceptron(depth=6)
    for _ in each(6):
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad = None


@program
def parameter_loop_kept():
    model = perceptron(depth=6)
    for _ in each(6):
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
                p.grad.zero_()


@program
def parameters_anew():
    weights = [torch.randn(64, 64, requires_grad=True) for _ in range(4)]
    for _ in each(6):
        x, _ = batch()
        for w in weights:
            x = torch.tanh(x @ w)
        slopes = torch.autograd.grad(x.square().mean(), weights)
        weights = [(w - 0.1 * s).detach().requires_grad_() for w, s in zip(weights, slopes)]


@program
def evaluation_only():
    model = residual(4).eval()
    with torch.no_grad():
        for _ in range(8):
            x, y = images()
            F.cross_entropy(model(x), y).item()


@program
def inference_perceptron():
    model = perceptron(depth=12)
    with torch.inference_mode():
        for _ in range(6):
            model(batch()[0]).softmax(-1)


@program
def inference_one_pass():
    model = Transformer(12)
    with torch.no_grad():
        model(words(4, 16))


@program
def inference_with_graph():
    model = Transformer(8)
    for _ in range(4):
        model(words(4, 16)).argmax(-1)


@program
def decoding():
    model = Transformer(4)
    caches, word = [{} for _ in model.layers], words(2, 6)
    with torch.no_grad():
        for _ in range(12):
            word = model(word, caches)[:, -1:].argmax(-1)


@program
def decoding_without_cache():
    model, text = Transformer(4), words(2, 4)
    with torch.no_grad():
        for _ in range(8):
            text = torch.cat([text, model(text)[:, -1:].argmax(-1)], 1)


@program
def one_backward():
    model = Transformer(12)
    next_word_loss(model, words()).backward()


@program
def backward_only():
    model = perceptron(depth=5)
    for _ in range(6):
        x, y = batch()
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        sum(parameter.grad.square().sum() for parameter in model.parameters()).item()


@program
def features():
    model, kept = convolutions().eval(), []
    with torch.no_grad():
        for _ in range(6):
            kept.append(model(images()[0]))
    torch.cat(kept).mean(0)


@program
def clusters():
    points = torch.randn(200, 16)
    centres = points[:8].clone()
    for _ in range(10):
        nearest = torch.cdist(points, centres).argmin(-1)
        centres = torch.stack([points[nearest == c].sum(0) / ((nearest == c).sum() + 1) for c in range(8)])
