"""LoRA adapters as peft saves them, applied as a program runs, against PyTorch eager with the same terms on the
dequantised weights: on the CPU and on the GPU, by one call and token by token, with the passes and without."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from executorch_webgpu import evaluation, inspect, model_folder, runtime
from executorch_webgpu.errors import InvalidArgumentError, InvalidProgramError, NotAProgramError, SavedStateError
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.recipes import ExportOptions, find
from executorch_webgpu.runtime import Adapter
from safetensors.torch import save_file

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
ALL = (*ATTENTION, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
IDS = [1, 17, 5, 80, 33, 2, 9, 64, 71, 3, 44]
CHUNKS = {"prefill": [len(IDS)], "stepwise": [1] * len(IDS), "chunked": [5, 1, 2, 3]}
DEVICES = {"cpu": {"activations": "exact"}, "webgpu": {}}
TOLERANCE = 2e-3


class Lora:
    """Random A and B for linears of a decoder, in files and as what they add in eager."""

    def __init__(self, decoder, targets, rank, alpha=16, rslora=False, dtype=torch.float32, seed=1, prefix="model."):
        generator = torch.Generator().manual_seed(seed)
        self.rank, self.alpha, self.rslora, self.prefix = rank, alpha, rslora, prefix
        self.scale = alpha / (math.sqrt(rank) if rslora else rank)
        self.terms = {}
        for name, module in decoder.named_modules():
            if not name.endswith(tuple(targets)):
                continue
            n, k = module.weight.shape
            a = torch.randn(rank, k, generator=generator) / math.sqrt(k)
            b = torch.randn(n, rank, generator=generator) * (0.3 / self.scale / math.sqrt(rank))
            self.terms[name] = (a.to(dtype), b.to(dtype))

    def save(self, folder: Path, **changes) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": "some/model",
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.05,
            "use_rslora": self.rslora,
            "use_dora": False,
            "bias": "none",
            "fan_in_fan_out": False,
            "target_modules": sorted({name.rsplit(".", 1)[-1] for name in self.terms}),
            "modules_to_save": None,
            "rank_pattern": {},
            "alpha_pattern": {},
        }
        (folder / "adapter_config.json").write_text(json.dumps(config | changes))
        tensors = {}
        for name, (a, b) in self.terms.items():
            tensors[f"base_model.model.{self.prefix}{name}.lora_A.weight"] = a
            tensors[f"base_model.model.{self.prefix}{name}.lora_B.weight"] = b
        save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        return folder

    @contextlib.contextmanager
    def on(self, decoder, scale=1.0):
        """Adds the terms to what the linears of an eager decoder give."""
        handles = []
        for name, (a, b) in self.terms.items():

            def add(_, inputs, output, a=a, b=b):
                return output + scale * self.scale * F.linear(F.linear(inputs[0], a.float()), b.float())

            handles.append(decoder.get_submodule(name).register_forward_hook(add))
        yield
        for handle in handles:
            handle.remove()


def logits(session, ids=IDS, chunks=None) -> torch.Tensor:
    return evaluation.all_logits(lambda *inputs: session.forward(*inputs)[0], ids, chunks)


@pytest.fixture(scope="module")
def small(llama_folder, tmp_path_factory):
    """Program of a small Llama in int4, and its decoder in eager on the dequantised weights."""
    options = ExportOptions(source=llama_folder, logits="all", bits=4, group=32)
    program = model_folder.write(find("llama"), options, tmp_path_factory.mktemp("small"), lambda text, seconds: None)
    return program, evaluation.dequantize(find("llama").build(options).methods["forward"].module)


def eager(decoder, *loras, scales=None):
    decoder.reset()
    with contextlib.ExitStack() as stack:
        for lora, scale in zip(loras, scales or [1.0] * len(loras), strict=True):
            stack.enter_context(lora.on(decoder, scale))
        return evaluation.all_logits(decoder, IDS)


def check(session, expected, chunks=CHUNKS):
    for name, lengths in chunks.items():
        difference = (logits(session, chunks=lengths) - expected).abs().max()
        assert difference < TOLERANCE, f"{name}: logits differ by {difference:.2g}"


# name: what makes the adapter
ADAPTERS = {
    "all": {"targets": ALL, "rank": 8},
    "q": {"targets": ("self_attn.q_proj",), "rank": 4},
    "v": {"targets": ("self_attn.v_proj",), "rank": 1, "prefix": ""},
    "rslora": {"targets": ("self_attn.k_proj", "mlp.up_proj"), "rank": 6, "rslora": True, "dtype": torch.float16},
    "tied head": {"targets": ("lm_head",), "rank": 4, "prefix": ""},  # the embedding stays as it is
    "bf16": {"targets": ("self_attn.o_proj", "mlp.down_proj"), "rank": 16, "dtype": torch.bfloat16},
}


# Software adapters take seconds to compile each kernel with the terms of an adapter.
SLOW_ON_GPU = ["cpu", pytest.param("webgpu", marks=pytest.mark.full)]


@pytest.mark.parametrize(
    ("kind", "device"),
    [("all", "webgpu"), *((kind, "cpu") for kind in ADAPTERS)]
    + [pytest.param(kind, "webgpu", marks=pytest.mark.full) for kind in ADAPTERS if kind != "all"],
)
def test_equals_eager(small, tmp_path, kind, device):
    program, decoder = small
    lora = Lora(decoder, **ADAPTERS[kind])
    expected = eager(decoder, lora)
    assert (expected - eager(decoder)).abs().max() > 0.05, "the adapter does nothing"
    with runtime.load(program, device, adapters=[lora.save(tmp_path / kind)], **DEVICES[device]) as session:
        check(session, expected)


@pytest.mark.parametrize("device", SLOW_ON_GPU)
def test_without_passes(small, tmp_path, device):
    program, decoder = small
    lora = Lora(decoder, ALL, 8)
    folder = lora.save(tmp_path / "all")
    with runtime.load(program, device, adapters=[folder], disable_passes="all", **DEVICES[device]) as session:
        check(session, eager(decoder, lora), {"prefill": CHUNKS["prefill"], "stepwise": CHUNKS["stepwise"]})


@pytest.mark.parametrize("device", SLOW_ON_GPU)
def test_two_adapters_and_their_scales(small, tmp_path, device):
    """Scales change between calls; 0 is the program by itself, whose weights are what they were."""
    program, decoder = small
    one = Lora(decoder, ("self_attn.q_proj", "self_attn.v_proj", "mlp.gate_proj"), 8)
    two = Lora(decoder, ("self_attn.k_proj", "self_attn.v_proj", "mlp.down_proj"), 3, alpha=4, seed=2)
    adapters = [one.save(tmp_path / "one"), Adapter(two.save(tmp_path / "other"), scale=0.5, name="two")]
    short = {"prefill": CHUNKS["prefill"], "chunked": CHUNKS["chunked"]}
    with runtime.load(program, device, adapters=adapters, **DEVICES[device]) as session:
        assert session.adapters == {"one": 1.0, "two": 0.5}
        check(session, eager(decoder, one, two, scales=[1, 0.5]), short)
        session.set_adapter_scale("one", 0)
        session.set_adapter_scale("two", -1.5)
        check(session, eager(decoder, two, scales=[-1.5]), short)
        session.set_adapter_scale("two", 0)
        with runtime.load(program, device, **DEVICES[device]) as plain:
            torch.testing.assert_close(logits(session), logits(plain), atol=1e-5, rtol=0)
        with pytest.raises(InvalidArgumentError, match="known are one, two"):
            session.set_adapter_scale("three", 1)
        with pytest.raises(InvalidArgumentError, match="finite"):
            session.set_adapter_scale("two", math.nan)


@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=[pytest.mark.gpu, pytest.mark.full])])
def test_sequences_and_drafts(small, tmp_path, device):
    """Two conversations with one adapter, each with drafts; a new scale is for both, which then begin anew."""
    program, decoder = small
    lora = Lora(decoder, ALL, 8)
    prompts, options = (IDS[:5] * 3, IDS), {"max_tokens": 24}
    with TextGenerator(program.parent, device, adapters=[lora.save(tmp_path / "all")], **DEVICES[device]) as model:
        model.end_ids = frozenset()
        expected = []
        for scale in (1.0, 0.0):
            model.set_adapter_scale("all", scale)
            expected.append([model.generate(prompt, **options).ids for prompt in prompts])
            with lora.on(decoder, scale):
                for prompt, ids in zip(prompts, expected[-1], strict=True):
                    evaluation.check_greedy(decoder, prompt, ids, options["max_tokens"])
        assert expected[0] != expected[1]
        places = [model, model.new_sequence()]
        for scale, alone in zip((1.0, 0.0), expected, strict=True):
            model.set_adapter_scale("all", scale)
            assert [place.cached_ids for place in places] == [[], []]
            streams = [p.stream(ids, speculation=8, **options) for p, ids in zip(places, prompts, strict=True)]
            assert [[t.id for t in tokens] for tokens in zip(*zip(*streams, strict=True), strict=True)] == alone
            place = places[1]
            drafted = place.generate(prompts[1] + alone[1], speculation=8, **options)
            assert drafted.ids == model.generate(prompts[1] + alone[1], **options).ids
            assert drafted.reused_tokens == len(prompts[1]) + 23
            assert 0 < drafted.accepted_tokens == 23 - drafted.model_calls


def test_states_belong_to_a_scale(small, tmp_path):
    program, decoder = small
    lora = Lora(decoder, ALL, 8)
    with TextGenerator(program.parent, "cpu", adapters=[lora.save(tmp_path / "all")], activations="exact") as model:
        model.generate(IDS, max_tokens=4)
        saved = model.save_state()
        model.set_adapter_scale("all", 0.5)
        with pytest.raises(SavedStateError, match="other scales of adapters"):
            model.restore_state(saved)
        model.set_adapter_scale("all", 1)
        model.restore_state(saved)
        assert model.generate(IDS, max_tokens=4).reused_tokens > 0


def test_alpha_of_single_modules(small, tmp_path):
    program, decoder = small
    lora = Lora(decoder, ("self_attn.q_proj", "mlp.up_proj"), 4)
    folder = lora.save(tmp_path / "a", alpha_pattern={"mlp.up_proj": 32})
    double = Lora(decoder, ("self_attn.q_proj", "mlp.up_proj"), 4)
    double.terms = {n: (a, 2 * b if n.endswith("up_proj") else b) for n, (a, b) in double.terms.items()}
    with runtime.load(program, "cpu", adapters=[folder], activations="exact") as session:
        check(session, eager(decoder, double), {"prefill": CHUNKS["prefill"]})


@pytest.mark.parametrize("device", SLOW_ON_GPU)
def test_f16(small, tmp_path, device):
    """Half precision of the GPU, and the CPU's own activations: as near as without an adapter."""
    program, decoder = small
    lora = Lora(decoder, ALL, 8)
    options = {"precision": "f16"} if device == "webgpu" else {}
    with runtime.load(program, device, adapters=[lora.save(tmp_path / "all")], **options) as session:
        for chunks in (CHUNKS["prefill"], CHUNKS["stepwise"]):
            difference = (logits(session, chunks=chunks) - eager(decoder, lora)).abs().max()
            assert difference < 0.02, f"logits differ by {difference:.2g}"


