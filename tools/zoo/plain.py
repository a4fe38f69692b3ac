"""Architectures of PyTorch's own layers, small, with seeded weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgekit.model.detector import Detector
from edgekit.model.spec import Axis, Input, ModelSpec, Output
from tools.zoo.samples import (
    BATCH,
    KINDS,
    ROWS,
    STATISTICS,
    joined,
    model,
    pictures,
    seeded,
    sounds,
    vectors,
)

SIDE = Axis(32, 32, 64, 16)
WORDS = 40


class StatefulLstm(nn.Module):
    """One chunk of a sequence and the state -> answers and the next state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (h, c) = self.lstm(x, (h.transpose(0, 1).contiguous(), c.transpose(0, 1).contiguous()))
        return self.head(y), h.transpose(0, 1), c.transpose(0, 1)


class BothWaysGru(nn.Module):
    """A sequence read from both ends -> classes."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(12, 16, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(x)[0].mean(1))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """Pictures of any size -> a mask."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = pair(3, 8), pair(8, 16), pair(16, 32)
        self.up2, self.up1 = nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)
        self.join2, self.join1 = pair(32, 16), pair(16, 8)
        self.head = nn.Conv2d(8, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        one = self.down1(images)
        two = self.down2(functional.max_pool2d(one, 2))
        low = self.middle(functional.max_pool2d(two, 2))
        two = self.join2(torch.cat([self.up2(low), two], 1))
        one = self.join1(torch.cat([self.up1(two), one], 1))
        return torch.sigmoid(self.head(one))


class VaeDecoder(nn.Module):
    """Latents -> pictures: group norms, SiLU, attention over positions, nearest neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, 32, 3, padding=1)
        self.blocks = nn.ModuleList([_Residual(32) for _ in range(3)])
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.ups = nn.ModuleList([nn.Conv2d(32, 32, 3, padding=1) for _ in range(2)])
        self.leave = nn.Conv2d(32, 3, 3, padding=1)

    def forward(self, latents: Tensor) -> Tensor:
        x = self.blocks[0](self.enter(latents))
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat, need_weights=False)[0].transpose(1, 2).reshape(x.shape)
        for block, up in zip(self.blocks[1:], self.ups, strict=True):
            x = block(up(functional.interpolate(x, scale_factor=2.0, mode="nearest")))
        return torch.tanh(self.leave(functional.silu(x)))


class Generator(nn.Sequential):
    """Noise -> pictures by transposed convolutions, as DCGAN's."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, after in ((16, 32), (32, 24), (24, 16)):
            stride = 1 if before == 16 else 2
            made = nn.ConvTranspose2d(before, after, 4, stride, 0 if stride == 1 else 1, bias=False)
            layers += [made, nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())


class Encoder(nn.Module):
    """PyTorch's own transformer encoder over vectors -> an embedding of length one."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True, activation="gelu")
        self.enter = nn.Linear(12, 24)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return functional.normalize(self.layers(self.enter(x)).mean(1), dim=1)


class Tcn(nn.Module):
    """Dilated causal convolutions over a sound -> one number a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, 16, 1)
        self.layers = nn.ModuleList([nn.Conv1d(16, 32, 2, dilation=2**n) for n in range(5)])
        self.back = nn.ModuleList([nn.Conv1d(16, 16, 1) for _ in range(5)])
        self.leave = nn.Conv1d(16, 1, 1)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.enter(sound)
        for number, (layer, back) in enumerate(zip(self.layers, self.back, strict=True)):
            gate, value = layer(functional.pad(x, (2**number, 0))).chunk(2, 1)
            x = x + back(torch.tanh(value) * torch.sigmoid(gate))
        return self.leave(x)  # type: ignore[no-any-return]


