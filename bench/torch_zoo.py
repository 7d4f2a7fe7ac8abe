# SPDX-License-Identifier: Apache-2.0
"""Training programs over models of torchvision, transformers and PyTorch's own modules, small, with made-up data.

`PROGRAMS`: name -> function that gives (modules, step). step(i) is the whole i-th training step, as a user writes it, and
gives its loss. step.optimizer: the optimizer, if there is one only.
"""
import copy
import functools
import math

import torch
from torch import nn
from torch.nn import functional

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def add(name, make, *args, **kwargs):
    PROGRAMS[name] = functools.partial(make, *args, **kwargs)


def warm(name):
    """Import what a program needs."""
    made = PROGRAMS[name]
    if isinstance(made, functools.partial) and made.func is transformer:
        import transformers
        getattr(transformers, made.args[1])
    elif isinstance(made, functools.partial):
        import torchvision
        assert torchvision


def seeded(i):
    return torch.Generator().manual_seed(1000 + i)


def images(i, n, size, channels=3):
    return torch.randn(n, channels, size, size, generator=seeded(i))


def numbers(i, *size, high):
    return torch.randint(0, high, size, generator=seeded(i))


def adamw(parameters):
    return torch.optim.AdamW(parameters, 1e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.01, momentum=0.9, weight_decay=1e-4)


def loop(model, loss_of, optimizer_of=adamw, clip=None, dtype=None, n_parts=1):
    """(modules, step) of the usual step. loss_of(i): of the i-th batch."""
    optimizer = optimizer_of(model.parameters())

    def step(i):
        optimizer.zero_grad()
        total = 0.0
        for part in range(n_parts):
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                loss = loss_of(i * n_parts + part) / n_parts
            loss.backward()
            total += loss.item()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return total
    step.optimizer = optimizer
    return [model], step


# ---- torchvision

def classifier(name, n=8, size=64, optimizer_of=sgd, clip=None, dtype=None, **options):
    import torchvision
    model = torchvision.models.get_model(name, weights=None, num_classes=10, **options)

    def loss_of(i):
        output = model(images(i, n, size))
        labels = numbers(i, n, high=10)
        if isinstance(output, tuple):  # with auxiliary heads
            return functional.cross_entropy(output[0], labels) + sum(
                0.3 * functional.cross_entropy(head, labels) for head in output[1:] if head is not None)
        return functional.cross_entropy(output, labels)
    return loop(model, loss_of, optimizer_of, clip, dtype)


def segmenter(name, n=2, size=64):
    import torchvision
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=4)
    return loop(model, lambda i: functional.cross_entropy(model(images(i, n, size))["out"],
                                                          numbers(i, n, size, size, high=4)))


def detector(name, n=2, size=96, has_masks=False, **options):
    """The number of proposals depends on values, so that steps differ."""
    import torchvision
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=4, **options)

    def loss_of(i):
        targets = []
        for j in range(n):
            corners = torch.rand(3, 2, generator=seeded(10 * i + j)) * size / 2
            boxes = torch.cat((corners, corners + size / 3), 1)
            target = {"boxes": boxes, "labels": numbers(i + j, 3, high=3) + 1}
            if has_masks:
                target["masks"] = numbers(i + j, 3, size, size, high=2).to(torch.uint8)
            targets.append(target)
        return sum(model(list(images(i, n, size)), targets).values())
    return loop(model, loss_of, sgd)


def video(name, n=1, frames=8, size=64):
    import torchvision
    model = torchvision.models.get_model(name, weights=None, num_classes=10)
    return loop(model, lambda i: functional.cross_entropy(
        model(torch.randn(n, 3, frames, size, size, generator=seeded(i))), numbers(i, n, high=10)))


def flow(name, n=1, size=128):
    import torchvision
    model = torchvision.models.get_model(name, weights=None)

    def loss_of(i):
        flows = model(images(i, n, size), images(i + 100, n, size), num_flow_updates=3)
        return sum(0.8 ** (len(flows) - k) * flow.abs().mean() for k, flow in enumerate(flows))
    return loop(model, loss_of, adamw, clip=1.0)


for _name in ("resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "squeezenet1_1", "mobilenet_v2",
              "mobilenet_v3_small", "shufflenet_v2_x1_0", "mnasnet0_5", "regnet_y_400mf", "efficientnet_b0"):
    add(_name, classifier, _name)