def test_inspect(small, tmp_path):
    program, decoder = small
    lora = Lora(decoder, ("self_attn.q_proj",), 4)
    with runtime.load(program, "cpu", adapters=[Adapter(lora.save(tmp_path / "mine"), 0.5)]) as session:
        report = session.inspect()
    linears = {f"layers.{i}.self_attn.q_proj": 4 for i in range(2)}
    assert report["adapters"] == [{"name": "mine", "scale": 0.5, "linears": linears}]
    assert "mine" in inspect.render(report)


BAD_CONFIGS = {
    "dora": ({"use_dora": True}, "use_dora is not supported"),
    "bias": ({"bias": "all"}, "bias 'all'"),
    "kind": ({"peft_type": "IA3"}, "peft_type 'IA3'"),
    "alpha": ({"lora_alpha": None}, "lora_alpha"),
    "pattern": ({"alpha_pattern": {"layers.[01].*": 3}}, "alpha_pattern"),
}


@pytest.mark.parametrize("what", BAD_CONFIGS)
def test_configurations_that_are_refused(small, tmp_path, what):
    changes, message = BAD_CONFIGS[what]
    folder = Lora(small[1], ("self_attn.q_proj",), 4).save(tmp_path / "mine", **changes)
    with pytest.raises(InvalidArgumentError, match=f"adapter 'mine'.*{message}"):
        runtime.load(small[0], "cpu", adapters=[folder])


