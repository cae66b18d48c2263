"""The real models on the native runtime, against PyTorch eager on the same weights: CPU, and GPU by Dawn.

Without ETWGPU_TEST_FULL=1 the software GPU gets fewer tokens: what is left out there runs on the CPU and in full.
"""

from __future__ import annotations

import os
import random
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch_webgpu import evaluation, runtime
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.text import TextModel

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("ETWGPU_TEST_FULL") == "1"
WINDOW = 511  # positions of the evaluation build less one
LENGTHS = [1, 2, 7, 31, 32, 33, 63, 64, 65, 255, 256, 511]

# What the sizes cost on a software adapter decides what a short run takes.
SHORT_GPU = {"prompts": 2, "tokens": 16, "lengths": [1, 2, 7, 31, 32, 33, 65], "steps": 24, "windows": 1}
ALL = {"prompts": 8, "tokens": 64, "lengths": LENGTHS, "steps": WINDOW, "windows": 3}
SIZES = {"cpu": ALL if FULL else ALL | {"prompts": 4, "tokens": 32}, "webgpu": ALL if FULL else SHORT_GPU}


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of exported models, brought up to date by the script that the demo uses."""
    subprocess.run([ROOT / "tools/models.sh"], check=True, cwd=ROOT)
    cache_folder = Path(os.environ.get("ETWGPU_CACHE", Path.home() / ".cache/executorch-webgpu"))
    return cache_folder / "models"


@cache
def load(path: Path, device: str, **options):
    if device == "cpu":
        options.setdefault("activations", "exact")
    return runtime.load(path, device=device, **options)


@pytest.fixture(scope="session", params=["cpu", "webgpu"])
def device(request) -> str:
    return request.param


@pytest.fixture(scope="session")
def evaluation_build(models) -> Path:
    return models / "smollm2-135m-instruct-all" / "model.pte"


@pytest.fixture(scope="session")
def tokenizer(models):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(models / "smollm2-135m-instruct")


@pytest.fixture(scope="session")
def text_ids(tokenizer) -> list[int]:
    return tokenizer(evaluation.moby_dick(), add_special_tokens=False)["input_ids"][: 3 * WINDOW + 3]


@pytest.fixture(scope="session")
def eager_windows(smollm2, text_ids) -> list[tuple[list[int], np.ndarray]]:
    """For each window of the text: its ids and eager's logits [511, vocab] of all but the last."""
    _, decoder = smollm2
    windows = []
    for first in range(0, 3 * WINDOW, WINDOW):
        ids = text_ids[first : first + WINDOW + 1]
        decoder.reset()
        windows.append((ids, evaluation.feed(decoder, ids[:-1])[0].numpy()))
    return windows


def logits_of(session, ids, start=0) -> np.ndarray:
    """[len(ids), vocab]"""
    return session.forward(np.array([ids], np.int64), np.array([start], np.int64))[0][0]