add("googlenet", classifier, "googlenet", init_weights=False)
add("convnext_tiny", classifier, "convnext_tiny", n=2, optimizer_of=adamw)
add("swin_t", classifier, "swin_t", n=2, optimizer_of=adamw)
add("swin_v2_t", classifier, "swin_v2_t", n=2, optimizer_of=adamw, clip=1.0)
add("vit_b_32", classifier, "vit_b_32", n=4, size=96, image_size=96, optimizer_of=adamw)
add("resnet18_bf16", classifier, "resnet18", dtype=torch.bfloat16)
for _name in ("fcn_resnet50", "deeplabv3_resnet50", "lraspp_mobilenet_v3_large"):
    add(_name, segmenter, _name)
for _name in ("fasterrcnn_mobilenet_v3_large_320_fpn", "retinanet_resnet50_fpn", "fcos_resnet50_fpn", "ssd300_vgg16"):
    add(_name, detector, _name, **({} if _name.startswith(("ssd", "faster")) else {"min_size": 96, "max_size": 128}))
add("maskrcnn_resnet50_fpn", detector, "maskrcnn_resnet50_fpn", has_masks=True, min_size=96, max_size=128)
for _name in ("r3d_18", "mc3_18"):
    add(_name, video, _name)
add("s3d", video, "s3d", frames=16)
add("raft_small", flow, "raft_small")


# ---- transformers

WIDTH = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256}


def transformer(kind, head, n=4, length=32, loss_of=None, optimizer_of=adamw, clip=1.0, dtype=None, checkpoints=False,
                n_parts=1, **config):
    """A model of transformers with random weights, on a batch of tokens that are its own labels."""
    import transformers
    made = getattr(transformers, kind + "Config")(**config)
    model = getattr(transformers, head)(made)
    model.train()
    if checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def text_loss(i):
        tokens = numbers(i, n, length, high=200) + 3
        return model(input_ids=tokens, labels=tokens).loss
    return loop(model, functools.partial(loss_of, model) if loss_of else text_loss, optimizer_of, clip, dtype, n_parts)


def class_loss(model, i):
    return model(input_ids=numbers(i, 4, 32, high=200) + 3, labels=numbers(i, 4, high=2)).loss


def padded_loss(model, i):
    """The mask says where a sequence ends, which is not the same in each step."""
    tokens = numbers(i, 4, 32, high=200) + 3
    mask = (torch.arange(32) < numbers(i, 4, 1, high=20) + 10).long()
    return model(input_ids=tokens, attention_mask=mask, labels=tokens.masked_fill(mask == 0, -100)).loss


def image_loss(model, i):
    return model(pixel_values=images(i, 2, 32), labels=numbers(i, 2, high=2)).loss


def pixel_loss(model, i):
    return model(pixel_values=images(i, 2, 64), labels=numbers(i, 2, 64, 64, high=2)).loss


def clip_loss(model, i):
    return model(input_ids=numbers(i, 4, 16, high=200) + 3, pixel_values=images(i, 4, 32), return_loss=True).loss


def speech_loss(model, i):
    return model(input_values=torch.randn(2, 2000, generator=seeded(i)), labels=numbers(i, 2, 3, high=20) + 1).loss


def whisper_loss(model, i):
    return model(input_features=torch.randn(2, 16, 64, generator=seeded(i)), labels=numbers(i, 2, 12, high=200) + 3).loss


def masked_image_loss(model, i):
    return model(pixel_values=images(i, 2, 32)).loss


def detr_loss(model, i):
    labels = [{"class_labels": numbers(i, 2, high=2), "boxes": torch.rand(2, 4, generator=seeded(i)) * 0.4 + 0.2}
              for _ in range(2)]
    return model(pixel_values=images(i, 2, 64), labels=labels).loss


GPT2 = {"n_embd": 64, "n_layer": 3, "n_head": 4, "vocab_size": 256, "n_positions": 64, "bos_token_id": 0, "eos_token_id": 0}
SMALL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
KEYS = {"num_key_value_heads": 2}
IMAGE = {"image_size": 32, "patch_size": 8, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
         "intermediate_size": 128}