class KvDecoder(nn.Module):
    """A word and the keys and values of those before it -> the next word's logits, and all keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 32)
        self.inner = nn.ModuleList([nn.Linear(32, 96) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(2)])
        self.mix = nn.ModuleList([nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(2)])
        self.head = nn.Linear(32, WORDS)

    def forward(self, word: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.embed(word)
        found: list[tuple[Tensor, Tensor]] = []
        for number, (inner, norm, mix) in enumerate(zip(self.inner, self.norms, self.mix, strict=True)):
            query, key, value = inner(norm(x)).unflatten(-1, (3, 4, 8)).transpose(1, 3).unbind(2)
            own = torch.cat([keys[:, number], key], 2), torch.cat([values[:, number], value], 2)
            x = x + functional.scaled_dot_product_attention(query, *own).transpose(1, 2).flatten(2)
            x = x + mix(x)
            found.append(own)
        keys, values = (torch.stack(one, 1) for one in zip(*found, strict=True))
        return self.head(x), keys, values


class SelectiveScan(nn.Module):
    """A sequence through a state whose decay and input follow from the sequence itself, as Mamba's."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.step = nn.Linear(12, 32), nn.Linear(16, 16)
        self.between, self.leave = nn.Linear(16, 16), nn.Linear(16, 5)
        self.decay = nn.Parameter(torch.zeros(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.enter(x).chunk(2, -1)
        time = functional.softplus(self.step(value)).unsqueeze(-1)
        write, read = self.between(value).chunk(2, -1)
        keep = torch.exp(-time * torch.exp(self.decay))
        new = time * value.unsqueeze(-1) * write.unsqueeze(2)
        state, answers = torch.zeros_like(new[:, 0]), []
        for at in range(x.shape[1]):
            state = keep[:, at] * state + new[:, at]
            answers.append((state * read[:, at].unsqueeze(1)).sum(-1))
        return self.leave((torch.stack(answers, 1) * functional.silu(gate)).mean(1))  # type: ignore[no-any-return]


class GraphNetwork(nn.Module):
    """Nodes and edges by their ends -> classes: two rounds of messages along the edges, added up at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.message, self.leave = nn.Linear(8, 16), nn.Linear(32, 16), nn.Linear(16, 5)

    def forward(self, starts: Tensor, ends: Tensor, nodes: Tensor) -> Tensor:
        x = torch.relu(self.enter(nodes))
        starts, ends = (one.unsqueeze(2).expand(-1, -1, 16) for one in (starts, ends))
        for _ in range(2):
            sent = torch.relu(self.message(torch.cat([x.gather(1, starts), x.gather(1, ends)], 2)))
            x = x + torch.zeros_like(x).scatter_add(1, ends, sent) / 4
        return self.leave(x.mean(1))  # type: ignore[no-any-return]


class FourierOperator(nn.Module):
    """A function on a line -> another one: products of its first Fourier coefficients, as FNO's."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 1, 1)
        self.real, self.imaginary = (nn.Parameter(torch.zeros(8, 8, 12)) for _ in range(2))
        self.beside = nn.Conv1d(8, 8, 1)

    def forward(self, sound: Tensor) -> Tensor:
        x = self.enter(sound)
        found = torch.fft.rfft(x)[..., :12]
        products = torch.einsum("bif,iof->bof", found, torch.complex(self.real, self.imaginary))
        smooth = torch.fft.irfft(functional.pad(products, (0, 21)), n=64)
        return self.leave(functional.gelu(smooth + self.beside(x)))  # type: ignore[no-any-return]


class MaskDecoder(nn.Module):
    """An encoder's map of a picture and points -> masks and how good they are, as SAM's decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Parameter(torch.zeros(4, 32))
        self.place = nn.Linear(2, 32)
        self.there, self.back = (nn.MultiheadAttention(32, 4, batch_first=True) for _ in range(2))
        self.norm1, self.norm2, self.good = nn.LayerNorm(32), nn.LayerNorm(32), nn.Linear(32, 1)
        self.up = nn.Sequential(nn.ConvTranspose2d(32, 16, 2, 2), nn.GELU(), nn.ConvTranspose2d(16, 8, 2, 2))
        self.weigh = nn.Linear(32, 8)

    def forward(self, embedding: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
        picture = embedding.flatten(2).transpose(1, 2)
        tokens = torch.cat([self.tokens.expand(points.shape[0], -1, -1), torch.sin(3 * self.place(points))], 1)
        tokens = self.norm1(tokens + self.there(tokens, picture, picture, need_weights=False)[0])
        picture = self.norm2(picture + self.back(picture, tokens, tokens, need_weights=False)[0])
        pixels = self.up(picture.transpose(1, 2).unflatten(2, embedding.shape[2:]))
        masks = (self.weigh(tokens[:, :4]) @ pixels.flatten(2)).unflatten(2, pixels.shape[2:])
        return torch.sigmoid(masks), self.good(tokens[:, :4]).squeeze(2)


class Cells(nn.Module):
    """Boxes around the cells of a grid, each there twice, and scores of five classes: what suppression takes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(pair(3, 16), nn.MaxPool2d(4), pair(16, 32), nn.AvgPool2d(2))
        self.sides, self.kinds = nn.Conv2d(32, 4, 1), nn.Conv2d(32, KINDS, 1)
        across, down = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="xy")
        middle = torch.stack([across, down], -1).reshape(16, 2) * 8.0 + 4
        self.boxes = nn.Buffer(torch.cat([middle - 6, middle + 6], 1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        x = self.layers(images)
        middle = x.mean((2, 3), keepdim=True)
        x = middle + 0.3 * (x - middle)  # what a cell sees is mostly what the picture is of
        boxes = self.boxes + torch.tanh(self.sides(x)).flatten(2).transpose(1, 2)
        scores = torch.sigmoid(2 * self.kinds(x) - 3).flatten(2).transpose(1, 2)
        return torch.cat([boxes, boxes + 1], 1), torch.cat([scores, 0.8 * scores], 1)


class Convolutions(nn.Sequential):
    """Pictures -> classes."""

    def __init__(self) -> None:
        first, second = nn.Conv2d(3, 16, 3, stride=2), nn.Conv2d(16, 32, 3, stride=2)
        last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, KINDS))
        super().__init__(first, nn.ReLU(), second, nn.ReLU(), *last)


def lstm() -> ModelSpec:
    shapes = {"x": (10, 12), "h": (2, 16), "c": (2, 16)}
    inputs = tuple(Input(name, ("batch", *shape), low=-2.0, high=2.0) for name, shape in shapes.items())
    outputs = (Output("y"), Output("h_out", role="state"), Output("c_out", role="state"))
    return model("lstm", StatefulLstm(), inputs, outputs, vectors(**shapes))


def gru() -> ModelSpec:
    inputs = (Input("x", ("batch", 10, 12), low=-2.0, high=2.0),)
    return model("gru", BothWaysGru(), inputs, (Output("logits", role="logits"),), vectors(x=(10, 12)))


def unet() -> ModelSpec:
    inputs = (Input("images", ("batch", 3, "height", "width"), kind="image"),)
    axes = {"batch": BATCH, "height": SIDE, "width": SIDE}
    return model("unet", UNet(), inputs, (Output("mask", role="mask"),), pictures("images", 32), axes)


def vae_decoder() -> ModelSpec:
    inputs = (Input("latents", ("batch", 4, 8, 8), low=-2.0, high=2.0),)
    outputs = (Output("images", role="image"),)
    return model("vae-decoder", VaeDecoder(), inputs, outputs, vectors(latents=(4, 8, 8)))


def generator() -> ModelSpec:
    inputs = (Input("noise", ("batch", 16, 1, 1), low=-2.0, high=2.0),)
    return model("generator", Generator(), inputs, (Output("images", role="image"),), vectors(noise=(16, 1, 1)))


def encoder() -> ModelSpec:
    inputs = (Input("x", ("batch", 10, 12), low=-2.0, high=2.0),)
    return model("encoder", Encoder(), inputs, (Output("embedding", role="embedding"),), vectors(x=(10, 12)))


def tcn() -> ModelSpec:
    inputs = (Input("sound", ("batch", 1, 256), low=-1.0),)
    return model("tcn", Tcn(), inputs, (Output("y"),), sounds("sound", (1, 256)))


def kv_decoder() -> ModelSpec:
    state = ("batch", 2, 4, "past", 8)
    words = Input("word", ("batch", 1), dtype="int64", low=0, high=WORDS - 1)
    inputs = (words, *(Input(name, state, low=-2.0, high=2.0) for name in ("keys", "values")))
    outputs = (Output("logits", role="logits"), Output("keys_out", role="state"), Output("values_out", role="state"))
    samples = joined(vectors(keys=(2, 4, 6, 8), values=(2, 4, 6, 8)), word=(WORDS, 1))
    axes = {"batch": BATCH, "past": Axis(6, 1, 12)}
    return model("kv-decoder", KvDecoder(), inputs, outputs, samples, axes)


def selective_scan() -> ModelSpec:
    inputs = (Input("x", ("batch", 10, 12), low=-2.0, high=2.0),)
    return model("selective-scan", SelectiveScan(), inputs, (Output("logits", role="logits"),), vectors(x=(10, 12)))


def graph_network() -> ModelSpec:
    ends = [Input(name, ("batch", 20), dtype="int64", low=0, high=11) for name in ("starts", "ends")]
    inputs = (*ends, Input("nodes", ("batch", 12, 8), low=-2.0, high=2.0))
    samples = joined(vectors(nodes=(12, 8)), starts=(12, 20), ends=(12, 20))
    return model("graph-network", GraphNetwork(), inputs, (Output("logits", role="logits"),), samples)


def fourier_operator() -> ModelSpec:
    inputs = (Input("sound", ("batch", 1, 64), low=-1.0),)
    return model("fourier-operator", FourierOperator(), inputs, (Output("y"),), sounds("sound", (1, 64)))


def mask_decoder() -> ModelSpec:
    inputs = (
        Input("embedding", ("batch", 32, 8, 8), low=-2.0, high=2.0),
        Input("points", ("batch", 3, 2), low=-2.0, high=2.0),
    )
    outputs = (Output("masks", role="mask"), Output("quality"))
    samples = vectors(embedding=(32, 8, 8), points=(3, 2))
    return model("mask-decoder", MaskDecoder(), inputs, outputs, samples)


def detector() -> ModelSpec:
    inputs = (Input("images", ("batch", 3, 32, 32), kind="image"),)
    module = Detector(Cells(), most=20, threshold=0.4, candidates=64)
    return model("detector", module, inputs, module.outputs, pictures("images", 32))


def qat() -> ModelSpec:
    """Rounded by PyTorch's way in two steps, as docs/qat.md does; its ranges are those of what it was shown."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e import allow_exported_model_train_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_qat_pt2e

    samples = pictures("images", 32)
    size = {0: torch.export.Dim("batch", max=64)}
    net = seeded(Convolutions(), 1, samples)
    captured = torch.export.export(net, (torch.rand(4, 3, 32, 32),), dynamic_shapes=(size,)).module()
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True, is_qat=True))
    prepared = allow_exported_model_train_eval(prepare_qat_pt2e(captured, quantizer))
    prepared.train()
    with torch.no_grad():
        for part in torch.from_numpy(samples(10 * ROWS, STATISTICS)["images"]).split(ROWS):  # type: ignore[no-untyped-call]
            prepared(part)
    prepared.eval()
    module = allow_exported_model_train_eval(convert_pt2e(prepared))
    inputs = (Input("images", ("batch", 3, 32, 32), kind="image"),)
    return model("qat", module, inputs, (Output("logits", role="logits"),), samples, seed=None)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        return x + self.conv2(functional.silu(self.norm2(y)))  # type: ignore[no-any-return]


def pair(before: int, after: int) -> nn.Sequential:
    """Two convolutions with batch norms."""
    layers: list[nn.Module] = []
    for width in (before, after):
        layers += [nn.Conv2d(width, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)