def log_softmax(logits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(logits).double().log_softmax(-1)


def accuracy(session, windows) -> tuple[float, float]:
    """Relative change of the perplexity against eager, and how often both have the same best token."""
    eager_nll, nll, same, count = 0.0, 0.0, 0, 0
    for ids, expected in windows:
        produced = logits_of(session, ids[:-1])
        target = torch.tensor(ids[1:])[:, None]
        eager_nll -= float(log_softmax(expected).gather(1, target).sum())
        nll -= float(log_softmax(produced).gather(1, target).sum())
        same += int((produced.argmax(-1) == expected.argmax(-1)).sum())
        count += len(ids) - 1
    return abs(np.exp((nll - eager_nll) / count) - 1), same / count


def test_greedy_tokens(models, device, smollm2):
    """Token for token what eager says, through prefill and decode of the shipped program; and what a token costs."""
    options = {"activations": "exact"} if device == "cpu" else {}
    sizes = SIZES[device]
    with TextGenerator(models / "smollm2-135m-instruct", device, **options) as model:
        for question in evaluation.QUESTIONS[: sizes["prompts"]]:
            messages = [{"role": "user", "content": question}]
            result = model.generate(messages, max_tokens=sizes["tokens"])
            evaluation.check_greedy(smollm2[1], model.text_model.encode(messages), result.ids)
            if question == evaluation.QUESTIONS[0]:
                assert (result.text, result.finish_reason) == ("The capital of France is Paris.", "stop")
        stats = model.last_stats
    assert stats["dispatches"] <= 5 * 30 + 6
    if device == "webgpu":
        assert stats["submits"] == 1
        assert stats["read_back_bytes"] == 4  # the token: the GPU takes the maximum
        assert stats["upload_bytes"] <= 64  # ids and position, no parameters


def test_prompt_is_what_transformers_makes(models, tokenizer):
    """Tokenizer and chat template without transformers."""
    text_model = TextModel(models / "smollm2-135m-instruct")
    messages = [{"role": "system", "content": "Be brief."}]
    for turn, question in enumerate(evaluation.QUESTIONS):
        messages.append({"role": "assistant" if turn % 2 else "user", "content": f" {question} Ünï 😀\n\n1234"})
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert text_model.encode(messages) == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_prefill_logits(evaluation_build, device, eager_windows):
    ids, expected = eager_windows[0]
    produced = logits_of(load(evaluation_build, device), ids[:-1])
    assert np.abs(produced - expected).max() < 2e-3


def test_stepwise_logits(evaluation_build, device, eager_windows):
    session = load(evaluation_build, device)
    ids, expected = eager_windows[0]
    for position in range(SIZES[device]["steps"]):
        step = logits_of(session, ids[position : position + 1], position)
        assert np.abs(step[0] - expected[position]).max() < 2e-3, position


def test_prompt_lengths(evaluation_build, device, eager_windows):
    session = load(evaluation_build, device)
    ids, expected = eager_windows[0]
    for length in SIZES[device]["lengths"]:
        produced = logits_of(session, ids[:length])
        assert np.abs(produced - expected[:length]).max() < 2e-3, length


def test_chunks(evaluation_build, device, eager_windows):
    """Any split of a prompt into chunks, also where a longer prompt left its keys behind in the cache."""
    session = load(evaluation_build, device)
    ids, expected = eager_windows[0]
    total = 100 if device == "webgpu" and not FULL else WINDOW
    rng = random.Random(7)
    for _ in range(2):
        position = 0
        while position < total:
            length = min(rng.choice([1, 2, 3, 8, 17, 64, 100]), total - position)
            produced = logits_of(session, ids[position : position + length], position)
            assert np.abs(produced - expected[position : position + length]).max() < 2e-3, (position, length)
            position += length


def test_perplexity(evaluation_build, device, eager_windows):
    change, _ = accuracy(load(evaluation_build, device), eager_windows[: SIZES[device]["windows"]])
    assert change < 1e-3


# int8 is an explicit choice with a bound of its own.
@pytest.mark.parametrize(("activations", "most"), [("auto", 5e-3), ("int8", 1e-2)])
def test_accuracy_of_quantised_activations(evaluation_build, eager_windows, activations, most):
    change, same = accuracy(load(evaluation_build, "cpu", activations=activations), eager_windows)
    print(f"{activations}: perplexity {change:.3%} from eager's, same best token {same:.2%}")
    assert change < most
    assert same >= 0.96


def test_accuracy_of_f16(evaluation_build, eager_windows):
    session = load(evaluation_build, "webgpu", precision="f16")
    assert session.capabilities["f16"], "the adapter has no shader-f16"
    change, same = accuracy(session, eager_windows[: SIZES["webgpu"]["windows"]])
    print(f"f16: perplexity {change:.3%} from eager's, same best token {same:.2%}")
    assert change < 5e-3
    assert same >= 0.98


def test_memory(models):
    """The arena is shared by values that do not live together."""
    report = load(models / "smollm2-135m-instruct" / "model.pte", "webgpu").memory_report()
    assert report["arena"] <= report["arena_without_reuse"] / 2
    assert report["other"] <= 0.05 * (report["weights"] + report["state"] + report["arena"])


def test_efficientnet(models, device):
    from executorch_webgpu.recipes import efficientnet_lite0 as recipe
    from PIL import Image

    skimage = pytest.importorskip("skimage")
    pictures = Path(skimage.__file__).parent / "data"
    names = ["coffee.png", "camera.png", "astronaut.png"]
    batch = torch.stack([recipe.preprocess(Image.open(pictures / name)) for name in names])
    with torch.no_grad():
        expected = recipe.load()(batch).numpy()
    path = models / "efficientnet-lite0" / "model.pte"
    session = load(path, device)
    for size in (1, 3):
        produced = session.forward(batch[:size].numpy())[0]
        assert np.abs(produced - expected[:size]).max() < 1e-3
        labels = [recipe.labels()[i] for i in produced.argmax(-1)]
        assert labels[:2] == ["espresso", "tripod"][:size]
    methods = runtime.inspect_program(path)["methods"]
    forward = next(m for m in methods if m["name"] == "forward")
    assert len(forward["delegates"]) == 1