BART = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "vocab_size": 256, "max_position_embeddings": 64}
add("gpt2", transformer, "GPT2", "GPT2LMHeadModel", **GPT2)
add("gpt2_checkpointing", transformer, "GPT2", "GPT2LMHeadModel", checkpoints=True, use_cache=False, **GPT2)
add("gpt2_bf16", transformer, "GPT2", "GPT2LMHeadModel", dtype=torch.bfloat16, **GPT2)
add("gpt2_accumulating", transformer, "GPT2", "GPT2LMHeadModel", n_parts=4, **GPT2)
add("gpt2_eager_attention", transformer, "GPT2", "GPT2LMHeadModel", attn_implementation="eager", **GPT2)
add("gpt2_padded", transformer, "GPT2", "GPT2LMHeadModel", loss_of=padded_loss, **GPT2)
add("gpt_neo", transformer, "GPTNeo", "GPTNeoForCausalLM", hidden_size=64, num_layers=2, num_heads=4, vocab_size=256,
    attention_types=[[["global", "local"], 1]], max_position_embeddings=64, **SMALL)
add("bloom", transformer, "Bloom", "BloomForCausalLM", hidden_size=64, n_layer=3, n_head=4, vocab_size=256, **SMALL)
add("opt", transformer, "OPT", "OPTForCausalLM", hidden_size=64, num_hidden_layers=3, num_attention_heads=4, ffn_dim=128,
    vocab_size=256, max_position_embeddings=64, word_embed_proj_dim=64, **SMALL)
for _kind in ("Llama", "Mistral", "Qwen2"):
    add(_kind.lower(), transformer, _kind, f"{_kind}ForCausalLM", **WIDTH, **KEYS, **SMALL)
add("gemma", transformer, "Gemma", "GemmaForCausalLM", head_dim=16, **WIDTH, **KEYS, **SMALL)
add("phi", transformer, "Phi", "PhiForCausalLM", **WIDTH, **SMALL)
add("mixtral", transformer, "Mixtral", "MixtralForCausalLM", num_local_experts=4, **WIDTH, **KEYS, **SMALL)
add("mamba", transformer, "Mamba", "MambaForCausalLM", hidden_size=64, num_hidden_layers=2, vocab_size=256, state_size=8,
    **SMALL)
add("bert_masked", transformer, "Bert", "BertForMaskedLM", **WIDTH)
add("bert_classifier", transformer, "Bert", "BertForSequenceClassification", loss_of=class_loss, **WIDTH)
add("bert_padded", transformer, "Bert", "BertForMaskedLM", loss_of=padded_loss, **WIDTH)
add("roberta", transformer, "Roberta", "RobertaForMaskedLM", **WIDTH)
add("electra", transformer, "Electra", "ElectraForSequenceClassification", loss_of=class_loss, embedding_size=64, **WIDTH)
add("albert", transformer, "Albert", "AlbertForMaskedLM", embedding_size=64, **WIDTH)
add("distilbert", transformer, "DistilBert", "DistilBertForMaskedLM", dim=64, hidden_dim=128, n_layers=2, n_heads=4,
    vocab_size=256)
add("deberta_v2", transformer, "DebertaV2", "DebertaV2ForMaskedLM", relative_attention=True, pos_att_type=["p2c", "c2p"],
    **WIDTH)
add("longformer", transformer, "Longformer", "LongformerForMaskedLM", attention_window=16, **WIDTH)
add("t5", transformer, "T5", "T5ForConditionalGeneration", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
    vocab_size=256, decoder_start_token_id=0)
add("bart", transformer, "Bart", "BartForConditionalGeneration", **BART)
add("pegasus", transformer, "Pegasus", "PegasusForConditionalGeneration", **BART)
add("vit_transformers", transformer, "ViT", "ViTForImageClassification", loss_of=image_loss, **IMAGE)
add("deit", transformer, "DeiT", "DeiTForImageClassification", loss_of=image_loss, **IMAGE)
add("vit_mae", transformer, "ViTMAE", "ViTMAEForPreTraining", loss_of=masked_image_loss, decoder_hidden_size=32,
    decoder_num_hidden_layers=2, decoder_num_attention_heads=4, decoder_intermediate_size=64, **IMAGE)
add("segformer", transformer, "Segformer", "SegformerForSemanticSegmentation", loss_of=pixel_loss, depths=[1, 1, 1, 1],
    hidden_sizes=[16, 32, 48, 64], num_attention_heads=[1, 2, 4, 4], decoder_hidden_size=32)
