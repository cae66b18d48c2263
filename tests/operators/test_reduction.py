"""Reductions and softmax over every dimension, by rows and by columns, at the borders of a workgroup of 256."""

import pytest
import torch
from operators.helpers import CPU, GPU, HALF, WITHOUT_PASSES, check
from torch.export import Dim

pytestmark = pytest.mark.gpu


def sums(x):
    z = []
    for dims in (0, 1, -1, (0, 1), (1, 2), (0, 2), (0, 1, 2)):
        for keep in (False, True):
            z += [x.sum(dims, keepdim=keep), x.mean(dims, keepdim=keep), x.amax(dims, keepdim=keep), x.amin(dims, keep)]
    return (*z, x.sum(), x.mean(), x.amax())


def columns_and_rows(x):
    z = [x.argmax(d, keepdim=k) for d in (0, 1, 2) for k in (False, True)]
    return (*z, *(x.softmax(d) for d in (0, 1, 2)), *(x.log_softmax(d) for d in (0, 1, -1)))


SHAPES = [(3, 1), (5, 7), (2, 257)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("function", [sums, columns_and_rows])
def test_live_batch(tmp_path, function, shape):
    torch.manual_seed(0)
    runs = [*GPU, *CPU, *WITHOUT_PASSES] if function is columns_and_rows else [GPU[0], *CPU, *WITHOUT_PASSES]
    calls = [(torch.randn(n, *shape) * 3,) for n in (3, 1, 32, 33)]
    check(tmp_path, function, calls, ({0: Dim("n", min=1, max=40)},), runs=runs, each=True)


def test_live_size_is_reduced(tmp_path):
    """The number of elements is known in the call only; 255, 256, 257 are the borders of a workgroup."""
    torch.manual_seed(1)

    def function(x):
        z = [x.sum(-1), x.mean(-1), x.amax(-1), x.amin(-1), x.argmax(-1), x.softmax(-1), x.log_softmax(-1)]
        return (*z, x.t().mean(0), x.mean((0, 1)), x.t().softmax(0))

    calls = [(torch.randn(2, n) * 2 + 1,) for n in (4, 1, 255, 256, 257, 1031)]
    check(tmp_path, function, calls, ({1: Dim("n", min=1, max=1100)},), runs=[*GPU, *CPU], each=True)


def test_four_dimensions(tmp_path):
    torch.manual_seed(2)
    pairs = ((0, 1), (0, 2), (0, 3), (1, 3), (2, 3), (0, 1, 3), (0, 2, 3), (-1, 1))

    def function(x):
        return (*(x.sum(d) for d in pairs), *(x.amax(d, True) for d in pairs), x.mean((0, 2)))

    check(tmp_path, function, [(torch.randn(2, 5, 1, 7),), (torch.randn(2, 5, 1, 7) - 9,)])


def test_integers(tmp_path):
    torch.manual_seed(3)
    calls = [(torch.randint(-(1 << 20), 1 << 20, (n, 9)),) for n in (4, 1, 70)]
    function = lambda x: (x.sum(0), x.sum(1, True), x.amax(0), x.amin(1), x.amax(), x.sum((0, 1)))  # noqa: E731
    check(tmp_path, function, calls, ({0: Dim("n", min=1, max=70)},))


def test_ties_and_masks(tmp_path):
    """The first of equal maxima; -inf are masks; sums of large values that cancel in the maximum's subtraction."""
    inf = float("inf")
    x = torch.tensor(
        [[1.0, 3, 3, -3], [-inf, 2, -inf, 2], [-7, -7, -7, -7], [1e4, 1e4 + 1, -1e4, 0], [0, -0.0, -inf, 0]]
    )

    def function(x):
        return x.argmax(1), x.argmax(0), x.softmax(1), x.softmax(0), x.amax(1), x.amin(1), x.log_softmax(-1).exp()

    check(tmp_path, function, [(x,)], runs=[*GPU, *CPU])


def test_half(tmp_path):
    torch.manual_seed(4)
    calls = [(torch.randn(n, 5, 300).half().float(),) for n in (2, 7)]
    function = lambda x: (x.sum(-1), x.mean((1, 2)), x.amax(1), x.argmax(2), x.softmax(-1), x.softmax(1), x.sum((0, 2)))  # noqa: E731
    check(tmp_path, function, calls, ({0: Dim("n", min=1, max=8)},), runs=HALF)
