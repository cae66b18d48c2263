"""Text and tokens: a model folder's tokenizer and chat template, text piece by piece, stop strings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from executorch_webgpu.errors import FileError, InvalidArgumentError

Message = Mapping[str, Any]  # {"role": …, "content": …}
Prompt = str | Sequence[Message] | Sequence[int]


def _token_text(token: Any) -> str:
    return token or "" if isinstance(token, str | None) else token.get("content", "")


class TextModel:
    """tokenizer.json, tokenizer_config.json and, where there is one, chat_template.jinja of a folder."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileError(f"{folder} has no tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the class that tokenizers raises
            raise InvalidArgumentError(f"{path} is not a tokenizer: {error}") from error
        config = folder / "tokenizer_config.json"
        self._config = json.loads(config.read_text()) if config.is_file() else {}
        template = folder / "chat_template.jinja"
        text = template.read_text() if template.is_file() else self._config.get("chat_template")
        if isinstance(text, list):  # several, by name
            named = {t["name"]: t["template"] for t in text}
            text = named.get("default", next(iter(named.values()), None))
        self._template = _compile(text) if text else None

    @property
    def has_template(self) -> bool:
        return self._template is not None

    def encode(self, prompt: Prompt) -> list[int]:
        """Text is continued as it is; messages go through the chat template; ids are taken unchanged.

        InvalidArgumentError for messages without a template and for a prompt without tokens."""
        if isinstance(prompt, str):
            ids = self._tokenizer.encode(prompt).ids
        elif prompt and isinstance(prompt[0], Mapping):
            ids = self._tokenizer.encode(self._render(prompt), add_special_tokens=False).ids
        else:
            ids = [int(i) for i in prompt]
        if not ids:
            raise InvalidArgumentError("the prompt is empty")
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True) if ids else ""

    def _render(self, messages: Sequence[Message]) -> str:
        if self._template is None:
            raise InvalidArgumentError("this model has no chat template: pass text instead of messages")
        from jinja2 import TemplateError

        try:
            return self._template.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token=_token_text(self._config.get("bos_token")),
                eos_token=_token_text(self._config.get("eos_token")),
            )
        except TemplateError as error:  # templates refuse what they don't support, such as two user messages in a row
            raise InvalidArgumentError(f"the chat template refused the messages: {error}") from error


def _compile(text: str):
    """A chat template as transformers compiles it; in a sandbox, since templates come with the model."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def raise_exception(message):
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    try:
        return environment.from_string(text)
    except TemplateError as error:
        raise InvalidArgumentError(f"the chat template has an error: {error}") from error


class TextStreamer:
    """Turns tokens into text as soon as whole characters are there: a character may be spread over several tokens."""

    def __init__(self, decode: Callable[[Sequence[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        # The text of [prefix, read) has been given out. Decoding starts a little earlier than what is new, since
        # decoders treat the first token of a text differently.
        self._prefix = self._read = 0

    def push(self, token: int) -> str:
        """The text that became complete with this token."""
        self._ids.append(token)
        text = self._fresh()
        # U+FFFD at the end: bytes of a character whose rest is to come
        return "" if not text or text.endswith("\ufffd") else self._take(text)

    def end(self) -> str:
        """What is left at the end, complete or not."""
        return self._take(self._fresh())

    def _fresh(self) -> str:
        before = self._decode(self._ids[self._prefix : self._read])
        return self._decode(self._ids[self._prefix :])[len(before) :]

    def _take(self, text: str) -> str:
        self._prefix, self._read = self._read, len(self._ids)
        return text


class StopFinder:
    """Lets text through up to the first stop string; holds back what may be the beginning of one."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [s for s in stops if s]
        self._held = ""
        self.found = False

    def push(self, text: str) -> str:
        if self.found:
            return ""
        self._held += text
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if places:
            self.found = True
            return self._take(min(places))
        return self._take(len(self._held) - self._beginning())

    def end(self) -> str:
        return "" if self.found else self._take(len(self._held))

    def _beginning(self) -> int:
        """Length of the longest end of what is held that begins a stop string."""
        lengths = (n for stop in self._stops for n in range(1, len(stop)) if self._held.endswith(stop[:n]))
        return max(lengths, default=0)

    def _take(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        return text