def q_of(layer: int, part: str) -> str:
    return f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_{part}.weight"


BAD_TENSORS = {
    "unknown linear": ({"base_model.model.model.layers.7.self_attn.q_proj": (64, 4, 64)}, "layers.7.self_attn.q_proj"),
    "an embedding": ({"base_model.model.model.embed_tokens": (96, 4, 64)}, "embed_tokens"),
    "another model": ({"base_model.model.model.layers.0.self_attn.q_proj": (64, 4, 32)}, "64 x 32.*64 x 64"),
    "rank": ({"base_model.model.model.layers.0.self_attn.q_proj": (64, 300, 64)}, "rank 300"),
}


@pytest.mark.parametrize("what", BAD_TENSORS)
def test_tensors_that_are_refused(small, tmp_path, what):
    shapes, message = BAD_TENSORS[what]
    folder = Lora(small[1], ("self_attn.q_proj",), 4).save(tmp_path / "mine")
    tensors = {}
    for name, (n, rank, k) in shapes.items():
        tensors |= {f"{name}.lora_A.weight": torch.zeros(rank, k), f"{name}.lora_B.weight": torch.zeros(n, rank)}
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(InvalidArgumentError, match=message):
        runtime.load(small[0], "cpu", adapters=[folder])


def test_tensors_that_do_not_belong_together(small, tmp_path):
    folder = Lora(small[1], ("self_attn.q_proj",), 4).save(tmp_path / "mine")
    good = {q_of(0, "A"): torch.zeros(4, 64), q_of(0, "B"): torch.zeros(64, 4)}
    for change, error, message in (
        ({q_of(0, "B"): torch.zeros(64, 5)}, InvalidProgramError, "belong together"),
        ({q_of(1, "A"): torch.zeros(4, 64)}, InvalidProgramError, "lacks lora_A or lora_B"),
        ({q_of(0, "A"): torch.full((4, 64), math.inf)}, InvalidProgramError, "not finite"),
        ({q_of(0, "A"): torch.zeros(4, 64, dtype=torch.int32)}, InvalidProgramError, "floating point"),
        ({"base_model.model.lm_head.weight": torch.zeros(96, 64)}, InvalidArgumentError, "lm_head.weight"),
    ):
        save_file(good | change, folder / "adapter_model.safetensors")
        with pytest.raises(error, match=message):
            runtime.load(small[0], "cpu", adapters=[folder])


