"""Gathers, scatters and embeddings: negative indices, every dimension, indices of any rank, quantised tables."""

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu.quantization import QuantizedEmbedding, QuantizedWeight
from operators.helpers import EVERYWHERE, HALF, check
from torch import nn
from torch.export import Dim

pytestmark = pytest.mark.gpu

COUNT = {0: Dim("k", min=1, max=70)}


def gathers(x, i, j):
    z = [
        x[i],
        x[:, i],
        x[:, :, i],
        x[j],
        x[:, j],
        torch.index_select(x, 0, i.abs()),
        torch.index_select(x, -2, i.abs()),
    ]
    return (*z, x.permute(1, 0, 2)[i], x[:, 1:][i] + 1, torch.index_select(x, 2, i.abs()) * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32], ids=str)
def test_gather(tmp_path, dtype):
    torch.manual_seed(0)
    x = (torch.randn(5, 6, 7) * 9).to(dtype)
    calls = [(x, torch.randint(-4, 4, (k,)), torch.randint(-4, 4, (k, 3))) for k in (4, 1, 70)]
    check(tmp_path, gathers, calls, (None, COUNT, COUNT))


def test_narrow_index(tmp_path):
    """i32 indices, and a table with a live number of rows."""
    torch.manual_seed(1)
    calls = [(torch.randn(n, 3), torch.tensor([0, -n, n - 1, -1], dtype=torch.int32)) for n in (4, 1, 33)]
    check(tmp_path, lambda x, i: (x[i], x.t()[:, i]), calls, ({0: Dim("n", min=1, max=40)}, None))


def scatters(x, i, v):
    z = [x.index_put((i,), v), x.index_put((i,), v[0]), x.index_put((i,), torch.full((), 2).to(x.dtype))]
    z += [
        torch.ops.aten.index_put(x, [None, i], v.permute(1, 0, 2)[:5]),
        x.slice_scatter(v[:2], 0, 3, 5),
        x.slice_scatter(x[..., :1], -1, -1),
    ]
    z += [x.slice_scatter(x[:, :2] * 2, 1, 2, 6, 2), x.slice_scatter(x[1:] + 1, 0, 0, -1)]
    y, w = x.clone(), x.clone()
    y[1:3] = v[:2] * 3
    y[:, 2] = x[:, 1]
    y[i] = v * 2
    w.copy_(v[0])
    return (*z, y, w)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
def test_scatter(tmp_path, dtype):
    torch.manual_seed(2)
    x = (torch.randn(5, 6, 7) * 9).to(dtype)
    calls = [(x, torch.tensor(i), (torch.randn(3, 6, 7) * 9).to(dtype)) for i in ([4, 0, 2], [-1, -5, 1])]
    check(tmp_path, scatters, calls)


class Embeddings(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, ids):
        return tuple(layer(ids) for layer in self.layers)


def quantized(bits, group, symmetric):
    rows, columns = 13, 256
    return QuantizedEmbedding(QuantizedWeight.from_float(torch.randn(rows, columns), bits, group, symmetric))


SCHEMES = [(4, group, symmetric) for group in (32, 64, 128) for symmetric in (False, True)] + [(8, 0, True)]


def test_embedding(tmp_path):
    torch.manual_seed(3)
    model = Embeddings(nn.Embedding(13, 7), nn.Embedding(14, 64), *(quantized(*s) for s in SCHEMES))
    calls = [(torch.randint(0, 13, (k, 2)),) for k in (4, 1, 70)]
    calls[0][0][0] = torch.tensor([0, 12])
    check(tmp_path, model, calls, (COUNT,), runs=[*EVERYWHERE, *HALF])


def test_computed_embedding(tmp_path):
    torch.manual_seed(4)
    check(tmp_path, lambda w, i: F.embedding(i, w * 2), [(torch.randn(11, 6), torch.randint(0, 11, (2, 5)))])


def test_half(tmp_path):
    """Constant tables are f32 beside f16 intermediates."""
    torch.manual_seed(5)
    table = torch.randn(9, 5)
    calls = [(torch.randn(4, 5).half().float(), torch.randint(-4, 4, (k,))) for k in (3, 8)]

    def function(x, i):
        return (
            table[i] + x[i],
            torch.index_select(table, 1, i.abs()),
            x.index_put((i[:1],), table[:1].to(x.dtype)),
            x[:, i],
        )

    check(tmp_path, function, calls, (None, {0: Dim("k", min=1, max=8)}), runs=HALF)
