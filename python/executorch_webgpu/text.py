"""Text and tokens: a model folder's tokenizer and chat template, text piece by piece, stop strings."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from executorch_webgpu.errors import FileError, InvalidArgumentError, InvalidProgramError
from executorch_webgpu.json_files import read_object, read_text

Message = Mapping[str, Any]  # {"role": …, "content": …}
Prompt = str | Sequence[Message] | Sequence[int]


def _token_text(token: Any) -> str:
    return token or "" if isinstance(token, str | None) else token.get("content", "")


def _check_config(path: Path, config: Mapping[str, Any]) -> None:
    """Raises InvalidProgramError for a tokenizer_config.json whose fields are not what they should be."""
    for name in ("bos_token", "eos_token"):
        token = config.get(name)
        text = token.get("content", "") if isinstance(token, dict) else token
        if text is not None and not isinstance(text, str):
            raise InvalidProgramError(f"{path}: {name} is {token!r}, which is no token")
    template = config.get("chat_template")
    parts = template if isinstance(template, list) else []
    texts = [part.get(key) if isinstance(part, dict) else None for part in parts for key in ("name", "template")]
    if not isinstance(template, str | list | None) or not all(isinstance(text, str) for text in texts):
        raise InvalidProgramError(f"{path}: chat_template is neither a text nor a list of named ones")


def _check_messages(messages: Sequence[Any]) -> None:
    """Raises InvalidArgumentError for what templates would fail on, or, worse, write out as "None"."""
    for i, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidArgumentError(f"message {i} is {message!r}, not an object with role and content")
        if not isinstance(message.get("role"), str):
            raise InvalidArgumentError(f"message {i} has no role such as user: {message.get('role')!r}")
        content = message.get("content")
        # Parts and results of tools are for templates that know them; a call of a tool may stand alone.
        if not isinstance(content, str | list | tuple | Mapping) and not (
            content is None and message.get("tool_calls")
        ):
            raise InvalidArgumentError(f"message {i} has content {content!r}, which is no text")


def _token_id(value: Any) -> int:
    try:
        token = operator.index(value)  # not int(): that would make 1 of 1.5 and of "1"
    except TypeError:
        raise InvalidArgumentError(f"the prompt holds {value!r}, which is neither a message nor a token id") from None
    if not 0 <= token < 2**31:
        raise InvalidArgumentError(f"token id {token} is outside of every vocabulary")
    return token


class TextModel:
    """tokenizer.json, tokenizer_config.json and, where there is one, chat_template.jinja of a folder."""

    def __init__(self, folder: Path) -> None:
        """Raises FileError without a tokenizer.json, NotAProgramError and InvalidProgramError, which name the file, for
        a damaged one."""
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileError(f"{folder} has no tokenizer.json")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the class that tokenizers raises
            read_object(path)  # says what it is instead
            raise InvalidProgramError(f"{path} is not a tokenizer: {error}") from error
        config = folder / "tokenizer_config.json"
        self._config = read_object(config) if config.is_file() else {}
        _check_config(config, self._config)
        template = folder / "chat_template.jinja"
        if template.is_file():
            text = read_text(template)
        else:
            template, text = config, self._config.get("chat_template")
        if isinstance(text, list):  # several, by name
            named = {t["name"]: t["template"] for t in text}
            text = named.get("default", next(iter(named.values()), None))
        try:
            self._template = _compile(text) if text else None
        except InvalidProgramError as error:
            raise InvalidProgramError(f"{template}: {error}") from error

    @property
    def has_template(self) -> bool:
        return self._template is not None

    def encode(
        self,
        prompt: Prompt,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Text is continued as it is; messages go through the chat template; ids are taken unchanged.

        tools: JSON schemas of functions, for templates that know tools. template_options: further variables of the
        template, such as Qwen3's enable_thinking. InvalidArgumentError for messages without a template, for messages or
        ids that are none, for text that is no Unicode, and for a prompt without tokens."""
        if isinstance(prompt, str):
            ids = self._tokens(prompt)
        elif not isinstance(prompt, Iterable) or isinstance(prompt, bytes | bytearray | Mapping):
            raise InvalidArgumentError(f"the prompt is {prompt!r}, not a text, a list of messages or token ids")
        elif (items := list(prompt)) and isinstance(items[0], Mapping):
            _check_messages(items)
            ids = self._tokens(self._render(items, tools, template_options), add_special_tokens=False)
        else:
            ids = [_token_id(i) for i in items]
        if not ids:
            raise InvalidArgumentError("the prompt is empty")
        return ids

    def _tokens(self, text: str, **options: Any) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgumentError(f"the prompt is no text: a lone surrogate at {error.start}") from None
        return self._tokenizer.encode(text, **options).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Without special tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True) if ids else ""

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        template_options: Mapping[str, Any] | None,
    ) -> str:
        if self._template is None:
            raise InvalidArgumentError("this model has no chat template: pass text instead of messages")
        from jinja2 import TemplateError

        if not isinstance(tools, Sequence | None) or isinstance(tools, str):
            raise InvalidArgumentError(f"tools: {tools!r} is no list")
        if not isinstance(template_options, Mapping | None):
            raise InvalidArgumentError(f"template_options: {template_options!r} is no mapping of names to values")
        try:
            variables = {
                **(template_options or {}),
                "messages": messages,
                "tools": list(tools) if tools else None,
                "add_generation_prompt": True,
                "bos_token": _token_text(self._config.get("bos_token")),
                "eos_token": _token_text(self._config.get("eos_token")),
            }
            return self._template.render(variables)
        except TemplateError as error:  # templates refuse what they don't support, such as two user messages in a row
            raise InvalidArgumentError(f"the chat template refused the messages: {error}") from error
        except Exception as error:  # whatever its expressions raise on values that it was not made for
            what = f"{type(error).__name__}: {error}"
            raise InvalidArgumentError(f"the chat template failed on the messages: {what}") from error


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
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # Llama 3.2 tells the date
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False} | options)
    try:
        return environment.from_string(text)
    except (TemplateError, RecursionError) as error:
        raise InvalidProgramError(f"the chat template has an error: {error}") from error


def split_thinking(text: str) -> tuple[str, str]:
    """(thoughts, answer) of a model that thinks aloud in <think>…</think> first. Without thoughts the first is empty,
    without an end of them the second; a template may have opened the thoughts already in the prompt."""
    thoughts, end, answer = text.partition("</think>")
    if not end:
        opened = text.lstrip().startswith("<think>")
        thoughts, answer = (text, "") if opened else ("", text)
    return thoughts.strip().removeprefix("<think>").strip(), answer.lstrip() if end else answer


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
