"""Six models that are unlike each other; each layer has sizes that no other has.

A comment at a line's end is the line's name. `list_marks` of a model says by which sizes its kernels
are known.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from tests.gpu.lines.markers.marks import Mark, mark, mark_block, mark_linear
from tests.gpu.lines.markers.parts import Apply, ConvStage, Feed, Gate, UnetStage, log_calls

SMALL = {"loss": "mse|loss|sub|pow|mean"}


class Model(nn.Module):
    """One of the six."""

    def make_inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """Return what it is given, and what it should make of it."""
        raise NotImplementedError

    def list_marks(self) -> list[Mark]:
        """Say by which sizes the kernels of its lines are known."""
        raise NotImplementedError


class ResidualBlock(nn.Module):
    """Two linear layers, a norm and a gate between them, a third around them."""

    def __init__(self, width: int, hidden: int, after: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.down = nn.Linear(hidden, after)
        self.skip = nn.Linear(width, after, bias=False)

    @log_calls
    def forward(self, x: Tensor) -> Tensor:
        """Of rows."""
        y = self.up(x)  # mlp up
        y = self.norm(y)  # mlp norm
        y = Gate.apply(y)
        y = self.down(y)  # mlp down
        return y + self.skip(x)  # mlp skip


class Mlp(Model):
    """Linear layers with ways around them, a function of its own, a lambda, a comprehension."""

    rows = 1000
    widths = 320, 384, 448, 512
    hidden = 704, 832, 960
    branches_made = 136, 152, 168
    last = 240

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            ResidualBlock(self.widths[n], self.hidden[n], self.widths[n + 1]) for n in range(3)
        )
        self.wave = Apply(lambda x: torch.sin(x) + 1)  # mlp wave
        self.branches = nn.ModuleList(nn.Linear(512, made) for made in self.branches_made)
        self.head = nn.Linear(sum(self.branches_made), self.last)

    def forward(self, x: Tensor) -> Tensor:
        """Of rows."""
        for block in self.blocks:
            x = block(x)
        x = self.wave(x)
        parts = [branch(x) for branch in self.branches]  # mlp branches
        x = torch.cat(parts, dim=1)  # mlp cat
        return self.head(x)  # mlp head

    def make_inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """Return rows."""
        x = torch.randn(self.rows, self.widths[0], device=device)
        return x, torch.randn(self.rows, self.last, device=device)

    def list_marks(self) -> list[Mark]:
        """Say what is known by its size."""
        marks: list[Mark] = []
        for number in range(len(self.hidden)):
            marks += self.list_marks_of_block(number)
        marks.append(mark("mlp wave", "wave", 512, words="sin|cos|add|mul"))
        for number in range(len(self.branches_made)):
            marks += self.list_marks_of_branch(number)
        joined = sum(self.branches_made)
        marks.append(mark("mlp cat", "", joined, words="cat|slice|narrow"))
        marks += mark_linear("mlp head", "head", joined, self.last)
        return [*marks, mark("loss", "", self.last, words=SMALL["loss"])]

    def list_marks_of_block(self, number: int) -> list[Mark]:
        """Say what is known of a residual block."""
        hidden, name = self.hidden[number], f"blocks.{number}"
        width, after = self.widths[number], self.widths[number + 1]
        own = [
            *mark_linear("mlp up", f"{name}.up", width, hidden),
            mark("mlp norm", f"{name}.norm", hidden, words="layer_?norm"),
            mark("gate", name, hidden, words="sigmoid|mul", phase="forward"),
            mark("gate again", name, hidden, words="sigmoid", phase="backward"),
            mark("gate back", name, hidden, words="mul|rsub|add", phase="backward"),
            *mark_linear("mlp down", f"{name}.down", hidden, after),
            mark("mlp skip", f"{name}.skip", width, after),
            mark("mlp skip", name, after, words="aten::add"),
        ]
        return [*own, *mark_block(own, width), *mark_block(own, after)]

    def list_marks_of_branch(self, number: int) -> list[Mark]:
        """Say what is known of one of the layers whose outputs are joined."""
        made = self.branches_made[number]
        own = list(mark_linear("mlp branches", f"branches.{number}", 512, made))
        joined = mark("mlp cat", "", made, words="cat|slice|narrow")
        return [*own, *mark_block(own, 512), joined]


class Cnn(Model):
    """Convolutions with batch norm: one of them weight-normed, one stage checkpointed."""

    images = 16
    side = 64
    channels = 40, 56, 72, 88
    last = 104

    def __init__(self) -> None:
        super().__init__()
        first, second, third, fourth = self.channels
        self.stem = nn.Sequential(nn.Conv2d(3, first, 5, padding=2), nn.ReLU())
        self.stages = nn.ModuleList([ConvStage(first, second), ConvStage(second, third)])
        self.normed = weight_norm(nn.Conv2d(third, fourth, 3, padding=1))
        self.head = nn.Linear(fourth, self.last)

    def forward(self, x: Tensor) -> Tensor:
        """Of images."""
        x = self.stem(x)  # cnn stem
        x = functional.max_pool2d(x, 2)  # cnn pool
        x = self.stages[0](x)
        x = checkpoint(self.stages[1], x, use_reentrant=False)
        x = self.normed(x)  # cnn normed
        x = functional.softplus(x)  # cnn softplus
        x = x.mean(dim=(2, 3))  # cnn mean
        return self.head(x)  # cnn head

    def make_inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """Return images."""
        x = torch.randn(self.images, 3, self.side, self.side, device=device)
        return x, torch.randn(self.images, self.last, device=device)

    def list_marks(self) -> list[Mark]:
        """Say what is known by its size."""
        first, second, third, fourth = self.channels
        marks = [
            mark("cnn stem", "stem", 3, first),
            mark("cnn stem", "stem", first, words="relu|threshold|conv"),
            mark("cnn pool", "", first, words="pool"),
        ]
        marks += self.list_marks_of_stage("stages.0", first, second)
        marks += self.list_marks_of_stage("stages.1", second, third)
        normed = [
            mark("cnn normed", "normed", third, fourth),
            mark("cnn normed", "normed", fourth, words="conv|weight_norm|norm_except"),
            mark("cnn softplus", "", fourth, words="softplus"),
            mark("cnn mean", "", fourth, words="mean|expand|div"),
        ]
        marks += [*normed, *mark_linear("cnn head", "head", fourth, self.last)]
        return [*marks, mark("loss", "", self.last, words=SMALL["loss"])]

    def list_marks_of_stage(self, name: str, given: int, made: int) -> list[Mark]:
        """Say what is known of a stage."""
        own = [
            mark("stage conv", f"{name}.conv", given, made, words="conv"),
            mark("stage skip", f"{name}.skip", given, made, words="conv"),
            mark("stage norm", f"{name}.norm", made, words="batch_?norm"),
            mark("stage norm", f"{name}.norm", made, words="aten::add_", phase="forward"),
            mark("stage relu", name, made, words="relu|threshold|clamp"),
            mark("stage skip", f"{name}.skip", made, words="conv"),
            mark("stage add", name, made, words=r"aten::add$|addbackward"),
        ]
        return [*own, *mark_block(own, given), *mark_block(own, made)]


class AttentionBlock(nn.Module):
    """Attention and a gated feed-forward part, each behind a norm."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = Feed(width, hidden)

    def attend(self, x: Tensor) -> Tensor:
        """Each token to those before it."""
        both = self.qkv(x)  # attend qkv
        thirds = both.chunk(3, dim=2)  # attend thirds
        n = self.heads
        q, k, v = (one.unflatten(2, (n, -1)).transpose(1, 2) for one in thirds)  # attend heads
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # attend sdpa
        return self.out(seen.transpose(1, 2).flatten(2))  # attend out

    def forward(self, x: Tensor) -> Tensor:
        """Of tokens."""
        y = self.before(x)  # attend before
        x = x + self.attend(y)  # attend add
        y = self.between(x)  # attend between
        return x + self.feed(y)  # attend feed


