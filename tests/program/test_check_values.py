"""load(check_values=True): what it names in exported modules, on both devices, and that it changes nothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu import cli, errors
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.runtime import load
from operators.helpers import exported
from program.test_runtime import _export, _write
from torch import nn

DEVICES = ["cpu", pytest.param("webgpu", marks=pytest.mark.gpu)]
PASSES = ["", "all"]


class Loud(nn.Module):
    """Activations as large as Gemma's: beyond 65504 between two linears."""

    def __init__(self):
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(32, 64), nn.RMSNorm(64, eps=1e-6), nn.Linear(64, 32)
        self.up.weight.data = self.up.weight.data.abs() + 0.05

    def forward(self, x):
        return self.down(self.norm(F.relu(self.up(1000 * x))))


@pytest.mark.gpu
@pytest.mark.parametrize("passes", PASSES)
def test_overflow_in_f16_is_named(tmp_path, passes):
    model = Loud().eval()
    path = exported(tmp_path, model, (torch.ones(3, 32),))
    x = torch.ones(3, 32)
    x[1] = 50
    options = {"disable_passes": passes}
    with load(path, "webgpu", precision="f16", check_values=True, **options) as session:
        where = r" f16 \[3, 64\] inf at \[1, 0\]; inputs: .* finite; f16 ends at 65504: try precision f32"
        operator = (
            r"aten\.linear\.default \(aten_linear_default\)"
            if passes
            else r"etwgpu\.linear \(aten_linear_default\+\w+\)"
        )
        with pytest.raises(errors.NonFiniteError, match=rf"^method forward: {operator} .*{where}"):
            session.forward(x)
        assert session.forward(x / 1000)[0].isfinite().all(), "usable after an error"
    for checked in ("webgpu", "cpu"):
        with load(path, checked, check_values=True, **options) as session:
            torch.testing.assert_close(session.forward(x)[0], model(x).detach(), atol=1e-4, rtol=1e-4)


class Ratio(nn.Module):
    def forward(self, x, y):
        return torch.softmax(x / y, -1) + 1


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("device", DEVICES)
def test_division_by_zero_is_named(tmp_path, device, passes):
    x, y = torch.ones(2, 5), torch.ones(2, 5)
    session = load(exported(tmp_path, Ratio(), (x, y)), device, disable_passes=passes, check_values=True)
    assert torch.equal(session.forward(x, y)[0], torch.full((2, 5), 1.2))
    y[1, 3] = 0
    with pytest.raises(errors.NonFiniteError, match=r" f32 \[2, 5\] inf at \[1, 3\]; inputs: .* finite, .* finite"):
        session.forward(x, y)
    x[1, 3] = 0
    with pytest.raises(ArithmeticError, match=r" NaN at \[1, 3\]"):  # also by its usual Python class
        session.forward(x, y)


def test_kernel_calls_outside_of_delegates_are_checked(tmp_path):
    x, y = torch.ones(2, 5), torch.ones(2, 5)
    path = _write(tmp_path / "model.pte", _export(Ratio(), (x, y)).to_executorch())
    session = load(path, "cpu", check_values=True)
    assert session.forward(x, y)[0].isfinite().all()
    y[0, 4] = 0
    with pytest.raises(errors.NonFiniteError, match=r"method forward: aten\.div\.Tensor \(a kernel call\) .*\[0, 4\]"):
        session.forward(x, y)


class Masked(nn.Module):
    """The usual ways to hide scores."""

    def forward(self, q, k, keep):
        scores = (q @ k.transpose(-1, -2)).masked_fill(~keep, float("-inf"))
        bias = (1.0 - keep.float()) * torch.finfo(torch.float32).min
        causal = torch.full((q.shape[-2], k.shape[-2]), float("-inf")).triu(1)
        y = torch.softmax(scores, -1) + torch.softmax(q @ k.transpose(-1, -2) + bias + causal, -1)
        q, k = q[None, None], k[None, None]
        return y, F.scaled_dot_product_attention(q, k, k, torch.zeros_like(bias).masked_fill(~keep, float("-inf")))


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("device", DEVICES)
def test_masks_are_no_errors(tmp_path, device, passes):
    keep = torch.tensor([[1, 0, 1], [1, 1, 0], [1, 0, 0]]).bool()
    inputs = torch.randn(3, 8), torch.randn(3, 8), keep
    path = exported(tmp_path, Masked(), inputs)
    expected = Masked()(*inputs)
    for precision in ("f32", "f16") if device == "webgpu" else ("f32",):
        session = load(path, device, precision=precision, disable_passes=passes, check_values=True)
        for found, wanted in zip(session.forward(*inputs), expected, strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-2 if precision == "f16" else 1e-5, rtol=0)


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("device", DEVICES)
def test_what_is_finite_stays_bit_by_bit(fixture_of, device, passes):
    for name in ("mlp", "conv", "mixed", "decoder2"):
        fixture = fixture_of(name)
        plain, checked = (load(fixture.path, device, disable_passes=passes, check_values=c) for c in (False, True))
        for inputs, _ in fixture.calls[:3]:
            expected, found = ([o.tobytes() for o in s.forward(*inputs)] for s in (plain, checked))
            assert found == expected, name


@pytest.mark.parametrize("device", DEVICES)
def test_generation_is_checked(folder, device, capsys):
    """Greedy and drawn tokens, and a draft, are those of a generation without the switch."""
    words = {"max_tokens": 8, "temperature": 0.8, "seed": 3}
    found = []
    for check in (False, True):
        with TextGenerator(folder, device, activations="exact", check_values=check) as model:
            found.append([model.generate("w1 w2 w3 w1 w2", **o).ids for o in ({"max_tokens": 8}, words)])
    assert found[0] == found[1]
    arguments = ["run", str(folder), "w1 w2", "--device", device, "--max-tokens", "2", "--check-values"]
    assert cli.main(arguments) == 0, capsys.readouterr().err
