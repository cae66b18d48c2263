"""schema/operators.yaml, the exporter's promise, against the kernels of the runtime; and that the tests of this folder
reach every listed operator."""

import re
from pathlib import Path

import pytest
from executorch_webgpu import _native
from executorch_webgpu.operators import load_operators
from operators.helpers import seen_operators

ROOT = Path(__file__).parents[2]

# What the exporter writes as another operator of the list, or folds away; tests/cpp calls their kernels.
UNREACHED = {
    "aten._adaptive_avg_pool2d.default",
    "aten._softmax.default",
    "aten._to_copy.default",
    "aten.alias_copy.default",
    "aten.native_layer_norm.default",
    "aten.scalar_tensor.default",
    "dim_order_ops._clone_dim_order.default",
}


def fused_operators() -> set[str]:
    """The names in fused_ops.h, but for what the executors do themselves."""
    text = (ROOT / "runtime/graph/fused_ops.h").read_text()
    names = set(re.findall(r'std::string_view k\w+ = "(etwgpu\.\w+)"', text))
    assert len(names) >= 6
    return names - {"etwgpu.state_copy"}


@pytest.mark.parametrize("device", ["webgpu", "cpu"])
def test_kernels_are_what_is_listed(device):
    names = set(_native.kernel_names(device))
    listed = set(load_operators())
    assert sorted((listed | fused_operators()) - names) == [], "listed without a kernel"
    extra = {n for n in names if n.startswith(("aten.", "dim_order_ops."))} - listed
    assert sorted(extra) == [], "a kernel that is not listed"


def test_every_listed_operator_is_compared(request):
    """Runs after the other files: an operator that is added to the list without a comparison with eager fails."""
    files = {item.path for item in request.session.items}
    if not files.issuperset(Path(__file__).parent.glob("test_*.py")) or request.config.option.keyword:
        pytest.skip("only some of the comparisons have run")
    assert set(load_operators()) - seen_operators == UNREACHED