class Transformer(Model):
    """Attention over fewer tokens in each block, one block called by a function, a tied embedding."""

    rows = 8
    words_known = 1208
    width = 192
    tokens = 96, 88, 80
    hidden = 520, 616, 744

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(self.words_known, self.width)
        self.places = nn.Embedding(self.tokens[0], self.width)
        self.blocks = nn.ModuleList(AttentionBlock(self.width, 4, n) for n in self.hidden)
        self.norm = nn.LayerNorm(self.width)

    def forward(self, words: Tensor) -> Tensor:
        """Of numbers of words."""
        x = self.words(words)  # words embedding
        x = x + self.places.weight  # places
        for n, block in enumerate(self.blocks):
            x = x[:, : self.tokens[n]]  # prune
            if n == 1:
                x = functional_call(block, dict(block.named_parameters()), (x,))
            else:
                x = block(x)
        x = self.norm(x)  # last norm
        return functional.linear(x, self.words.weight)  # tied head

    def make_inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """Return numbers of words."""
        words = torch.randint(0, self.words_known, (self.rows, self.tokens[0]), device=device)
        return words, torch.randn(self.rows, self.tokens[-1], self.words_known, device=device)

    def list_marks(self) -> list[Mark]:
        """Say what is known by its size."""
        marks = self.list_marks_of_words()
        for number in range(len(self.tokens)):
            marks += self.list_marks_of_block(number)
        last = self.tokens[-1]
        for count in (last, self.rows * last):
            marks.append(mark("last norm", "norm", count, words="layer_?norm"))
        return [*marks, mark("loss", "", self.words_known, last, words=SMALL["loss"])]

    def list_marks_of_words(self) -> list[Mark]:
        """Say what is known of the embedding, and of the head that has its weight."""
        width, known, tokens = self.width, self.words_known, self.tokens[0]
        marks = [
            mark("words embedding", "words", known, words="embedding"),
            mark("words embedding", "words", self.rows * tokens, words="embedding"),
            mark("words embedding", "words", tokens, words="embedding"),
            mark("places", "", tokens, words="add|sum"),
            mark("tied head", "", known, width, words="mm|linear|transpose|accumulate"),
            mark("words embedding", "words", known, width, words="accumulate|evaluate|add"),
            mark("tied head", "", known, width, words="accumulate|evaluate|add"),
        ]
        last = self.tokens[-1]
        for count in (last, self.rows * last):
            words = "mm|linear|view|copy|transpose|t$"
            marks.append(mark("tied head", "", count, known, words=words))
        return marks

    def list_marks_of_block(self, number: int) -> list[Mark]:
        """Say what is known of a block, whose tokens are counted in each row or in all of them."""
        tokens, hidden, name = self.tokens[number], self.hidden[number], f"blocks.{number}"
        own = [
            mark("feed down", f"{name}.feed", hidden, self.width),
            mark("feed up", f"{name}.feed", 2 * hidden, self.width),
        ]
        for count in (tokens, self.rows * tokens):
            own += self.list_marks_of_attention(name, count)
            own += self.list_marks_of_feed(f"{name}.feed", count, hidden)
            own.append(mark("attend feed", name, count, words=r"aten::add$|addbackward"))
        marks = list(own)
        for count in (tokens, self.rows * tokens):
            marks += [*mark_block(own, count), mark("prune", "", count, words="slice")]
        return marks

    def list_marks_of_attention(self, name: str, count: int) -> list[Mark]:
        """Say what is known of a block up to the end of its attention."""
        width, norms = self.width, "layer_?norm"
        moves = "copy|clone|contiguous|reshape|transpose"
        return [
            mark("attend before", f"{name}.before", count, words=norms),
            mark("attend between", f"{name}.between", count, words=norms),
            mark("attend qkv", f"{name}.qkv", count, 3 * width),
            mark("attend heads", name, count, 48, words="transpose|unflatten|view|copy"),
            mark("attend sdpa", name, count, 48, words="attention|flash|efficient"),
            mark("attend out", f"{name}.out", count, width, words="addmm|linear"),
            mark("attend out", name, count, words=moves),
            mark("attend add", name, count, words=r"aten::add$|addbackward"),
            mark("attend thirds", name, count, words="splitbackward|chunk"),
        ]

    def list_marks_of_feed(self, name: str, count: int, hidden: int) -> list[Mark]:
        """Say what is known of a block's feed-forward part."""
        width = self.width
        return [
            mark("feed down", f"{name}.down", count, width, words="addmm|linear"),
            mark("feed up", f"{name}.up", count, 2 * hidden, width),
            mark("feed up", f"{name}.up", count, 2 * hidden, words="addmm|linear"),
            mark("feed up", name, count, hidden, words="split|cat|chunk|slice"),
            mark("feed gelu", name, count, hidden, words="gelu|mul"),
            mark("feed down", f"{name}.down", count, hidden, width, words="addmm|mm"),
            mark("feed up", name, count, words="splitbackward|chunk"),
        ]


