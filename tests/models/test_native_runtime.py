"""The real models on the native runtime, against PyTorch eager on the same weights: CPU, and GPU by Dawn.

Without ETWGPU_TEST_FULL=1 the software GPU gets fewer tokens: what is left out there runs on the CPU and in full.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from executorch_webgpu import evaluation, runtime
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.text import TextModel
from models.conftest import FULL, WINDOW

LENGTHS = [1, 2, 7, 31, 32, 33, 63, 64, 65, 255, 256, 511]

# What the sizes cost on a software adapter decides what a short run takes.
# text: positions of Moby-Dick
SHORT_GPU = {"prompts": 2, "tokens": 16, "lengths": [1, 33], "steps": 8, "chunked": 40, "text": 64}
ALL = {"prompts": 8, "tokens": 64, "lengths": LENGTHS, "steps": WINDOW, "chunked": WINDOW, "text": 3 * WINDOW}
SHORT_CPU = ALL | {"prompts": 3, "tokens": 32, "steps": 128, "text": WINDOW}
SIZES = {"cpu": ALL if FULL else SHORT_CPU, "webgpu": ALL if FULL else SHORT_GPU}


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


def logits_of(session, ids, start=0) -> np.ndarray:
    """[len(ids), vocab]"""
    return session.forward(np.array([ids], np.int64), np.array([start], np.int64))[0][0]


def log_softmax(logits: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(logits).double().log_softmax(-1)


@cache
def prefilled(path: Path, device: str, ids: tuple[int, ...]) -> np.ndarray:
    return logits_of(load(path, device), list(ids))


def accuracy(produce, eager_window, positions: int) -> tuple[float, float]:
    """Relative change of the perplexity against eager over the first positions of the text, and how often both have the
    same best token. produce: ids → logits."""
    eager_nll, nll, same = 0.0, 0.0, 0
    for number in range(-(-positions // WINDOW)):
        ids, expected = eager_window(number)
        count = min(WINDOW, positions - number * WINDOW)
        expected, produced = expected[:count], produce(ids[:count])
        target = torch.tensor(ids[1 : count + 1])[:, None]
        eager_nll -= float(log_softmax(expected).gather(1, target).sum())
        nll -= float(log_softmax(produced).gather(1, target).sum())
        same += int((produced.argmax(-1) == expected.argmax(-1)).sum())
    return abs(np.exp((nll - eager_nll) / positions) - 1), same / positions


def test_greedy_tokens(models, device, smollm2, eager_answer):
    """Token for token what eager says, through prefill and decode of the shipped program; and what a token costs."""
    options = {"activations": "exact"} if device == "cpu" else {}
    sizes = SIZES[device]
    with TextGenerator(models / "smollm2-135m-instruct", device, **options) as model:
        for question in evaluation.QUESTIONS[: sizes["prompts"]]:
            messages = [{"role": "user", "content": question}]
            result = model.generate(messages, max_tokens=sizes["tokens"])
            prompt = model.text_model.encode(messages)
            if result.ids != eager_answer(prompt)[: sizes["tokens"]]:  # right where two logits are nearly equal
                evaluation.check_greedy(smollm2[1], prompt, result.ids, sizes["tokens"], eos=[2])
            assert (result.finish_reason == "stop") == (result.ids[-1] == 2)
            if question == evaluation.QUESTIONS[0]:
                assert (result.text, result.finish_reason) == ("The capital of France is Paris.", "stop")
        stats = model.last_stats
    assert stats["dispatches"] <= 5 * 30 + 6
    if device == "webgpu":
        assert stats["submits"] == 1
        assert stats["read_back_bytes"] == 4  # the token: the GPU takes the maximum
        assert stats["upload_bytes"] <= 64  # ids and position, no parameters


@pytest.fixture(scope="module")
def long_answer(smollm2):
    """prompt ids → 256 greedy ids of eager, computed once."""

    @cache
    def answer(prompt: tuple[int, ...]) -> list[int]:
        return evaluation.greedy(smollm2[1], prompt, 256, eos=[2]).ids

    return lambda prompt: answer(tuple(prompt))


@pytest.mark.full
def test_256_greedy_tokens(models, device, smollm2, long_answer):
    """Both devices follow eager, hence each other, but where two logits are nearly equal."""
    messages = [{"role": "user", "content": "Write a long story about a lighthouse keeper and a whale."}]
    options = {"activations": "exact"} if device == "cpu" else {}
    with TextGenerator(models / "smollm2-135m-instruct", device, **options) as model:
        prompt = model.text_model.encode(messages)
        ids = model.generate(messages, max_tokens=256).ids
    assert len(ids) == 256, "the answer is too short to tell"
    if ids != long_answer(prompt):
        evaluation.check_greedy(smollm2[1], prompt, ids, 256)


@pytest.mark.full
def test_greedy_tokens_with_small_bindings(models, smollm2, eager_answer):
    """The embedding, which is the head, too, has 28 MB: it is in parts, with a dispatch each."""
    messages = [{"role": "user", "content": evaluation.QUESTIONS[1]}]
    dispatches = []
    for limit in (0, 16 << 20):
        with TextGenerator(models / "smollm2-135m-instruct", "webgpu", max_binding_bytes=limit) as model:
            prompt = model.text_model.encode(messages)
            ids = model.generate(messages, max_tokens=32 if limit else 2).ids
            dispatches.append(model.last_stats["dispatches"])
    assert dispatches[1] > dispatches[0]
    if ids != eager_answer(prompt)[:32]:
        evaluation.check_greedy(smollm2[1], prompt, ids, 32, eos=[2])


def test_prompt_is_what_transformers_makes(models, tokenizer):
    """Tokenizer and chat template without transformers."""
    text_model = TextModel(models / "smollm2-135m-instruct")
    messages = [{"role": "system", "content": "Be brief."}]
    for turn, question in enumerate(evaluation.QUESTIONS):
        messages.append({"role": "assistant" if turn % 2 else "user", "content": f" {question} Ünï 😀\n\n1234"})
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        assert text_model.encode(messages) == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_prefill_logits(evaluation_build, device, eager_window):
    ids, expected = eager_window(0)
    count = min(WINDOW, SIZES[device]["text"])
    produced = prefilled(evaluation_build, device, tuple(ids[:count]))
    assert np.abs(produced - expected[:count]).max() < 2e-3


def test_stepwise_logits(evaluation_build, device, eager_window):
    session = load(evaluation_build, device)
    ids, expected = eager_window(0)
    for position in range(SIZES[device]["steps"]):
        step = logits_of(session, ids[position : position + 1], position)
        assert np.abs(step[0] - expected[position]).max() < 2e-3, position


def test_prompt_lengths(evaluation_build, device, eager_window):
    session = load(evaluation_build, device)
    ids, expected = eager_window(0)
    for length in SIZES[device]["lengths"]:
        produced = logits_of(session, ids[:length])
        assert np.abs(produced - expected[:length]).max() < 2e-3, length


def test_chunks(evaluation_build, device, eager_window):
    """Any split of a prompt into chunks, also where a longer prompt left its keys behind in the cache."""
    session = load(evaluation_build, device)
    ids, expected = eager_window(0)
    total = SIZES[device]["chunked"]
    rng = random.Random(7)
    for _ in range(2):
        position = 0
        while position < total:
            length = min(rng.choice([1, 2, 3, 8, 17, 64, 100]), total - position)
            produced = logits_of(session, ids[position : position + length], position)
            assert np.abs(produced - expected[position : position + length]).max() < 2e-3, (position, length)
            position += length


def test_perplexity(evaluation_build, device, eager_window):
    change, _ = accuracy(
        lambda ids: prefilled(evaluation_build, device, tuple(ids)), eager_window, SIZES[device]["text"]
    )
    assert change < 1e-3


# int8 is an explicit choice with a bound of its own. The bounds are for the whole text, in short runs, too.
@pytest.mark.parametrize(("activations", "most"), [("auto", 5e-3), pytest.param("int8", 1e-2, marks=pytest.mark.full)])
def test_accuracy_of_quantised_activations(evaluation_build, eager_window, activations, most):
    session = load(evaluation_build, "cpu", activations=activations)
    change, same = accuracy(lambda ids: logits_of(session, ids), eager_window, ALL["text"])
    print(f"{activations}: perplexity {change:.3%} from eager's, same best token {same:.2%}")
    assert change < most
    assert same >= 0.96


def test_accuracy_of_f16_caches_on_the_cpu(evaluation_build, eager_window):
    """Their own error: all else is exact. And half the memory."""
    sessions = [load(evaluation_build, "cpu", kv_cache=kind) for kind in ("f32", "f16")]
    whole, half = (session.memory_report()["state"] for session in sessions)
    assert half * 2 == whole
    change, same = accuracy(lambda ids: logits_of(sessions[1], ids), eager_window, SIZES["cpu"]["text"])
    print(f"f16 caches: perplexity {change:.3%} from eager's, same best token {same:.2%}")
    assert change < 1e-3
    assert same >= 0.99


@pytest.mark.parametrize("wide", [False, pytest.param(True, marks=pytest.mark.full)])
def test_accuracy_of_f16(evaluation_build, eager_window, wide):
    """wide: with the kernels of large GPUs, which add up to 32 products in f16."""
    session = load(evaluation_build, "webgpu", precision="f16", wide_kernels=wide)
    assert session.capabilities["f16"], "the adapter has no shader-f16"
    change, same = accuracy(lambda ids: logits_of(session, ids), eager_window, SIZES["webgpu"]["text"])
    print(f"f16: perplexity {change:.3%} from eager's, same best token {same:.2%}")
    assert change < 5e-3
    assert same >= 0.99


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
