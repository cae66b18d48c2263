"""What PyTorch eager says, for tests/browser/run.mjs.

expected.py make FOLDER     writes expected.json (ids, losses, labels), pictures.bin and probabilities.bin (f32), and
                            small/, what small_models.py makes
expected.py check FOLDER    reads produced.json, {name: {prompt_ids, ids}}; prints {name: null or what is wrong}
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import small_models
import torch
from executorch_webgpu import evaluation
from executorch_webgpu.recipes import ExportOptions, efficientnet_lite0, find
from PIL import Image

FULL = os.environ.get("ETWGPU_TEST_FULL") == "1"
TOKENS = 64 if FULL else 16
PROMPTS = evaluation.QUESTIONS[: 8 if FULL else 2]
WINDOWS = 3 if FULL else 1  # of Moby-Dick
POSITIONS = 511 if FULL else 255  # of a window
LONG = "Write a long story about a lighthouse keeper and a whale."  # as tests/models/test_native_runtime.py
PICTURES = ("coffee", "camera", "astronaut")


def decoder_and_tokenizer():
    """The eager decoder of all logits on the dequantised weights, and transformers' tokenizer of the recipe's files."""
    import tempfile

    from transformers import AutoTokenizer

    built = find("smollm2-135m-instruct").build(ExportOptions(max_len=512, logits="all"))
    with tempfile.TemporaryDirectory() as folder:
        for name, content in built.files.items():
            (Path(folder) / name).write_bytes(content)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    return evaluation.dequantize(built.methods["forward"].module), tokenizer


def pictures() -> torch.Tensor:
    """[3, 3, 224, 224] of scikit-image's pictures."""
    import skimage

    folder = Path(skimage.__file__).parent / "data"
    return torch.stack([efficientnet_lite0.preprocess(Image.open(folder / f"{name}.png")) for name in PICTURES])


def text(decoder, tokenizer) -> list[dict]:
    """Windows of Moby-Dick: ids, and -log of the probability that eager gives each but the first."""
    ids = tokenizer(evaluation.moby_dick(), add_special_tokens=False)["input_ids"]
    windows = []
    for first in range(0, WINDOWS * POSITIONS, POSITIONS):
        part = ids[first : first + POSITIONS + 1]
        decoder.reset()
        logits = evaluation.feed(decoder, part[:-1])[0].double()
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(part[1:]), reduction="none")
        windows.append({"ids": part, "losses": losses.tolist()})
    return windows


def answer(decoder, tokenizer, question: str, tokens: int) -> dict:
    messages = [{"role": "user", "content": question}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    ids = evaluation.greedy(decoder, prompt_ids, tokens, eos=[tokenizer.eos_token_id]).ids
    text_out = tokenizer.decode(ids, skip_special_tokens=True)
    return {"text": question, "promptIds": prompt_ids, "ids": ids, "answer": text_out}


def make(folder: Path) -> None:
    decoder, tokenizer = decoder_and_tokenizer()
    generate = [answer(decoder, tokenizer, question, TOKENS) for question in PROMPTS]

    batch = pictures()
    with torch.no_grad():
        probabilities = efficientnet_lite0.load()(batch)
    labels = efficientnet_lite0.labels()
    batch.numpy().astype("<f4").tofile(folder / "pictures.bin")
    probabilities.numpy().astype("<f4").tofile(folder / "probabilities.bin")
    classify = {
        "shape": list(batch.shape),
        "classes": probabilities.shape[1],
        "top": [labels[i] for i in np.argmax(probabilities.numpy(), axis=1)],
    }
    expected = {"tokens": TOKENS, "generate": generate, "text": text(decoder, tokenizer), "classify": classify}
    if FULL:
        expected["long"] = answer(decoder, tokenizer, LONG, 256)
    (folder / "expected.json").write_text(json.dumps(expected))
    for name in small_models.MAKERS:
        small_models.make(name, folder / "small" / name)


def check(folder: Path) -> None:
    """Ids that differ from eager's are right where eager's two best logits are nearly equal."""
    decoder, tokenizer = decoder_and_tokenizer()
    verdicts: dict[str, str | None] = {}
    for name, item in json.loads((folder / "produced.json").read_text()).items():
        try:
            evaluation.check_greedy(decoder, item["prompt_ids"], item["ids"], item["count"], [tokenizer.eos_token_id])
            verdicts[name] = None
        except AssertionError as error:
            verdicts[name] = str(error)
    print(json.dumps(verdicts))


if __name__ == "__main__":
    torch.set_num_threads(1)  # suites run side by side: two threads would wait for each other's cores
    {"make": make, "check": check}[sys.argv[1]](Path(sys.argv[2]))
