"""Every family of decoders against transformers' own model in eager, on random weights: widths are reduced, what makes
a family (head size, queries per key, window, norms, biases, rotary bases) is not.

The reference of a quantised model is transformers on the dequantised weights.
"""

from __future__ import annotations

import json

import pytest
import torch
from executorch_webgpu import evaluation, model_folder, runtime
from executorch_webgpu.quantization import QuantizedWeight
from executorch_webgpu.recipes import ExportOptions, RecipeError, huggingface
from executorch_webgpu.recipes.base import Recipe
from executorch_webgpu.recipes.families import FAMILIES, build
from executorch_webgpu.recipes.text_generation import Scheme
from models.conftest import save_tokenizer

VOCABULARY, LENGTH, WINDOW = 160, 56, 16
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
GEMMA3_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
# name: (family, transformers' classes, geometry)
MODELS = {
    "llama3.2": (
        "llama",
        "Llama",
        {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 1, "rope_parameters": LLAMA3_ROPE},
    ),
    "smollm2": ("llama", "Llama", {"hidden_size": 192, "num_attention_heads": 3, "num_key_value_heads": 1}),
    "qwen2.5": ("qwen2", "Qwen2", {"hidden_size": 448, "num_attention_heads": 7, "num_key_value_heads": 1}),
    "qwen3": (
        "qwen3",
        "Qwen3",
        {"hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128},
    ),
    "gemma3": (
        "gemma3",
        "Gemma3",
        {
            "hidden_size": 192,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 256,
            "query_pre_attn_scalar": 256,
            "sliding_window": WINDOW,
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "rope_parameters": GEMMA3_ROPE,
        },
    ),
}
SCHEMES = {
    "f32": {"bits": 32, "embedding_bits": 32},
    "int4": {"bits": 4, "group": 64, "symmetric": True, "head_bits": 4},
    "int4 affine": {"bits": 4, "group": 32, "embedding_bits": 8},
}
CHUNKS = {"prefill": [LENGTH], "stepwise": [1] * LENGTH, "chunked": [5, 1, 17, 2, 31]}
IDS = torch.randint(3, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(5)).tolist()


def random_model(kind: str, geometry: dict):
    """transformers' model with random weights that make tokens differ: norms and biases away from 1 and 0, too."""
    import transformers

    suffix = "Text" if kind == "Gemma3" else ""
    config = getattr(transformers, f"{kind}{suffix}Config")(
        **{
            "vocab_size": VOCABULARY,
            "intermediate_size": 384,
            "num_hidden_layers": 2,
            "max_position_embeddings": 128,
            "initializer_range": 0.08,
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "attn_implementation": "eager",
            **geometry,
        }
    )
    torch.manual_seed(3)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            # Gemma's are weights of 1 + w
            torch.nn.init.uniform_(parameter, *((-0.3, 0.3) if kind == "Gemma3" else (0.7, 1.3)))
        elif name.endswith("bias"):
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    return model


class Case:
    """A model, its folder, and what transformers computes of `ids` with the weights of a scheme."""

    def __init__(self, model: tuple[str, str, dict], folder, ids=IDS):
        self.family, kind, geometry = model
        self.ids, self.context = ids, len(ids) + 8
        self.model, self.folder = random_model(kind, geometry), folder
        self.model.save_pretrained(folder)
        save_tokenizer(folder, VOCABULARY)

    def options(self, scheme: str) -> ExportOptions:
        return ExportOptions(source=self.folder, logits="all", max_len=self.context, **SCHEMES[scheme])

    def expected(self, scheme: str) -> torch.Tensor:
        """transformers' logits of every position, [ids, VOCABULARY], on the weights as the scheme holds them."""
        family, options = FAMILIES[self.family], self.options(scheme)
        config = huggingface.decoder_config(family, huggingface.read_config(self.folder, family), self.context, "all")
        stored = Scheme.of(options).for_model(config.tied_embedding)
        state = {}
        for name, weight in huggingface.read_weights(self.folder, family, config, stored).items():
            weight = weight.dequantize() if isinstance(weight, QuantizedWeight) else weight
            state[f"model.{name}"] = weight - family.norm_offset if name.endswith("norm.weight") else weight
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
        self.model.load_state_dict(state)
        logits = self.model(torch.tensor([self.ids]), use_cache=False).logits[0]
        assert logits.std() > 0.1, "degenerate: every token would do"
        return logits


def recipe_of(case: Case, scheme: str) -> Recipe:
    return Recipe(
        name=case.family,
        task="text-generation",
        summary="",
        module="executorch_webgpu.recipes.families",
        accepts=frozenset(case.options(scheme).given()),
        arguments={"family": case.family},
    )


@pytest.fixture(params=MODELS, scope="module")
def case(request, tmp_path_factory):
    return Case(MODELS[request.param], tmp_path_factory.mktemp("hf") / request.param)


# Short runs export the one that has most of what the others have.
@pytest.fixture(params=[pytest.param(m, marks=[] if m == "gemma3" else pytest.mark.full) for m in MODELS])
def exported_case(request, tmp_path):
    return Case(MODELS[request.param], tmp_path / request.param)


# int4 is compared through the runtime below
@pytest.mark.parametrize("scheme", ["f32", pytest.param("int4", marks=pytest.mark.full), "int4 affine"])
def test_eager_equals_transformers(case, scheme):
    decoder = build(case.options(scheme), case.family).methods["forward"].module
    expected = case.expected(scheme)
    decoder = evaluation.dequantize(decoder)
    for chunks in CHUNKS.values():
        decoder.reset()
        torch.testing.assert_close(evaluation.all_logits(decoder, IDS, chunks), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("scheme", [pytest.param("f32", marks=pytest.mark.full), "int4"])
def test_runtime_equals_transformers(exported_case, scheme, tmp_path):
    """Exported, on the CPU and on the GPU: one call, a token a call, and chunks that cross the window."""
    case, progress = exported_case, lambda text, seconds: None
    program = model_folder.write(recipe_of(case, scheme), case.options(scheme), tmp_path / "out", progress)
    expected = case.expected(scheme)
    for device, options in {"cpu": {"activations": "exact"}, "webgpu": {}}.items():
        with runtime.load(program, device, **options) as session:
            for name, chunks in CHUNKS.items():
                actual = evaluation.all_logits(lambda *inputs, s=session: s.forward(*inputs)[0], IDS, chunks)
                difference = (actual - expected).abs().max()
                assert difference < 2e-3, f"{device}, {name}: logits differ by {difference:.2g}"


@pytest.fixture(scope="module")
def loud(tmp_path_factory):
    """A Gemma whose sums between the layers leave f16's range, as those of the 270M do (104,000), and its logits."""
    case = Case(MODELS["gemma3"], tmp_path_factory.mktemp("hf") / "loud")
    for name, parameter in case.model.named_parameters():
        if "post_" in name:
            torch.nn.init.uniform_(parameter, 1e4, 3e4)
    case.model.save_pretrained(case.folder)
    expected = case.expected("f32")
    hidden = case.model(torch.tensor([IDS]), output_hidden_states=True, use_cache=False).hidden_states
    assert max(float(h.abs().max()) for h in hidden[:-1]) > 65504, "f16 would do"  # the last is normed
    return case, expected


def test_sums_stay_in_the_range_of_f16(loud):
    """The decoder computes them smaller by a power of two, with the same logits."""
    case, expected = loud
    decoder, largest = build(case.options("f32"), case.family).methods["forward"].module, []
    for layer in decoder.layers:
        layer.register_forward_hook(lambda module, inputs, output: largest.append(float(output.abs().max())))
    torch.testing.assert_close(evaluation.all_logits(decoder, IDS), expected, atol=1e-4, rtol=1e-4)
    assert 100 < max(largest) < 32768


@pytest.mark.full
def test_f16_with_large_sums(loud, tmp_path):
    case, expected = loud
    program = model_folder.write(recipe_of(case, "f32"), case.options("f32"), tmp_path, lambda text, seconds: None)
    with runtime.load(program, "webgpu", precision="f16") as session:
        assert session.capabilities["f16"], "the adapter has no shader-f16"
        actual = evaluation.feed(lambda *inputs: session.forward(*inputs)[0], IDS)[0]
    assert (actual - expected).abs().max() < 0.02 * expected.abs().max()


def test_the_window_matters():
    """Without the window the Gemma case above would pass only if it changed nothing."""
    _, kind, geometry = MODELS["gemma3"]
    near, far = (random_model(kind, {**geometry, "sliding_window": window}) for window in (WINDOW, 64))
    logits = [model(torch.tensor([IDS]), use_cache=False).logits[0] for model in (near, far)]
    difference = (logits[0] - logits[1]).abs().amax(-1)
    assert difference[: WINDOW - 1].max() < 1e-4 < 1e-2 < difference[WINDOW + 1 :].min()


def test_configs_of_older_transformers(tmp_path):
    """Before release 5 Gemma's config.json had bases and a pattern instead of rope_parameters and layer_types."""
    _, kind, geometry = MODELS["gemma3"]
    new = random_model(kind, geometry).config.to_dict()
    old = {k: v for k, v in new.items() if k not in ("rope_parameters", "layer_types")}
    old |= {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 3}
    family = FAMILIES["gemma3"]
    configs = [huggingface.decoder_config(family, huggingface.Config(fields), None, None) for fields in (new, old)]
    assert configs[0] == configs[1]


REFUSED = {
    "hidden_activation": ("gemma3", {"hidden_activation": "relu"}),
    "hidden_act": ("qwen2.5", {"hidden_act": "gelu"}),
    "rope_parameters": ("gemma3", {"rope_parameters": {"full_attention": GEMMA3_ROPE["full_attention"]}}),
    "rope_scaling": ("qwen3", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}}),
    "model_type": ("llama3.2", {"model_type": "mamba"}),
    "quantization_config": ("llama3.2", {"quantization_config": {"quant_method": "gptq"}}),
    "final_logit_softcapping": ("gemma3", {"final_logit_softcapping": 30.0}),
    "num_key_value_heads": ("qwen2.5", {"num_key_value_heads": 0}),
    "layer_types": ("gemma3", {"layer_types": ["chunked_attention"] * 3}),
    "intermediate_size": ("smollm2", {"intermediate_size": None}),
}


