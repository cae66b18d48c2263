"""Layout operators: views, strided reads, cat, pad, fills, at live sizes. A wrong stride or offset would show here."""

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu.errors import ExecuTorchWebGPUError
from operators.helpers import CPU, HALF, Function, Run, check, exported
from torch.export import Dim

pytestmark = pytest.mark.gpu


def strided(x):
    n = x.shape[0]
    z = [x.permute(2, 0, 1), x.permute(1, 2, 0), x.transpose(1, 2), x[:, 1:], x[:, ::2], x[:, 1:-1, -3:], x[..., ::3]]
    z += [
        x.select(1, -2),
        x[:, 0],
        x.select(0, 0).expand(3, 5, 4),
        x[:, :1].expand(n, 7, 4),
        x.unsqueeze(1).expand(n, 2, 5, 4),
    ]
    z += [x.view(n, 20)[:, 1:], x.unsqueeze(0), x[:, :1].squeeze(1), x.flatten(), x[:, :4].reshape(-1, 2, 2)]
    z += [x.permute(0, 2, 1).reshape(n, 20), x.permute(2, 1, 0)[1:, ::2, :], x.clone(), x.transpose(0, 1).contiguous()]
    return (*z, *x.split([1, 3], dim=2), *x.unbind(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32, torch.bool], ids=str)
def test_strided(tmp_path, dtype):
    torch.manual_seed(0)
    calls = [((torch.randn(n, 5, 4) * 9).to(dtype),) for n in (3, 1, 13, 64)]
    check(tmp_path, strided, calls, ({0: Dim("n", min=1, max=80)},))


def test_no_element(tmp_path):
    """A batch of 0 gives results without elements, and leaves constants and other rows alone."""
    calls = [(torch.randn(n, 4), torch.randn(2, 4)) for n in (3, 0, 1)]
    both = lambda x, y: (x.t(), torch.cat([x, y]), torch.cat([y, x, y])[1:], F.pad(x, (1, 1)), x[:, ::2] * 2)  # noqa: E731
    check(tmp_path, both, calls, ({0: Dim("n", min=0, max=8)}, None))


def test_six_dimensions(tmp_path):
    torch.manual_seed(1)
    x = torch.randn(2, 3, 2, 5, 1, 7)
    check(tmp_path, lambda x: (x.permute(5, 0, 2, 4, 1, 3), x[:, :, :, 1:4:2].permute(3, 5, 1, 0, 2, 4) * 2), [(x,)])


def cats(x, y):
    z = [
        torch.cat([x, y]),
        torch.cat([x, x, y, x]),
        torch.cat([x, x * 2], 1),
        torch.cat([x, x[..., :1], x[..., 1:]], 2),
    ]
    z += [torch.cat([x[:, :1], x, x[:, 3:]], -2), torch.stack([x, x], 1), torch.cat([x[0], y[0], x[0]], 1)]
    return (*z, torch.cat([x.transpose(1, 2), x[:, :3].transpose(1, 2)], 2), torch.cat([x, x], 0)[1:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32], ids=str)
def test_cat(tmp_path, dtype):
    torch.manual_seed(2)
    dims = {0: Dim("n", min=1, max=40)}, {0: Dim("m", min=1, max=40)}
    calls = [tuple((torch.randn(k, 5, 3) * 9).to(dtype) for k in nm) for nm in ((3, 2), (1, 40), (17, 1), (40, 40))]
    check(tmp_path, cats, calls, dims)


def pads(x):
    z = [F.pad(x, p, value=v) for p, v in (((1, 2), 0.0), ((0, 1, 2, 0), -1.5), ((1, 1, 1, 1, 2, 3), 7.0))]
    z += [F.pad(x, p, value=float("-inf")) for p in ((-1, 0), (2, -1, -2, 3))]
    return (*z, F.pad(x, (-1, -1, -1, -1)), F.pad(x * 2, (0, 0, 0, 0, 1, 0)), F.pad(x, (3, 0)).relu())


def test_pad(tmp_path):
    torch.manual_seed(3)
    calls = [(torch.randn(n, 5, 4),) for n in (3, 1, 20)]
    check(tmp_path, pads, calls, ({0: Dim("n", min=1, max=20)},))


def fills(x, i):
    n = x.shape[0]
    z = [
        torch.full((n, 2), 7.5),
        torch.full_like(x, 2.0) * x,
        torch.zeros_like(x) + x,
        torch.ones(3, n),
        torch.zeros(2),
    ]
    z += [torch.arange(n), torch.arange(n) * 2 + i[0], torch.arange(3, 24, 3), torch.arange(2, 2 + 3 * n, 3) - 1]
    z += [
        torch.arange(n)[:, None] <= torch.arange(5),
        torch.full((2, n), 3),
        torch.full((n,), True),
        torch.full((), 2.5),
    ]
    return (*z, x + torch.arange(n).unsqueeze(1), torch.arange(0, 4).to(torch.float32) * 0.5)


def test_fill(tmp_path):
    torch.manual_seed(4)
    calls = [(torch.randn(n, 3), torch.tensor([k])) for n, k in ((4, 5), (1, -3), (300, 1 << 20))]
    check(tmp_path, fills, calls, ({0: Dim("n", min=1, max=300)}, None))


@pytest.mark.parametrize("run", [Run(), *CPU], ids=str)
def test_size_beyond_the_maximum(tmp_path, run):
    path = exported(tmp_path, Function(lambda x: x * 2), (torch.ones(3, 2),), (({0: Dim("n", min=1, max=5)},),))
    session = run.session(path)
    with pytest.raises(ExecuTorchWebGPUError, match="6"):
        session.forward(torch.randn(6, 2))
    assert session.forward(torch.ones(5, 2))[0].sum() == 20


def test_half(tmp_path):
    """Copies of what f16 holds are exact; constants stay f32 beside it."""
    torch.manual_seed(5)
    table = torch.randn(2, 5, 3).half().float()
    calls = [(torch.randn(n, 5, 3).half().float(),) for n in (3, 8)]
    both = lambda x: (torch.cat([x, table]), F.pad(x, (1, 2), value=0.5), x.permute(2, 0, 1) * 1.0)  # noqa: E731
    check(tmp_path, both, calls, ({0: Dim("n", min=1, max=8)},), runs=HALF, tolerance=1e-7)
