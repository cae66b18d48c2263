"""Text generation on a small random decoder: tokens against its logits, text piece by piece, the command."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from executorch_webgpu import cli, errors, runtime
from executorch_webgpu.generation import TextGenerator
from executorch_webgpu.text import StopFinder, TextStreamer
from program.conftest import save_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

DEVICES = ["cpu", pytest.param("webgpu", marks=pytest.mark.gpu)]
PROMPT = "w11 w12 w13"
VARIED = {"repetition_penalty": 50.0}  # the decoder likes to say one word for ever


@pytest.fixture
def model(folder):
    with TextGenerator(folder, "cpu", activations="exact") as model:
        yield model


def greedy_by_logits(folder, ids, count):
    session = runtime.load(folder / "model.pte", "cpu", activations="exact")
    produced, chunk, position = [], ids, 0
    while len(produced) < count:
        logits = session.forward(np.array([chunk], np.int64), np.array([position], np.int64))[0]
        position += len(chunk)
        chunk = [int(logits[0].argmax())]
        produced += chunk
    return produced


@pytest.mark.parametrize("device", DEVICES)
def test_greedy_follows_the_logits(folder, device):
    with TextGenerator(folder, device, activations="exact") as model:
        for prompt in ([11, 12, 13], [50, 3, 77, 21, 6], [90]):
            result = model.generate(prompt, max_tokens=8)
            assert result.ids == greedy_by_logits(folder, prompt, 8)
        result = model.generate(PROMPT, max_tokens=4)
        assert result.text == " ".join(f"w{i}" for i in result.ids)
        assert (result.finish_reason, result.prompt_tokens, result.reused_tokens) == ("length", 3, 0)
        stats = model.last_stats
        if device == "webgpu":
            assert (stats["submits"], stats["read_back_bytes"]) == (1, 4)


@pytest.mark.gpu
def test_what_was_in_flight_at_the_end_leaves_no_trace(folder):
    """Stop tokens, leaving the loop and an exhausted context, each while further tokens are computed."""
    prompts = [[11, 12, 13], [50, 3, 77, 21, 6], [11, 12, 13, 90]]
    expected = {tuple(p): greedy_by_logits(folder, p, 12) for p in prompts}
    with TextGenerator(folder, "webgpu") as model:
        for p in prompts:
            for end in (1, 4):
                model.end_ids = frozenset({expected[tuple(p)][end]})
                first = expected[tuple(p)].index(expected[tuple(p)][end]) + 1
                ended = model.generate(p)
                assert (ended.finish_reason, ended.ids) == ("stop", expected[tuple(p)][:first])
                assert model.cached_ids == p + ended.ids[:-1]
            model.end_ids = frozenset()
            for i, token in enumerate(model.stream(p)):
                assert token.id == expected[tuple(p)][i]
                if i == 2:
                    break
            assert model.cached_ids == p + expected[tuple(p)][:2]
            result = model.generate(p + expected[tuple(p)][:3], max_tokens=9)
            assert result.ids == expected[tuple(p)][3:] and result.reused_tokens == len(p) + 2
        whole = model.generate(prompts[0])
        assert whole.finish_reason == "length" and len(whole.ids) == model.capacity - 3 + 1
        assert whole.ids[:12] == expected[tuple(prompts[0])]


@pytest.mark.parametrize("device", DEVICES)
def test_one_generation_at_a_time(folder, device):
    """What would mix with a generation under way is refused, which goes on as if nothing had been."""
    with TextGenerator(folder, device, activations="exact") as model:
        alone = model.generate(PROMPT, max_tokens=8, **VARIED).ids
        for disturb in (
            lambda: model.generate("w1 w2", max_tokens=2),
            lambda: list(model.stream("w1 w2", max_tokens=2)),
            model.reset,
            lambda: model.session.forward(np.array([[5, 6]]), np.array([0])),
        ):
            model.reset()
            ids = []
            for token in model.stream(PROMPT, max_tokens=8, **VARIED):
                ids.append(token.id)
                if len(ids) == 3:
                    with pytest.raises(errors.InvalidArgumentError, match="under way"):
                        disturb()
            assert ids == alone


@pytest.mark.parametrize("device", DEVICES)
def test_a_call_of_the_method_is_not_taken_for_the_conversation(folder, device):
    with TextGenerator(folder, device, activations="exact") as model:
        alone = model.generate(PROMPT, max_tokens=8, **VARIED).ids
        model.session.forward(np.array([[7, 8, 9]]), np.array([0]))
        again = model.generate(PROMPT, max_tokens=8, **VARIED)
        assert (again.ids, again.reused_tokens) == (alone, 0)


def test_messages_go_through_the_template(model):
    assert model.text_model.encode([{"role": "user", "content": "w1 w2"}]) == [92, 1, 2, 9, 8]
    assert model.text_model.encode("w1 w2") == [1, 2]
    assert model.text_model.encode([1, 2]) == [1, 2]


def test_a_conversation_runs_its_new_tokens_only(model, folder):
    messages = [{"role": "user", "content": "w1 w2 w3 w4"}]
    first = model.generate(messages, max_tokens=5)
    messages += [{"role": "assistant", "content": "w5"}, {"role": "user", "content": "w6"}]
    second = model.generate(messages, max_tokens=5)
    # the assistant's turn begins otherwise than the generation prompt: up to there the cache serves
    assert (first.reused_tokens, second.reused_tokens) == (0, 6)
    ids = model.text_model.encode(messages)
    assert second.ids == greedy_by_logits(folder, ids, 5)
    again = model.generate(messages, max_tokens=5)
    assert again.ids == second.ids and again.reused_tokens == len(ids) - 1
    model.reset()
    assert model.cached_ids == [] and model.generate(messages, max_tokens=5).ids == second.ids


@pytest.mark.parametrize("device", DEVICES)
def test_sliding_goes_on_as_after_the_kept_text(folder, device):
    prompt = [11, 12, 13, 50, 3, 77]
    with TextGenerator(folder, device, activations="exact") as model:
        found = model.generate(prompt, max_tokens=150, overflow="sliding", sinks=3, keep=20)
        text, wanted = prompt, []
        while len(wanted) < 150:
            part = greedy_by_logits(folder, text, model.capacity - len(text) + 1)
            wanted += part
            text = (text + part)[:3] + (text + part)[-20:]
        assert found.ids == wanted[:150] and found.finish_reason == "length"
        assert model.generate(prompt).finish_reason == "length"  # stop is the default
        long = model.generate(list(range(90)), max_tokens=4, overflow="sliding")
        half = model.capacity // 2
        assert long.ids == greedy_by_logits(folder, [*range(4), *range(90 - half + 4, 90)], 4)
        for options in ({"overflow": "slide"}, {"sinks": -1}, {"keep": 0}, {"keep": 62}, {"sinks": 40}):
            with pytest.raises(errors.InvalidArgumentError):
                model.generate(prompt, **({"overflow": "sliding"} | options))


def test_sampling(model):
    def run(**options):
        model.reset()
        return model.generate(PROMPT, max_tokens=30, **options).ids

    hot = run(temperature=20.0, seed=1)
    assert hot == run(temperature=20.0, seed=1)
    assert hot != run(temperature=20.0, seed=2)
    greedy = run()
    assert hot != greedy
    assert (
        greedy == run(temperature=20.0, top_k=1) == run(temperature=20.0, min_p=1.0) == run(temperature=20.0, top_p=0.0)
    )
    assert len(set(run(**VARIED))) == 30 > len(set(greedy))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{}, {"temperature": 1.5, "seed": 3}, VARIED], ids=["greedy", "sampled", "varied"])
def test_logprobs_are_those_of_the_models_softmax(folder, device, options):
    ids = [11, 12, 13]
    with TextGenerator(folder, device, activations="exact") as model:
        result = model.generate(ids, max_tokens=6, logprobs=True, **options)
        assert model.generate(ids, max_tokens=6, **options).logprobs is None
    session = runtime.load(folder / "model.pte", "cpu", activations="exact")
    for i, (token, logprob) in enumerate(zip(result.ids, result.logprobs, strict=True)):
        all_ids = np.array([ids + result.ids[:i]], np.int64)
        logits = session.forward(all_ids, np.array([0], np.int64))[0][0].astype(np.float64)
        assert logprob == pytest.approx(logits[token] - np.logaddexp.reduce(logits), abs=1e-3)


def test_ends(model):
    whole = model.generate(PROMPT, **VARIED, max_tokens=6)
    words = whole.text.split()
    assert len(set(words)) == 6
    stopped = model.generate(PROMPT, **VARIED, stop=[words[3], "nothing"], max_tokens=6)
    assert stopped.finish_reason == "stop" and stopped.text == " ".join(words[:3]) + " "
    model.end_ids = frozenset({whole.ids[2]})
    ended = model.generate(PROMPT, **VARIED)
    assert ended.finish_reason == "stop" and ended.ids == whole.ids[:3]
    assert ended.text == " ".join(words[:2])
    model.end_ids = frozenset()
    full = model.generate(PROMPT, **VARIED)  # one token more than has a place: it needs none
    assert full.finish_reason == "length" and len(full.ids) == model.capacity - 3 + 1


def test_streaming(model):
    whole = model.generate(PROMPT, **VARIED, max_tokens=6)
    steps, tokens = model.stream(PROMPT, **VARIED, max_tokens=6), []
    try:
        while True:
            tokens.append(next(steps))
    except StopIteration as end:
        assert end.value.text == whole.text
    assert [t.id for t in tokens] == whole.ids and "".join(t.text for t in tokens) == whole.text
    for token in model.stream(PROMPT, **VARIED):
        if token.id == whole.ids[1]:
            break
    part = model.generate(PROMPT, **VARIED, on_token=lambda token: token.id != whole.ids[2])
    assert part.finish_reason == "aborted" and whole.text.startswith(part.text)
    assert model.generate(PROMPT, **VARIED, max_tokens=6).ids == whole.ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "temperature: -1 is not between 0 and 100"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"top_k": 1.5}, "top_k: 1.5 is not a whole number"),
        ({"min_p": -0.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": -1}, "seed"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_wrong_options_are_named(model, options, message):
    with pytest.raises(errors.InvalidArgumentError, match=message):
        model.generate(PROMPT, **options)


def test_wrong_prompts(model, folder, tmp_path):
    with pytest.raises(errors.InvalidArgumentError, match="the prompt is empty"):
        model.generate("")
    with pytest.raises(errors.LimitExceededError, match="64 tokens does not fit into a context of 64"):
        model.generate([1] * 64)
    with pytest.raises(errors.InvalidArgumentError, match="token id 96 is outside of the vocabulary of 96"):
        model.generate([96])
    assert len(model.generate([1] * 63).ids) == 2
    shutil.copy(folder / "model.pte", tmp_path)
    with pytest.raises(errors.FileError, match=r"no tokenizer\.json"):
        TextGenerator(tmp_path, "cpu")
    save_tokenizer(tmp_path, template=None)
    with TextGenerator(tmp_path, "cpu") as plain:
        with pytest.raises(errors.InvalidArgumentError, match="has no chat template"):
            plain.generate([{"role": "user", "content": "w1"}])
    save_tokenizer(tmp_path, template="{{ raise_exception('roles must alternate') }}")
    with TextGenerator(tmp_path, "cpu") as refusing:
        with pytest.raises(errors.InvalidArgumentError, match="roles must alternate"):
            refusing.generate([{"role": "user", "content": "w1"}])


def test_not_a_language_model(fixture_of, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "mlp")
    shutil.copy(fixture_of("mlp").path, tmp_path / "mlp/model.pte")
    with pytest.raises(errors.InvalidArgumentError, match="not a language model method: 1 inputs"):
        TextGenerator(tmp_path / "mlp", "cpu")
    shutil.copy(fixture_of("mixed").path, tmp_path / "mlp/model.pte")
    with pytest.raises(errors.InvalidArgumentError, match="method forward is not one delegate call alone"):
        TextGenerator(tmp_path / "mlp", "cpu")
    with pytest.raises(errors.InvalidArgumentError, match="no method other"):
        TextGenerator(folder, "cpu", method="other")


def test_closed(folder):
    model = TextGenerator(folder, "cpu")
    model.generate(PROMPT, max_tokens=2)
    model.close()
    model.close()
    for call in (lambda: model.generate(PROMPT), lambda: model.last_stats, lambda: model.session.memory_report()):
        with pytest.raises(errors.InvalidArgumentError, match="closed"):
            call()


@pytest.fixture(scope="module")
def byte_tokenizer():
    """One token a byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_characters_come_whole(byte_tokenizer):
    text = "Grüße, 世界 👩‍🚀!"
    streamer = TextStreamer(lambda ids: byte_tokenizer.decode(list(ids)))
    pieces = [streamer.push(i) for i in byte_tokenizer.encode(text).ids]
    assert "".join(pieces) == text and streamer.end() == ""
    assert [p for p in pieces if p] == list(text)
    for token in byte_tokenizer.encode("a世").ids[:-1]:
        streamer.push(token)
    assert streamer.end() == "\ufffd"  # what never became whole


def test_stop_strings_across_pieces():
    finder = StopFinder(["END", "ENOUGH", ""])
    assert [finder.push(p) for p in ("a E", "N", "Ex EN", "D after")] == ["a ", "", "ENEx ", ""]
    assert finder.found and finder.push("more") == "" and finder.end() == ""
    finder = StopFinder(["END"])
    assert finder.push("the EN") == "the " and finder.end() == "EN"


def test_command(folder, capsys):
    words = ["run", str(folder), "w1 w2", "--device", "cpu", "--max-tokens", "4"]
    assert cli.main(words) == 0
    out, err = capsys.readouterr()
    assert len(out.split()) == 4 and "5 tokens read" in err and "cut off" in err
    assert cli.main([*words, "--raw"]) == 0
    assert "2 tokens read" in capsys.readouterr().err
    assert cli.main(["run", str(folder / "nothing"), "w1"]) == 1
    assert "there is no folder" in capsys.readouterr().err