@pytest.mark.parametrize("field", REFUSED)
def test_refused_fields_are_named(field, tmp_path):
    name, change = REFUSED[field]
    family, kind, geometry = MODELS[name]
    fields = {**random_model(kind, geometry).config.to_dict(), **change}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(huggingface.ConfigError, match=field) as caught:
        build(ExportOptions(source=tmp_path, random_weights=True), family)
    assert caught.value.field == field


def test_a_bound_for_calls(tmp_path):
    """The exported length and what runners are told are those of the option, and too small a one is refused."""
    family, kind, geometry = MODELS["smollm2"]
    random_model(kind, geometry).config.save_pretrained(tmp_path)
    built = build(ExportOptions(source=tmp_path, random_weights=True, max_len=64, max_call=16), family)
    assert built.constant_methods["get_max_seq_len"] == 16
    assert built.methods["forward"].dynamic_shapes["ids"][1].max == 16
    with pytest.raises(RecipeError, match="2 positions or more, not 1"):
        build(ExportOptions(source=tmp_path, random_weights=True, max_call=1), family)


def test_another_size_is_noticed(tmp_path):
    """A folder of Qwen3's 1.7B given for the 0.6B."""
    from executorch_webgpu.recipes.catalog import PRESETS

    (tmp_path / "config.json").write_text(json.dumps(PRESETS["qwen3-1.7b"].config))
    with pytest.raises(huggingface.ConfigError, match=r"hidden_size 2048; qwen3-0\.6b has 1024"):
        build(ExportOptions(source=tmp_path), "qwen3", "qwen3-0.6b")
