"""Models that several tests here share, each built once."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
import torch
from executorch_webgpu import evaluation
from executorch_webgpu.recipes import ExportOptions, find

ROOT = Path(__file__).resolve().parents[2]
FULL = os.environ.get("ETWGPU_TEST_FULL") == "1"
WINDOW = 511  # positions of the evaluation build less one


def pytest_configure():
    torch.set_num_threads(1)  # suites run side by side: two threads would wait for each other's cores


def small_llama(**changes):
    """A random transformers Llama, small enough to export in seconds, weights large enough to tell tokens apart."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = {
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "initializer_range": 0.1,
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **changes,
    }
    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(**config)).eval()


def save_tokenizer(folder: Path, vocabulary: int) -> None:
    """Writes a tokenizer of words w0, w1, … and a chat template."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(vocabulary)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="w1", eos_token="w2", unk_token="w0")
    tokenizer.chat_template = "{% for m in messages %}w1 {{ m['content'] }} w2{% endfor %}"
    tokenizer.save_pretrained(folder)


def save_llama(folder: Path, **changes):
    """Writes `small_llama` as transformers does, with a tokenizer and a chat template. Returns the model."""
    model = small_llama(**changes)
    model.save_pretrained(folder)
    save_tokenizer(folder, 96)
    return model


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of exported models, brought up to date by the script that the demo uses."""
    subprocess.run([ROOT / "tools/models.sh"], check=True, cwd=ROOT)
    cache_folder = Path(os.environ.get("ETWGPU_CACHE", Path.home() / ".cache/executorch-webgpu"))
    return cache_folder / "models"


@pytest.fixture(scope="session")
def smollm2():
    """The built recipe with an eager decoder of all logits on the dequantised weights: (built, decoder)."""
    built = find("smollm2-135m-instruct").build(ExportOptions(max_len=512, logits="all"))
    return built, evaluation.dequantize(built.methods["forward"].module)


@pytest.fixture(scope="session")
def tokenizer(smollm2, tmp_path_factory):
    """transformers' tokenizer from the two files that the model folder holds."""
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes(smollm2[0].files[name])
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def eager_window(smollm2, tokenizer):
    """number → the 512 ids of that window of Moby-Dick, and eager's logits [511, vocab] of all but the last. Each is
    computed once; windows overlap by one id, so that every id but the first is predicted once."""
    ids = tokenizer(evaluation.moby_dick(), add_special_tokens=False)["input_ids"]

    @cache
    def window(number: int):
        part = ids[number * WINDOW : (number + 1) * WINDOW + 1]
        smollm2[1].reset()
        return part, evaluation.feed(smollm2[1], part[:-1])[0].numpy()

    return window


@pytest.fixture(scope="session")
def eager_answer(smollm2):
    """prompt ids → up to 64 (ETWGPU_TEST_FULL=1) or 32 greedy ids of eager, computed once."""

    @cache
    def answer(prompt: tuple[int, ...]) -> list[int]:
        return evaluation.greedy(smollm2[1], prompt, 64 if FULL else 32, eos=[2]).ids

    return lambda prompt: answer(tuple(prompt))


@pytest.fixture(scope="session")
def llama_folder(tmp_path_factory):
    """A Hugging Face folder of a small random model."""
    folder = tmp_path_factory.mktemp("hf") / "small-llama"
    save_llama(folder)
    return folder