class Recurrent(Model):
    """An LSTM, a GRU, and cells in a loop."""

    rows = 24
    length = 20
    words_known = 611
    widths = 144, 176, 208, 240
    last = 96

    def __init__(self) -> None:
        super().__init__()
        first, second, third, fourth = self.widths
        self.words = nn.Embedding(self.words_known, first)
        self.lstm = nn.LSTM(first, second, batch_first=True)
        self.gru = nn.GRU(second, third, batch_first=True)
        self.cell = nn.GRUCell(third, fourth)
        self.head = nn.Linear(fourth, self.last)

    def forward(self, words: Tensor) -> Tensor:
        """Of numbers of words."""
        x = self.words(words)  # rnn words
        x, _ = self.lstm(x)  # rnn lstm
        x, _ = self.gru(x)  # rnn gru
        state = x.new_zeros(self.rows, self.widths[3])  # rnn state
        for n in range(4):
            state = self.cell(x[:, n], state)  # rnn cell
        return self.head(state)  # rnn head

    def make_inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """Return numbers of words."""
        words = torch.randint(0, self.words_known, (self.rows, self.length), device=device)
        return words, torch.randn(self.rows, self.last, device=device)

    def list_marks(self) -> list[Mark]:
        """Say what is known by its size."""
        first, second, third, fourth = self.widths
        return [
            mark("rnn words", "words", first, words="embedding"),
            mark("rnn words", "words", self.words_known, words="embedding"),
            mark("rnn words", "words", self.rows * self.length, words="embedding"),
            mark("rnn lstm", "lstm", first, words="rnn|lstm"),
            mark("rnn lstm", "lstm", second, words="lstm|zeros"),
            mark("rnn gru", "gru", second, words="rnn|gru"),
            mark("rnn gru", "gru", third, words="gru$|zeros|rnn"),
            mark("rnn gru", "gru", 3 * third),
            mark("rnn state", "", fourth, words="zeros", phase="forward"),
            mark("rnn cell", "cell", third, words="gru_cell|cell|mm|linear"),
            mark("rnn cell", "", third, words="select|slice|evaluate"),
            mark("rnn state", "", third, words="new_zeros", phase="forward"),
            mark("rnn gru", "", third, words="evaluate"),
            mark("rnn cell", "cell", fourth, words="gru_cell|cell|accumulate|evaluate"),
            mark("rnn cell", "cell", 3 * fourth),
            *mark_linear("rnn head", "head", fourth, self.last),
            mark("loss", "", self.last, words=SMALL["loss"]),
        ]


