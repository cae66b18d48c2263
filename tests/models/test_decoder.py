"""Our decoder against transformers' LlamaForCausalLM in eager: without this, every later comparison with "eager" would
compare with a model that nobody trained."""

from __future__ import annotations

import pytest
import torch
from executorch_webgpu import evaluation
from executorch_webgpu.recipes import RecipeError, huggingface
from executorch_webgpu.recipes.decoder import Decoder, DecoderConfig
from executorch_webgpu.recipes.llama import FAMILY
from models.conftest import small_llama

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
VARIANTS = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "llama3 rope": {"rope_parameters": LLAMA3_ROPE},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "one head a key": {"num_key_value_heads": 4},
    "wide heads": {"head_dim": 32},
}
LENGTH = 48


def decoder_config(fields, max_len, logits):
    return huggingface.decoder_config(FAMILY, huggingface.Config(fields), max_len, logits)


@pytest.fixture(params=VARIANTS, scope="module")
def pair(request):
    """(transformers' model, our decoder with the same weights, ids)."""
    model = small_llama(**VARIANTS[request.param])
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:  # transformers begins with zeros and ones, which would hide a swap
            torch.nn.init.uniform_(parameter.data, 0.5, 1.5)
    weights = {name.removeprefix("model."): value for name, value in model.state_dict().items()}
    decoder = Decoder(decoder_config(model.config.to_dict(), None, "all"), weights)
    ids = torch.randint(0, 96, (LENGTH,), generator=torch.Generator().manual_seed(5)).tolist()
    return model, decoder, ids


def expected_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("chunks", [[LENGTH], [1] * LENGTH, [5, 1, 17, 2, 23]], ids=["prefill", "stepwise", "chunked"])
def test_equals_transformers(pair, chunks):
    model, decoder, ids = pair
    expected = expected_logits(model, ids)
    assert expected.std() > 0.1, "degenerate: every token would do"
    decoder.reset()
    actual = evaluation.all_logits(decoder, ids, chunks)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_stale_cache_is_not_seen(pair):
    """A second prompt on a used cache: positions beyond the new ones must be masked."""
    model, decoder, ids = pair
    evaluation.all_logits(decoder, ids)
    other = ids[::-1][:7]
    actual = evaluation.all_logits(decoder, other)
    torch.testing.assert_close(actual, expected_logits(model, other), atol=1e-5, rtol=1e-5)


def test_last_logits_are_the_last_of_all(pair):
    model, decoder, ids = pair
    weights = {name.removeprefix("model."): value for name, value in model.state_dict().items()}
    last = Decoder(decoder_config(model.config.to_dict(), None, "last"), weights)
    actual = evaluation.feed(last, ids)
    assert actual.shape == (1, 96)
    torch.testing.assert_close(actual, evaluation.all_logits(decoder, ids)[-1:], atol=1e-5, rtol=1e-5)


def test_rope_scaling_matters():
    """The llama3 case above would pass with the scaling left out if it changed nothing."""
    plain = small_llama(rope_parameters={"rope_type": "default", "rope_theta": 500000.0})
    scaled = small_llama(rope_parameters=LLAMA3_ROPE)
    ids = list(range(3, 3 + LENGTH))
    assert (expected_logits(plain, ids) - expected_logits(scaled, ids)).abs().max() > 1e-2


def test_export_equals_eager_at_every_length():
    """One exported method for prefill and decode: lengths 1, 2 and the upper bound, the cache as state."""
    model = small_llama()
    weights = {name.removeprefix("model."): value for name, value in model.state_dict().items()}
    decoder = Decoder(decoder_config(model.config.to_dict(), None, "all"), weights)
    from executorch_webgpu.recipes.text_generation import example_method

    method = example_method(decoder)
    exported = torch.export.export(method.module, method.inputs, dynamic_shapes=method.dynamic_shapes).module()
    ids = torch.randint(0, 96, (63,), generator=torch.Generator().manual_seed(6)).tolist()
    expected = expected_logits(model, ids)
    for chunks in ([63], [1, 2, 60]):
        actual = evaluation.all_logits(exported, ids, chunks)
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


def test_config_from_older_transformers():
    """Before release 5, config.json had rope_theta and rope_scaling instead of rope_parameters."""
    new = small_llama(rope_parameters=LLAMA3_ROPE).config.to_dict()
    rope = dict(new["rope_parameters"])
    old = {k: v for k, v in new.items() if k != "rope_parameters"}
    old |= {"rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}
    assert decoder_config(old, None, None) == decoder_config(new, None, None)


def test_refusals():
    config = small_llama().config.to_dict()
    with pytest.raises(RecipeError, match="beyond the 64 positions"):
        decoder_config(config, 65, None)
    with pytest.raises(RecipeError, match="'yarn' is not supported"):
        decoder_config(
            {**config, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}, None, None
        )
    with pytest.raises(ValueError, match="4 heads cannot share 3"):
        DecoderConfig(96, 64, 2, 4, 3, 16, 160, 1e-5, 1e4)