def test_damaged_files(small, tmp_path):
    folder = Lora(small[1], ("self_attn.q_proj",), 4).save(tmp_path / "mine")
    file = folder / "adapter_model.safetensors"
    whole = file.read_bytes()
    for cut in (0, 5, 9, 100, len(whole) - 1):
        file.write_bytes(whole[:cut])
        with pytest.raises((InvalidProgramError, NotAProgramError)):
            runtime.load(small[0], "cpu", adapters=[folder])
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(NotAProgramError, match="Git-LFS"):
        runtime.load(small[0], "cpu", adapters=[folder])
    file.unlink()
    with pytest.raises(InvalidArgumentError, match=r"lacks adapter_model\.safetensors"):
        runtime.load(small[0], "cpu", adapters=[folder])


def test_names_and_number(small, tmp_path):
    folder = Lora(small[1], ("self_attn.q_proj",), 4).save(tmp_path / "mine")
    with pytest.raises(InvalidArgumentError, match="another adapter has this name"):
        runtime.load(small[0], "cpu", adapters=[folder, folder])
    with pytest.raises(InvalidArgumentError, match="4 adapters are the most"):
        runtime.load(small[0], "cpu", adapters=[Adapter(folder, name=str(i)) for i in range(5)])


# positions of Moby-Dick on the software GPU and on the CPU: prefilled, and step by step
SIZES = {"cpu": (48, 16), "webgpu": (33, 4)}


