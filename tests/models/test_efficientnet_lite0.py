"""EfficientNet-Lite0 in eager: real weights on pictures whose answer is known, and the folding checked on its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu.recipes import ExportOptions, RecipeError, find
from executorch_webgpu.recipes import efficientnet_lite0 as recipe

skimage = pytest.importorskip("skimage")
PICTURES = Path(skimage.__file__).parent / "data"


@pytest.fixture(scope="module")
def model():
    return recipe.load()


def picture(name):
    from PIL import Image

    return recipe.preprocess(Image.open(PICTURES / name))


@pytest.mark.parametrize(("name", "label", "least"), [("coffee.png", "espresso", 0.9), ("camera.png", "tripod", 0.9)])
def test_known_pictures(model, name, label, least):
    with torch.no_grad():
        probabilities = model(picture(name)[None])[0]
    assert recipe.labels()[int(probabilities.argmax())] == label
    assert probabilities.max() > least
    assert float(probabilities.sum()) == pytest.approx(1, abs=1e-5)


def test_batch_equals_single(model):
    images = torch.stack([picture("coffee.png"), picture("camera.png"), picture("chelsea.png")])
    with torch.no_grad():
        together = model(images)
        alone = torch.cat([model(image[None]) for image in images])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("size", "kernel", "stride"), [(8, 3, 1), (8, 3, 2), (7, 3, 2), (14, 5, 2), (7, 5, 1)])
def test_folded_convolution(size, kernel, stride):
    """Folded batch norm and SAME padding against the two operators in float64."""
    generator = torch.Generator().manual_seed(size * 10 + kernel)
    state = {
        "c.weight": torch.randn(6, 1, kernel, kernel, generator=generator),
        "n.weight": torch.rand(6, generator=generator) + 0.5,
        "n.bias": torch.randn(6, generator=generator),
        "n.running_mean": torch.randn(6, generator=generator),
        "n.running_var": torch.rand(6, generator=generator) + 0.1,
    }
    x = torch.randn(2, 6, size, size, generator=generator)
    exact = {name: value.double() for name, value in state.items()}
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    padded = F.pad(x.double(), (total // 2, total - total // 2) * 2)
    expected = F.batch_norm(
        F.conv2d(padded, exact["c.weight"], stride=stride, groups=6),
        exact["n.running_mean"],
        exact["n.running_var"],
        exact["n.weight"],
        exact["n.bias"],
        eps=1e-3,
    )
    actual = recipe.Conv(state, "c", "n", size, stride, depthwise=True)(x)
    assert actual.shape[-1] == -(-size // stride)
    torch.testing.assert_close(actual.double(), expected, atol=1e-4, rtol=1e-5)


def test_export_has_a_dynamic_batch(model):
    built = find("efficientnet-lite0").build(ExportOptions())
    method = built.methods["forward"]
    exported = torch.export.export(method.module, method.inputs, dynamic_shapes=method.dynamic_shapes).module()
    image = picture("coffee.png")
    with torch.no_grad():
        for batch in (1, 3, recipe.MAX_BATCH):
            images = image[None].repeat(batch, 1, 1, 1)
            torch.testing.assert_close(exported(images), model(images), atol=1e-5, rtol=1e-5)


def test_folder_files():
    built = find("efficientnet-lite0").build(ExportOptions())
    assert built.files["labels.txt"].decode().splitlines()[967] == "espresso"
    assert b'"size"' in built.files["preprocess.json"]


def test_refuses_options_of_others():
    with pytest.raises(RecipeError, match="takes no option bits, max_len"):
        find("efficientnet-lite0").build(ExportOptions(bits=4, max_len=5))
