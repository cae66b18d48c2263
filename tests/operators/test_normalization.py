"""Normalisations on the GPU; rows far from zero would show a variance of mean(x²) − mean²."""

import pytest
import torch
import torch.nn.functional as F
from operators.helpers import CPU, GPU, HALF, WITHOUT_PASSES, check, check_gpu
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.gpu


def randomize(model):
    for p in model.parameters():
        nn.init.uniform_(p, 0.5, 1.5)
    for name, b in model.named_buffers():
        if "running" in name:
            nn.init.uniform_(b, 0.5, 1.5)
    return model


ROWS = ({0: Dim("rows", min=1, max=64)},)


@pytest.mark.parametrize("width", [5, 64, 577, 2048])
@pytest.mark.parametrize("kind", ["rms", "layer", "layer_plain"])
def test_rows(tmp_path, kind, width):
    torch.manual_seed(0)
    model = {
        "rms": lambda: nn.RMSNorm(width, eps=1e-5),
        "layer": lambda: nn.LayerNorm(width),
        "layer_plain": lambda: nn.LayerNorm(width, elementwise_affine=False),
    }[kind]()
    calls = [(torch.randn(n, width) * 3,) for n in (3, 1, 33)]
    check_gpu(tmp_path, randomize(model), calls, ROWS, precisions=("f32", "f16"), tolerance=None)


def test_far_from_zero(tmp_path):
    torch.manual_seed(1)
    check_gpu(tmp_path, nn.LayerNorm(512), [(torch.randn(3, 512) + 300,)], tolerance=3e-4)


@pytest.mark.parametrize(
    ("shape", "groups"), [((1, 6, 5, 7), 3), ((2, 8, 4, 4), 2), ((1, 32, 16, 16), 32), ((2, 4, 1, 3), 1)]
)
def test_groups(tmp_path, shape, groups):
    torch.manual_seed(2)
    check_gpu(tmp_path, randomize(nn.GroupNorm(groups, shape[1])), [(torch.randn(shape) * 3 + 1,)])


def test_batch_norm(tmp_path):
    torch.manual_seed(3)
    check_gpu(tmp_path, randomize(nn.BatchNorm2d(6)), [(torch.randn(2, 6, 5, 7),)], tiers=["baseline"])


def test_given_weights(tmp_path):
    """Weights that are inputs, and none at all; also without graph passes on the GPU."""
    torch.manual_seed(4)

    def norms(x, w, b, image):
        z = [F.rms_norm(x, (7,), w, 1e-5), F.rms_norm(x, (7,)), F.layer_norm(x, (7,), w, b), F.layer_norm(x, (7,))]
        return (*z, F.group_norm(image, 3), F.group_norm(image, 2, b[:6], w[:6]))

    check(tmp_path, norms, [(torch.randn(2, 5, 7), torch.randn(7), torch.randn(7), torch.randn(2, 6, 3, 5))])


EVERY = [*GPU, *HALF, *CPU, *WITHOUT_PASSES]
# beside rows as they usually are: mean squares of about eps, far below it, and 0
SMALL = torch.tensor([1.0, 3e-3, 1e-3, 1e-4, 0.0])


@pytest.mark.parametrize("width", [5, 64, 577])
def test_small_rows(tmp_path, width):
    """What only eps keeps small."""
    torch.manual_seed(5)

    def norms(x, w, b):
        rms = [F.rms_norm(x, (width,), w, eps) for eps in (1e-5, 1e-6)]
        return (*rms, *(F.layer_norm(x, (width,), w, b, eps) for eps in (1e-5, 1e-6)))

    x = torch.randn(5, width) * SMALL[:, None]
    check(tmp_path, norms, [(x, torch.rand(width) + 0.5, torch.randn(width))], runs=EVERY)


def test_no_eps_given(tmp_path):
    """Torch takes the dtype's: the program's was f32's."""
    torch.manual_seed(6)

    def norm(x):
        return F.rms_norm(x, (64,), None, None if x.dtype == torch.float32 else torch.finfo(torch.float32).eps)

    check(tmp_path, norm, [(torch.randn(5, 64) * SMALL[:, None] / 8,)])


def test_small_channels(tmp_path):
    """Groups of small values, and channels that were hardly ever different from their mean."""
    torch.manual_seed(7)

    def norms(x, mean, variance):
        groups = [F.group_norm(x, 5, eps=eps) for eps in (1e-5, 1e-6)]
        return (*groups, *(F.batch_norm(x, mean, variance, eps=eps) for eps in (1e-5, 1e-6)))

    scale = SMALL.repeat_interleave(2)
    x = torch.randn(2, 10, 3, 5) * scale[:, None, None]
    check(tmp_path, norms, [(x, torch.zeros(10), scale**2)], runs=EVERY)