@pytest.fixture(scope="module")
def smollm2_lora(smollm2, eager_window, tmp_path_factory):
    """Rank 8 on all seven linears of SmolLM2-135M: its folder, and eager's logits of the text with it."""
    decoder = smollm2[1]
    base = eager_window(0)[1]
    lora = Lora(decoder, ALL, 8)
    for name, (a, b) in lora.terms.items():
        lora.terms[name] = (a, b / 10)  # weights of a real model are smaller
    ids = eager_window(0)[0][: max(count for count, _ in SIZES.values())]
    decoder.reset()
    with lora.on(decoder):
        expected = evaluation.feed(decoder, ids)[0]
    assert (expected - torch.from_numpy(base[: len(ids)])).abs().max() > 1, "the adapter does nothing"
    return lora, lora.save(tmp_path_factory.mktemp("lora") / "random"), ids, expected


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_smollm2_logits(models, smollm2_lora, device):
    _, folder, ids, expected = smollm2_lora
    prefilled, steps = SIZES[device]
    program = models / "smollm2-135m-instruct-all" / "model.pte"
    with runtime.load(program, device, adapters=[folder], **DEVICES[device]) as session:
        chunks = [prefilled - steps, *([1] * steps)]
        for lengths in ([prefilled], chunks):
            difference = (logits(session, ids[:prefilled], lengths) - expected[:prefilled]).abs().max()
            assert difference < TOLERANCE, f"{len(lengths)} calls: logits differ by {difference:.2g}"


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_smollm2_greedy_tokens(models, smollm2, smollm2_lora, device):
    """The shipped program answers as eager does with the adapter, and, with its scale 0, as without."""
    lora, folder, _, _ = smollm2_lora
    messages = [{"role": "user", "content": evaluation.QUESTIONS[0]}]
    with TextGenerator(models / "smollm2-135m-instruct", device, adapters=[folder], **DEVICES[device]) as model:
        prompt = model.text_model.encode(messages)
        ids = model.generate(messages, max_tokens=8).ids
        stats = model.last_stats
        with lora.on(smollm2[1]):
            evaluation.check_greedy(smollm2[1], prompt, ids, 8, eos=[2])
        model.set_adapter_scale("random", 0)
        plain = model.generate(messages, max_tokens=8)
        assert plain.reused_tokens == 0
        assert plain.text == "The capital of France is Paris."
    assert ids != plain.ids[: len(ids)]
    if device == "webgpu":
        assert stats["submits"] == 1
        # one more for each of q, k, v together, output, gate with up, and down; 5 a layer without adapters
        assert stats["dispatches"] <= 9 * 30 + 6