class Expert(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int, hidden: int, made: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, made, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Of the rows that are its own."""
        y = functional.relu(self.up(x)).square()  # expert up
        return self.down(y)  # expert down


class Experts(Model):
    """Experts, each of which gets a number of rows of its own."""

    rows = 900
    width, made = 160, 176
    own_rows = 200, 264, 328, 392
    hidden = 336, 400, 464, 528
    last = 248

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Expert(self.width, n, self.made) for n in self.hidden)
        self.scale = nn.Parameter(torch.ones(self.width))
        self.head = nn.Linear(self.made, self.last)
        for n, count in enumerate(self.own_rows):
            self.register_buffer(f"own{n}", torch.randperm(self.rows)[:count])

    def forward(self, x: Tensor) -> Tensor:
        """Of rows."""
        owns = [getattr(self, f"own{n}") for n in range(len(self.own_rows))]
        chosen = [x.index_select(0, own) * self.scale for own in owns]  # choose rows
        made = [expert(rows) for expert, rows in zip(self.experts, chosen, strict=True)]
        out = x.new_zeros(self.rows, self.made)  # empty rows
        for own, rows in zip(owns, made, strict=True):
            out = out.index_add(0, own, rows)  # put back
        return self.head(out)  # expert head

    def make_inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """Return rows."""
        x = torch.randn(self.rows, self.width, device=device)
        return x, torch.randn(self.rows, self.last, device=device)

    def list_marks(self) -> list[Mark]:
        """Say what is known by its size."""
        marks: list[Mark] = []
        for n, (rows, hidden) in enumerate(zip(self.own_rows, self.hidden, strict=True)):
            name = f"experts.{n}"
            marks += [
                mark("choose rows", "", rows, words="index_select|mul|sum"),
                mark("put back", "", rows, words="index"),
                mark("expert up", f"{name}.up", rows, hidden, self.width),
                mark("expert up", name, rows, hidden, words="relu|pow|mul|threshold|square|addmm"),
                mark("expert up", f"{name}.up", hidden, words="addmm"),
                mark(
                    "expert down",
                    f"{name}.down",
                    rows,
                    hidden,
                    self.made,
                ),
                mark("choose rows", "", self.width, words="evaluate_function|accumulate"),
            ]
        marks += [
            mark("empty rows", "", self.rows, words="zeros", phase="forward"),
            mark("put back", "", self.rows, self.made, words="index_add|copy"),
            *mark_linear("expert head", "head", self.made, self.last),
        ]
        return [*marks, mark("loss", "", self.last, words=SMALL["loss"])]


class Unet(Model):
    """Convolutions down and up again, with what was before joined to what comes after."""

    images = 8
    side = 48
    channels = 36, 68, 100
    up_channels = 76, 44
    last = 5

    def __init__(self) -> None:
        super().__init__()
        first, second, third = self.channels
        self.down = nn.ModuleList([UnetStage(3, first), UnetStage(first, second)])
        self.middle = UnetStage(second, third)
        self.grow = nn.ConvTranspose2d(third, 92, 2, stride=2)
        self.up = nn.ModuleDict({"low": UnetStage(92 + second, self.up_channels[0])})
        self.up["high"] = UnetStage(self.up_channels[0] + first, self.up_channels[1])
        self.last_conv = nn.Conv2d(self.up_channels[1], self.last, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Of images."""
        high = self.down[0](x)
        low = self.down[1](functional.avg_pool2d(high, 2))  # unet pool
        x = self.middle(functional.max_pool2d(low, 2))  # unet max
        x = self.grow(x)  # unet grow
        x = torch.cat([x, low], dim=1)  # unet low
        x = self.up["low"](x)
        x = functional.interpolate(x, scale_factor=2.0)  # unet scale
        x = self.up["high"](torch.cat([x, high], dim=1))  # unet high
        return self.last_conv(x)  # unet last

    def make_inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """Return images."""
        x = torch.randn(self.images, 3, self.side, self.side, device=device)
        return x, torch.randn(self.images, self.last, self.side, self.side, device=device)

    def list_marks(self) -> list[Mark]:
        """Say what is known by its size."""
        first, second, _ = self.channels
        marks = [*self.list_marks_of_stages(), *self.list_marks_between_stages()]
        sums = [one for one in marks if one.line in ("unet pool", "unet high")]
        marks += mark_block(sums, first)
        sums = [one for one in marks if one.line in ("unet max", "unet low")]
        return [*marks, *mark_block(sums, second)]

    def list_marks_of_stages(self) -> list[Mark]:
        """Say what is known of the pairs of convolutions."""
        first, second, third = self.channels
        low, high = self.up_channels
        stages = [
            ("down.0", 3, first),
            ("down.1", first, second),
            ("middle", second, third),
            ("up.low", 92 + second, low),
            ("up.high", low + first, high),
        ]
        marks: list[Mark] = []
        for name, given, made in stages:
            marks += [
                mark("unet body", f"{name}.body.0", given, made),
                mark("unet body", f"{name}.body", made, words="conv|group_?norm|silu"),
            ]
        return marks

    def list_marks_between_stages(self) -> list[Mark]:
        """Say what is known of what makes images smaller or larger, and joins them."""
        first, second, third = self.channels
        low, high = self.up_channels
        marks = [
            mark("unet pool", "", first, words="avg_pool|avgpool"),
            mark("unet max", "", second, words="max_pool|maxpool"),
            mark("unet grow", "grow", third, 92),
            mark("unet grow", "grow", 92, words="conv"),
            mark("unet scale", "", low, words="upsample"),
            mark("unet last", "last_conv", high, self.last),
            mark("unet last", "last_conv", self.last, words="conv"),
            mark("loss", "", self.last, self.side, words=SMALL["loss"]),
        ]
        for size in (92, second, 92 + second):
            marks.append(mark("unet low", "", size, words="cat|slice|narrow"))
        for size in (low, first, low + first):
            marks.append(mark("unet high", "", size, words="cat|slice|narrow"))
        return marks


MODELS: dict[str, type[Model]] = {
    "mlp": Mlp,
    "cnn": Cnn,
    "transformer": Transformer,
    "recurrent": Recurrent,
    "experts": Experts,
    "unet": Unet,
}


def list_all_marks(model: Model) -> Iterator[Mark]:
    """Yield the marks of a model, and those of every training loop."""
    yield from model.list_marks()
    yield mark("backward", "", words="ones_like|fill_", phase="backward")
