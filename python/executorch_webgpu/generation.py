"""Text generation natively, out of a model folder that `executorch-webgpu export` wrote.

from executorch_webgpu.generation import TextGenerator

model = TextGenerator("smollm2", device="cpu")
print(model.generate([{"role": "user", "content": "What is the capital of France?"}]).text)
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from executorch_webgpu import runtime
from executorch_webgpu.errors import FileError, InvalidArgumentError, InvalidProgramError, check_number
from executorch_webgpu.grammar import Grammars, Matcher
from executorch_webgpu.json_files import read_object
from executorch_webgpu.native import _native
from executorch_webgpu.text import Message, Prompt, StopFinder, TextModel, TextStreamer
from executorch_webgpu.variants import variant_files

__all__ = ["GeneratedToken", "Generation", "Message", "Prompt", "TextGenerator"]


@dataclass(frozen=True)
class GeneratedToken:
    """`text` is what became certain with this token; may be empty while a character or stop string is incomplete.
    logprob: natural logarithm of the probability that the model gave it (before any filter), with logprobs=True."""

    id: int
    text: str
    logprob: float | None = None


@dataclass(frozen=True)
class Generation:
    """`ids` with the end-of-text token, if that came. finish_reason: "stop" (end of text or a stop string), "length"
    (max_tokens or the end of the context) or "aborted" (on_token returned False)."""

    text: str
    ids: list[int]
    finish_reason: str
    prompt_tokens: int
    reused_tokens: int  # of the prompt, found in the cache
    prefill_seconds: float
    decode_seconds: float
    logprobs: list[float] | None = None  # of ids, with logprobs=True
    model_calls: int = 0  # after the prompt, with speculation; one a token without
    proposed_tokens: int = 0  # drafted by speculation
    accepted_tokens: int = 0  # of these, the model's own choice


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy. The filters apply in the order repetition penalty, temperature, top-k, min-p, top-p."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low, high, whole in (
            ("temperature", 0, 100, False),
            ("top_k", 0, 2**31 - 1, True),
            ("top_p", 0, 1, False),
            ("min_p", 0, 1, False),
            ("repetition_penalty", 0.01, 100, False),
            ("seed", 0, 2**64 - 1, True),
        ):
            object.__setattr__(self, name, check_number(name, getattr(self, name), low, high, whole))


class TextGenerator:
    """A language model with its tokenizer. One generation at a time; what a prompt shares with the tokens in the cache
    is not run again, so a conversation pays for its new message only."""

    def __init__(
        self,
        folder: str | os.PathLike,
        device: str = "webgpu",
        *,
        method: str = "forward",
        variant: str | None = None,
        **options: Any,
    ) -> None:
        """folder: a model folder, or a model.pte with tokenizer.json and tokenizer_config.json. variant: of the
        manifest, by name; the first one else. options: those of runtime.load.

        Raises what runtime.load does; FileError where the folder or a file is missing, NotAProgramError or
        InvalidProgramError for a damaged JSON file, UnsupportedVersionError for a newer manifest."""
        folder = Path(folder)
        if not folder.is_dir():
            raise FileError(f"there is no folder {folder}")
        self.text_model = TextModel(folder)
        program, data = variant_files(folder, variant)
        self.session = runtime.load(program, device, **({"data": data} | options))
        self._native = _native.Generator(self.session._native, method)
        self.end_ids = self._end_ids(folder)
        self._folder = folder
        self._grammars: Grammars | None = None  # made when a grammar is asked for
        self._is_sequence = False

    def new_sequence(self) -> TextGenerator:
        """Another conversation on the same model, with a cache of its own; weights, kernels and the memory of
        intermediate values are shared. Generations of several sequences may alternate token by token. close() frees
        its cache alone; close() of the model ends its sequences, too.

        Raises LimitExceededError beyond the session's memory cap, OutOfMemoryError."""
        other = copy.copy(self)
        other._native = self._native.new_sequence()
        other._is_sequence = True
        return other

    @property
    def state_bytes(self) -> int:
        """Memory of this conversation's cache; session.memory_report() counts that of all sequences as state."""
        return self._native.state_bytes

    def _end_ids(self, folder: Path) -> frozenset[int]:
        ids = self.session.constant("get_eos_ids")
        ids = ids if isinstance(ids, list) else [] if ids is None else [ids]
        config = folder / "generation_config.json"
        if config.is_file():
            more = read_object(config).get("eos_token_id")
            more = more if isinstance(more, list) else [] if more is None else [more]
            if not all(type(i) is int and abs(i) < 2**31 for i in more):
                raise InvalidProgramError(f"{config}: eos_token_id is {more}, which are no token ids")
            ids = [*ids, *more]
        return frozenset(ids)

    @property
    def capacity(self) -> int:
        """Positions of the context."""
        return self._native.capacity

    @property
    def cached_ids(self) -> list[int]:
        """The tokens in the cache."""
        return self._native.tokens

    @property
    def last_stats(self) -> dict[str, int]:
        """Dispatches, submits and bytes moved by the last step."""
        return self._native.last_stats()

    @property
    def vocabulary(self) -> int:
        """Token ids are below it."""
        return self._native.vocabulary

    def set_profiling(self, on: bool) -> None:
        """Takes the time of every kernel from now on, which makes steps slower; on a GPU where it can measure."""
        self._native.set_profiling(on)

    @property
    def last_profile(self) -> list[dict[str, Any]]:
        """kernel, node, us, bytes and flops of each dispatch (CPU: node) of the last step, in order."""
        return self._native.last_profile()

    def reset(self) -> None:
        """Forgets the conversation."""
        self._native.reset()

    def set_adapter_scale(self, name: str, scale: float) -> None:
        """What a LoRA adapter counts from now on (see runtime.Session), in all sequences of the model. Forgets their
        conversations, which were computed with another scale. InvalidArgumentError while one generates."""
        self.session.set_adapter_scale(name, scale)

    def save_state(self) -> bytes:
        """The tokens in the cache with what the model has computed of them; only what is in use. InvalidArgumentError
        while a generation is under way."""
        return self._native.save()

    def restore_state(self, saved: bytes) -> None:
        """Goes on from what save_state() gave, also in another process: a prompt that begins with its tokens runs its
        new ones only. SavedStateError, with nothing changed, where it is damaged, of another model or of caches of
        another precision. InvalidArgumentError for what is no bytes."""
        if not isinstance(saved, bytes | bytearray | memoryview):
            raise InvalidArgumentError(f"saved: a {type(saved).__name__} is no bytes of save_state()")
        self._native.restore(bytes(saved))

    def close(self) -> None:
        """Frees the memory of the model now; of a sequence, its cache."""
        if self._is_sequence:
            self._native.close()
        else:
            self.session.close()

    def __enter__(self) -> TextGenerator:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def generate(
        self, prompt: Prompt, *, on_token: Callable[[GeneratedToken], bool | None] | None = None, **options: Any
    ) -> Generation:
        """Runs to the end. prompt: text is continued as it is, messages go through the chat template, ids are run
        unchanged. on_token: called with every token; returning False ends the generation. options: see stream()."""
        steps = self.stream(prompt, **options)
        try:
            while True:
                token = next(steps)
                if on_token is not None and on_token(token) is False:
                    steps.throw(_Aborted)
        except StopIteration as end:
            return end.value

    def stream(
        self,
        prompt: Prompt,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        repetition_penalty: float = 1.0,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
        logprobs: bool = False,
        json_schema: Mapping[str, Any] | None = None,
        grammar: str | None = None,
        overflow: str = "stop",
        sinks: int = 4,
        keep: int | None = None,
        speculation: int = 0,
        ngram: int = 3,
    ) -> Generator[GeneratedToken, None, Generation]:
        """Yields token by token; leaving the loop ends the generation. The iterator's return value is the Generation.

        max_tokens: default up to the end of the context. temperature 0 is greedy. seed: same seed, same tokens. stop:
        generation ends before the first of these strings, which are not part of the text. tools, template_options: what
        the chat template gets beside messages, see TextModel.encode. logprobs: with every token the logarithm of its
        probability by the model. json_schema, grammar (EBNF as in llama.cpp): only tokens that lead to such a text are
        chosen; it is complete unless finish_reason is "length" or "aborted". overflow: at the end of the context
        "stop", or "sliding": go on as if the text were its first `sinks` tokens and its last `keep` (default: half of
        the context together), which are computed again; a prompt that is too long is shortened in the same way.
        speculation: where the last `ngram` tokens (or fewer, down to 2) came before, up to so many (at most 15) of
        those that followed are checked in one call instead of being computed one by one; what is greedy stays the
        same, and generations that sample, or want logprobs or a grammar, go without.

        Raises InvalidArgumentError that names the option, LimitExceededError for a prompt longer than the context,
        PackageMissingError where a grammar needs xgrammar and it is not installed, UnsupportedOperatorError where
        the program cannot give the logits that speculation needs."""
        # checked here and not at the first next()
        sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty, seed)
        stops = [stop] if isinstance(stop, str) else list(stop) if isinstance(stop, Iterable) else [None]
        if not all(isinstance(s, str) for s in stops):
            raise InvalidArgumentError(f"stop: {stop!r} is neither a string nor a list of strings")
        options = vars(sampling) | {"stop_tokens": sorted(self.end_ids), "logprobs": bool(logprobs)}
        if max_tokens is not None:
            options["max_tokens"] = check_number("max_tokens", max_tokens, 1, 2**31 - 1, whole=True)
        if overflow not in ("stop", "sliding"):
            raise InvalidArgumentError(f"overflow: {overflow!r} is neither stop nor sliding")
        if overflow == "sliding":
            sinks = check_number("sinks", sinks, 0, 2**31 - 1, whole=True)
            keep = -1 if keep is None else check_number("keep", keep, 1, 2**31 - 1, whole=True)
            options |= {"sliding": True, "sinks": sinks, "keep": keep}
        options["draft_tokens"] = check_number("speculation", speculation, 0, 15, whole=True)
        options["draft_ngram"] = check_number("ngram", ngram, 1, 2**31 - 1, whole=True)
        ids = self.text_model.encode(prompt, tools, template_options)
        if (last := max(ids)) >= self.vocabulary:
            raise InvalidArgumentError(f"token id {last} is outside of the vocabulary of {self.vocabulary}")
        return self._steps(ids, options, _Output(self.text_model.decode, stops), self._matcher(json_schema, grammar))

    def _matcher(self, json_schema: Mapping[str, Any] | None, grammar: str | None) -> Matcher | None:
        if json_schema is None and grammar is None:
            return None
        if json_schema is not None and grammar is not None:
            raise InvalidArgumentError("json_schema, grammar: one of them")
        if self._grammars is None:
            self._grammars = Grammars(self._folder, self.vocabulary, self.end_ids)
        return self._grammars.matcher(json_schema, grammar)

    def _steps(
        self, ids: list[int], options: dict[str, Any], out: _Output, matcher: Matcher | None
    ) -> Generator[GeneratedToken, None, Generation]:
        reused = self._native.begin(ids, **options, masked=matcher is not None)
        began = prefilled = time.perf_counter()
        logprobs: list[float] | None = [] if options["logprobs"] else None
        try:
            while True:
                if matcher is not None and not out.reason:
                    self._native.allow(matcher.allowed())
                if (drawn := self._native.next()) is None:
                    break
                token, logprob = drawn
                if matcher is not None:
                    matcher.accept(token)
                if not out.ids:
                    prefilled = time.perf_counter()
                piece = out.take(token, self._native.finish_reason)
                if logprobs is not None:
                    logprobs.append(logprob)
                yield GeneratedToken(token, piece, logprob if options["logprobs"] else None)
                if out.reason:
                    break
        except _Aborted:
            out.abort()
        finally:
            self._native.end()
        counts = self._native.speculation
        return Generation(
            text=out.text,
            ids=out.ids,
            finish_reason=out.reason,
            prompt_tokens=len(ids),
            reused_tokens=reused,
            prefill_seconds=prefilled - began,
            decode_seconds=time.perf_counter() - prefilled,
            logprobs=logprobs,
            model_calls=counts["calls"],
            proposed_tokens=counts["proposed"],
            accepted_tokens=counts["accepted"],
        )


class _Aborted(Exception):
    pass


class _Output:
    """What has been generated, and whether that is the end."""

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        stops: Sequence[str],
    ) -> None:
        self.ids: list[int] = []
        self.text = ""
        self.reason = ""
        self._streamer = TextStreamer(decode)
        self._stops = StopFinder(stops)

    def take(self, token: int, reason: str) -> str:
        """The piece of text of this token. reason: why it is the last one; "stop": it is no text."""
        self.ids.append(token)
        self.reason = reason
        piece = ""
        if reason != "stop":
            piece = self._stops.push(self._streamer.push(token))
            if self._stops.found:
                self.reason = "stop"
        if self.reason:
            piece += self._rest()
        self.text += piece
        return piece

    def abort(self) -> None:
        if not self.reason:
            self.reason = "aborted"
            self.text += self._rest()

    def _rest(self) -> str:
        # The rest may hold the stop string, too.
        piece = self._stops.push(self._streamer.end()) + self._stops.end()
        if self._stops.found:
            self.reason = "stop"
        return piece