add("convnextv2", transformer, "ConvNextV2", "ConvNextV2ForImageClassification", loss_of=image_loss, depths=[1, 1, 2, 1],
    hidden_sizes=[16, 32, 48, 64])
add("clip", transformer, "CLIP", "CLIPModel", loss_of=clip_loss, projection_dim=32,
    text_config={**WIDTH, "max_position_embeddings": 32}, vision_config=IMAGE)
add("wav2vec2", transformer, "Wav2Vec2", "Wav2Vec2ForCTC", loss_of=speech_loss, conv_dim=(32, 32, 32), conv_stride=(5, 4, 4),
    conv_kernel=(10, 4, 4), num_feat_extract_layers=3, mask_time_length=2, mask_time_prob=0.1, layerdrop=0.3,
    num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, hidden_size=64, num_hidden_layers=3, num_attention_heads=4,
    intermediate_size=128, vocab_size=32)
add("whisper", transformer, "Whisper", "WhisperForConditionalGeneration", loss_of=whisper_loss, d_model=64, encoder_layers=2,
    decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128, decoder_ffn_dim=128,
    vocab_size=256, num_mel_bins=16, max_source_positions=32, max_target_positions=32, decoder_start_token_id=1, **SMALL)
add("gpt2_adafactor", transformer, "GPT2", "GPT2LMHeadModel", optimizer_of=lambda p: torch.optim.Adafactor(p, 1e-3), **GPT2)
add("gpt2_fused_foreach", transformer, "GPT2", "GPT2LMHeadModel",
    optimizer_of=lambda p: torch.optim.AdamW(p, 1e-3, foreach=True), **GPT2)


# ---- PyTorch's own modules, and steps that are not the usual one

