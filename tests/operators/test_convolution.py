"""Convolutions and pools: odd sizes, strides, dilations, groups, the fused activations and residuals, live batches."""

import pytest
import torch
import torch.nn.functional as F
from operators.helpers import CPU, HALF, WITHOUT_PASSES, Run, check
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.gpu

BATCH = ({0: Dim("n", min=1, max=4)},)
ONE_TIER = [Run(), *CPU]


class Several(nn.Module):
    """One input through several layers."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return tuple(layer(x) for layer in self.layers)


def images(*shape, batches=(2, 1, 4)):
    return [(torch.randn(n, *shape),) for n in batches]


def conv(*args, **options):
    return nn.Conv2d(*args, **options)


# channels → layers over an image of 13 × 15
LAYERS = {
    1: lambda: [conv(1, 1, 1), conv(1, 2, (3, 5), stride=(2, 1)), conv(1, 65, 3, padding=2)],
    3: lambda: [conv(3, 64, 3, stride=2, padding=1, bias=False), conv(3, 63, 1, stride=2), conv(3, 3, 13, padding=6)],
    6: lambda: [
        conv(6, 9, 3, padding=1, groups=3),
        conv(6, 4, (1, 3), dilation=(1, 2), groups=2),
        conv(6, 6, 3, padding=1, groups=6),
        conv(6, 12, 5, stride=2, padding=2, groups=6, bias=False),
        conv(6, 18, (3, 1), stride=(1, 3), dilation=3, padding=(4, 0), groups=6),
        conv(6, 17, 1, bias=False),
        conv(6, 5, 3, stride=2, dilation=2, padding=(0, 3)),
    ],
    65: lambda: [conv(65, 129, 1), conv(65, 66, 2), conv(65, 130, 3, groups=65, padding=1), conv(65, 5, 1, padding=1)],
}


@pytest.mark.parametrize("channels", LAYERS)
def test_2d(tmp_path, channels):
    torch.manual_seed(0)
    check(tmp_path, Several(*LAYERS[channels]()), images(channels, 13, 15), BATCH, runs=[*ONE_TIER, *WITHOUT_PASSES])


def test_1d(tmp_path):
    torch.manual_seed(1)
    layers = [
        nn.Conv1d(6, 9, 3, padding=1),
        nn.Conv1d(6, 9, 4, stride=3),
        nn.Conv1d(6, 6, 3, padding=2, dilation=2, groups=6),
    ]
    layers += [nn.Conv1d(6, 4, 5, groups=2, bias=False), nn.Conv1d(6, 70, 1)]
    check(tmp_path, Several(*layers), images(6, 67), BATCH)


def test_live_image(tmp_path):
    """Height and width are known in the call only."""
    torch.manual_seed(2)
    dims = ({2: Dim("h", min=4, max=40), 3: Dim("w", min=4, max=40)},)
    layers = [conv(3, 8, 3, padding=1), conv(3, 6, 3, padding=1, groups=3), conv(3, 5, 1), nn.MaxPool2d(3, 1, 1)]
    calls = [(torch.randn(2, 3, h, w),) for h, w in ((8, 9), (4, 4), (40, 17), (5, 40))]
    check(tmp_path, Several(*layers), calls, dims, runs=ONE_TIER)


ACTIVATIONS = {"relu": F.relu, "relu6": F.relu6, "silu": F.silu, "hardswish": F.hardswish, "none": lambda x: x}


class OneFused(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.layer, self.act = conv(6, 6, 3, padding=1), act

    def forward(self, x):
        return x + self.act(self.layer(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.full, self.depthwise = conv(6, 6, 3, padding=1), conv(6, 6, 3, padding=1, groups=6)
        self.pointwise = conv(6, 6, 1)

    def forward(self, x):
        z = [act(self.depthwise(x)) for act in ACTIVATIONS.values()]
        for layer in (self.full, self.depthwise, self.pointwise):
            z += [x + act(layer(x)) for act in ACTIVATIONS.values()]
        return (*z, F.relu(self.full(x) + x), self.full(x) + x[:1, :, :1], F.hardswish(F.relu(self.full(x))))


def test_fused(tmp_path):
    """Each activation, with and without a residual; what must not be fused: a sum before, a broadcast sum."""
    torch.manual_seed(3)
    calls = [(torch.randn(n, 6, 7, 9) * 3,) for n in (2, 1, 4)]
    check(tmp_path, Block(), calls, BATCH, runs=ONE_TIER)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_fused_is_one_dispatch(tmp_path, name):
    torch.manual_seed(4)
    check(tmp_path, OneFused(ACTIVATIONS[name]), images(6, 5, 5), BATCH, runs=[Run()], max_dispatches=1)


class ComputedWeight(nn.Module):
    def forward(self, x, w, b):
        return F.conv2d(x, w * 2, b), F.conv2d(x[:, :2], w[:2, :1].relu(), groups=2)


def test_computed_weight(tmp_path):
    torch.manual_seed(5)
    call = (torch.randn(2, 3, 6, 7), torch.randn(4, 3, 3, 2), torch.randn(4))
    check(tmp_path, ComputedWeight(), [call], runs=[*ONE_TIER, *HALF], tolerance=None)


def pools(x):
    z = [F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)]
    z += [F.avg_pool2d(x, (2, 3), (2, 1), (1, 0)), F.avg_pool2d(x, (3, 2), 1, (1, 1), divisor_override=5)]
    z += [
        F.avg_pool2d(x, 3, 3, 1, False, False, 2),
        F.max_pool2d(x, 3, 2, 1),
        F.max_pool2d(x, 2),
        F.max_pool2d(x, (1, 3)),
    ]
    z += [F.max_pool2d(x - 50, 3, 1, 1), F.max_pool2d(x, 3, (2, 1), (1, 0), dilation=2), F.max_pool2d(x, (13, 2), 1)]
    return (*z, *(F.adaptive_avg_pool2d(x, s) for s in (1, (3, 4), (13, 15), (5, None), (20, 2))))


def test_pools(tmp_path):
    torch.manual_seed(6)
    check(tmp_path, pools, images(5, 13, 15), BATCH)


def test_half(tmp_path):
    torch.manual_seed(7)
    layers = [
        conv(8, 12, 3, padding=1),
        conv(8, 8, 3, groups=8),
        conv(8, 70, 1),
        nn.AvgPool2d(3, 2, 1),
        nn.MaxPool2d(2),
    ]
    layers += [nn.AdaptiveAvgPool2d(3), nn.Sequential(conv(8, 8, 3, padding=1), nn.ReLU6())]
    check(tmp_path, Several(*layers), images(8, 9, 11), BATCH, runs=HALF)