@program
def word_rnn():
    """As pytorch/examples word_language_model: the state of one step is that of the next."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.rnn, self.head = nn.Embedding(256, 64), nn.GRU(64, 64, 2, dropout=0.2), nn.Linear(64, 256)

        def forward(self, x, state):
            y, state = self.rnn(self.words(x), state)
            return self.head(y), state
    model, state = Net(), torch.zeros(2, 8, 64)

    def loss_of(i):
        nonlocal state
        x = numbers(i, 33, 8, high=256)
        y, new = model(x[:-1], state)
        state = new.detach()
        return functional.cross_entropy(y.flatten(0, 1), x[1:].flatten())
    return loop(model, loss_of, clip=0.25)


@program
def lstm_ctc():
    model = nn.ModuleDict({"rnn": nn.LSTM(32, 64, 2, bidirectional=True), "head": nn.Linear(128, 20)})

    def loss_of(i):
        y = model["head"](model["rnn"](torch.randn(40, 4, 32, generator=seeded(i)))[0]).log_softmax(-1)
        return functional.ctc_loss(y, numbers(i, 4, 10, high=19) + 1, torch.full((4,), 40), torch.full((4,), 10))
    return loop(model, loss_of)


@program
def packed_lstm():
    """Sequences of lengths that differ from step to step."""
    model = nn.ModuleDict({"rnn": nn.LSTM(32, 64, batch_first=True), "head": nn.Linear(64, 4)})

    def loss_of(i):
        lengths = numbers(i, 6, high=20).sort(descending=True)[0] + 5
        packed = nn.utils.rnn.pack_padded_sequence(torch.randn(6, 25, 32, generator=seeded(i)), lengths, batch_first=True)
        return functional.cross_entropy(model["head"](model["rnn"](packed)[1][0][0]), numbers(i, 6, high=4))
    return loop(model, loss_of)


@program
def nn_transformer():
    model = nn.ModuleDict({"words": nn.Embedding(256, 64), "net": nn.Transformer(64, 4, 2, 2, 128, batch_first=True),
                           "head": nn.Linear(64, 256)})

    def loss_of(i):
        x, y = numbers(i, 4, 32, high=256), numbers(i + 50, 4, 33, high=256)
        mask = nn.Transformer.generate_square_subsequent_mask(32)
        out = model["net"](model["words"](x), model["words"](y[:, :-1]), tgt_mask=mask, tgt_is_causal=True)
        return functional.cross_entropy(model["head"](out).flatten(0, 1), y[:, 1:].flatten())
    return loop(model, loss_of, sgd)


def _generator():
    return nn.Sequential(nn.ConvTranspose2d(32, 64, 4), nn.BatchNorm2d(64), nn.ReLU(True), nn.ConvTranspose2d(64, 32, 4, 2, 1),
                         nn.BatchNorm2d(32), nn.ReLU(True), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())


def _critic(norm=True):
    return nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2, True), nn.Conv2d(32, 64, 4, 2, 1),
                         nn.BatchNorm2d(64) if norm else nn.GroupNorm(4, 64), nn.LeakyReLU(0.2, True),
                         nn.Flatten(), nn.Linear(64 * 16, 1))


@program
def dcgan():
    """Two networks, two optimizers, three backward passes."""
    generator, critic = _generator(), _critic()
    of_generator, of_critic = (torch.optim.Adam(net.parameters(), 2e-4, betas=(0.5, 0.999)) for net in (generator, critic))

    def step(i):
        real, noise = images(i, 16, 16), torch.randn(16, 32, 1, 1, generator=seeded(i))
        critic.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(critic(real), torch.ones(16, 1))
        loss.backward()
        fake = generator(noise)
        other = functional.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(16, 1))
        other.backward()
        of_critic.step()
        generator.zero_grad()
        last = functional.binary_cross_entropy_with_logits(critic(fake), torch.ones(16, 1))
        last.backward()
        of_generator.step()
        return loss.item() + other.item() + last.item()
    return [generator, critic], step


@program
def wgan_gp():
    """A gradient of a gradient: autograd.grad with create_graph."""
    generator, critic = _generator(), _critic(norm=False)
    of_generator, of_critic = adamw(generator.parameters()), adamw(critic.parameters())

    def step(i):
        real, noise = images(i, 8, 16), torch.randn(8, 32, 1, 1, generator=seeded(i))
        of_critic.zero_grad()
        fake = generator(noise)
        between = torch.lerp(real, fake.detach(), 0.3).requires_grad_()
        gradient, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        loss = critic(fake.detach()).mean() - critic(real).mean() + \
            10 * (gradient.flatten(1).norm(dim=1) - 1).square().mean()
        loss.backward()
        of_critic.step()
        of_generator.zero_grad()
        last = -critic(generator(noise)).mean()
        last.backward()
        of_generator.step()
        return loss.item() + last.item()
    return [generator, critic], step


@program
def vae():
    model = nn.ModuleDict({"down": nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)),
                           "up": nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 256), nn.Sigmoid())})

    def loss_of(i):
        x = torch.rand(128, 256, generator=seeded(i))
        mean, log_variance = model["down"](x).chunk(2, 1)
        y = model["up"](mean + torch.randn_like(mean) * (log_variance / 2).exp())
        return functional.binary_cross_entropy(y, x, reduction="sum") - \
            0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return loop(model, loss_of)


@program
def maml():
    """The loss of a network that was updated within the step, through torch.func.functional_call."""
    model = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))

    def loss_of(i):
        total = 0
        for task in range(3):
            x = torch.randn(64, 16, generator=seeded(10 * i + task))
            y = x.sum(1, keepdim=True).sin()
            weights = dict(model.named_parameters())
            inner = functional.mse_loss(torch.func.functional_call(model, weights, x), y)
            gradients = torch.autograd.grad(inner, weights.values(), create_graph=True)
            weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), gradients)}
            total = total + functional.mse_loss(torch.func.functional_call(model, weights, x), y)
        return total
    return loop(model, loss_of)


@program
def per_sample_gradients():
    """torch.func: vmap over grad, as differentially private training does it."""
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 10))
    optimizer = sgd(model.parameters())

    def one(weights, x, y):
        return functional.cross_entropy(torch.func.functional_call(model, weights, x[None]), y[None])

    def step(i):
        x, y = torch.randn(64, 32, generator=seeded(i)), numbers(i, 64, high=10)
        weights = {name: p.detach() for name, p in model.named_parameters()}
        gradients = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(weights, x, y)
        for name, p in model.named_parameters():
            p.grad = gradients[name].clamp(-0.1, 0.1).mean(0)
        optimizer.step()
        return functional.cross_entropy(model(x), y).item()
    return [model], step


@program
def sparse_embedding():
    model = nn.ModuleDict({"words": nn.EmbeddingBag(5000, 64, sparse=True, mode="sum"), "head": nn.Linear(64, 4)})
    optimizers = torch.optim.SparseAdam(list(model["words"].parameters())), adamw(model["head"].parameters())

    def step(i):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = functional.cross_entropy(model["head"](model["words"](numbers(i, 64, 20, high=5000))), numbers(i, 64, high=4))
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.item()
    return [model], step


@program
def graph_network():
    """Messages along the edges of a graph: gather, scatter and a sparse product."""
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.update = nn.Linear(128, 64), nn.GRUCell(64, 64)

        def forward(self, x, edges):
            messages = self.message(torch.cat((x[edges[0]], x[edges[1]]), 1)).relu()
            return self.update(torch.zeros_like(x).index_add(0, edges[1], messages), x)
    model = nn.ModuleList([*(Layer() for _ in range(4)), nn.Linear(64, 5)])
    adjacency = torch.eye(300).to_sparse()

    def loss_of(i):
        x, edges = torch.randn(300, 64, generator=seeded(i)), numbers(i, 2, 1500, high=300)
        for layer in model[:-1]:
            x = layer(x, edges)
        return functional.cross_entropy(model[-1](torch.sparse.mm(adjacency, x)), numbers(i, 300, high=5))
    return loop(model, loss_of)


@program
def fourier_operator():
    """Complex weights and FFTs."""
    class Spectral(nn.Module):
        def __init__(self, width, modes):
            super().__init__()
            self.modes, self.skip = modes, nn.Conv1d(width, width, 1)
            self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)

        def forward(self, x):
            spectrum = torch.fft.rfft(x)
            low = torch.einsum("bim,iom->bom", spectrum[..., :self.modes], self.weight)
            spectrum = functional.pad(low, (0, spectrum.shape[-1] - self.modes))
            return functional.gelu(torch.fft.irfft(spectrum, n=x.shape[-1]) + self.skip(x))
    model = nn.Sequential(nn.Conv1d(1, 32, 1), *(Spectral(32, 16) for _ in range(4)), nn.Conv1d(32, 1, 1))

    def loss_of(i):
        x = torch.randn(8, 1, 256, generator=seeded(i))
        return functional.mse_loss(model(x), x.cumsum(-1) / 16)
    return loop(model, loss_of)


@program
def lbfgs():
    """The optimizer calls the forward and the backward pass as often as it likes."""
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=4)

    def step(i):
        x = torch.randn(256, 64, generator=seeded(i))

        def closure():
            optimizer.zero_grad()
            loss = functional.mse_loss(model(x), x[:, :1].sin())
            loss.backward()
            return loss
        return optimizer.step(closure).item()
    step.optimizer = optimizer
    return [model], step


@program
def average_of_weights():
    """A moving average of the weights, updated in each step, and a schedule of learning rates."""
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(),
                          nn.Dropout(0.3), nn.Linear(32 * 144, 10))
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=40)

    def step(i):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images(i, 16, 16)), numbers(i, 16, high=10))
        loss.backward()
        optimizer.step()
        schedule.step()
        average.update_parameters(model)
        return loss.item()
    return [model, average], step


@program
def contrastive():
    """A target network that follows by momentum, and a queue of keys that is written in place (as MoCo)."""
    query = nn.Sequential(nn.Conv2d(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 32))
    key = copy.deepcopy(query).requires_grad_(False)
    queue, optimizer = functional.normalize(torch.randn(256, 32), dim=1), sgd(query.parameters())

    def step(i):
        x = images(i, 32, 32)
        q = functional.normalize(query(x), dim=1)
        with torch.no_grad():
            for a, b in zip(key.parameters(), query.parameters()):
                a.mul_(0.99).add_(b, alpha=0.01)
            k = functional.normalize(key(x.flip(-1)), dim=1)
        logits = torch.cat(((q * k).sum(1, keepdim=True), q @ queue.clone().T), 1) / 0.07
        loss = functional.cross_entropy(logits, torch.zeros(32, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        queue[i % 8 * 32:i % 8 * 32 + 32] = k
        return loss.item()
    return [query, key], step


@program
def diffusion():
    """A denoiser with a time embedding, attention and skips; its noise is drawn within the step."""
    class Stage(nn.Module):
        def __init__(self, n_in, n_out):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(n_in, n_out, 3, padding=1), nn.Conv2d(n_out, n_out, 3, padding=1)
            self.norm1, self.norm2 = nn.GroupNorm(4, n_out), nn.GroupNorm(4, n_out)
            self.time = nn.Linear(32, n_out)

        def forward(self, x, t):
            x = functional.silu(self.norm1(self.conv1(x))) + self.time(t)[..., None, None]
            return functional.silu(self.norm2(self.conv2(x)))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.down, self.up = nn.ModuleList([Stage(3, 32), Stage(32, 64)]), Stage(96, 32)
            self.attention, self.out = nn.MultiheadAttention(64, 4, batch_first=True), nn.Conv2d(32, 3, 1)

        def forward(self, x, t):
            t = torch.cat([(t[:, None] * torch.exp(torch.arange(16) * -0.5)).sin(),
                           (t[:, None] * torch.exp(torch.arange(16) * -0.5)).cos()], 1)
            a = self.down[0](x, t)
            b = self.down[1](functional.avg_pool2d(a, 2), t)
            flat = b.flatten(2).transpose(1, 2)
            b = b + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(b.shape)
            return self.out(self.up(torch.cat((a, functional.interpolate(b, scale_factor=2)), 1), t))
    model = Net()

    def loss_of(i):
        x = images(i, 4, 32)
        t, noise = torch.randint(0, 100, (4,)), torch.randn_like(x)
        mix = (t / 100 * math.pi / 2)[:, None, None, None]
        return functional.mse_loss(model(mix.cos() * x + mix.sin() * noise, t.float()), noise)
    return loop(model, loss_of, clip=1.0)


@program
def policy_gradient():
    """An episode of a length that differs; the gradients are of sampled actions."""
    model = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 4))

    def loss_of(i):
        state, found = torch.randn(16, 8, generator=seeded(i)), []
        for _ in range(5 + i % 3):
            choice = torch.distributions.Categorical(logits=model(state))
            action = choice.sample()
            found.append(choice.log_prob(action) * (action == 2).float())
            state = state.roll(1, 1) + action[:, None] / 4
        return -torch.stack(found).mean()
    return loop(model, loss_of)


@program
def scripted():
    """torch.jit.script."""
    model = torch.jit.script(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)))
    return loop(model, lambda i: functional.cross_entropy(model(torch.randn(64, 64, generator=seeded(i))),
                                                          numbers(i, 64, high=10)))


@program
def own_function():
    """An autograd.Function that saves tensors itself, and a hook on a tensor."""
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            gate = x.sigmoid()
            ctx.save_for_backward(x, gate)
            return x * gate

        @staticmethod
        def backward(ctx, grad):
            x, gate = ctx.saved_tensors
            return grad * (gate + x * gate * (1 - gate))
    layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(6))

    def loss_of(i):
        x = torch.randn(64, 128, generator=seeded(i))
        for layer in layers:
            x = Swish.apply(layer(x))
        x.register_hook(lambda grad: grad.clamp(-1e-3, 1e-3))
        return x.square().mean()
    return loop(layers, loss_of)


@program
def parametrized():
    """Weight norm and spectral norm: the weights are made in each forward pass."""
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(64, 128)), nn.ReLU(),
                          nn.utils.parametrizations.spectral_norm(nn.Linear(128, 128)), nn.ReLU(), nn.Linear(128, 10))
    return loop(model, lambda i: functional.cross_entropy(model(torch.randn(64, 64, generator=seeded(i))),
                                                          numbers(i, 64, high=10)))


@program
def low_rank():
    """Low-rank adapters beside weights that are frozen."""
    class Adapter(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base, n = base, base.in_features
            self.a, self.b = nn.Parameter(torch.randn(4, n) / n), nn.Parameter(torch.zeros(base.out_features, 4))

        def forward(self, x):
            return self.base(x) + functional.linear(functional.linear(x, self.a), self.b)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 3).requires_grad_(False)
    for layer in model.layers:
        layer.linear1, layer.linear2 = Adapter(layer.linear1), Adapter(layer.linear2)

    def loss_of(i):
        x = torch.randn(4, 32, 64, generator=seeded(i))
        return (model(x) - x.roll(1, 1)).square().mean()
    trained = [p for p in model.parameters() if p.requires_grad]
    return loop(model, loss_of, lambda _: adamw(trained))
