"""What reaches a chat template beside the messages, and what thoughts are told from an answer."""

from __future__ import annotations

import pytest
from executorch_webgpu.errors import InvalidArgumentError
from executorch_webgpu.text import TextModel, split_thinking
from models.conftest import save_tokenizer

TEMPLATE = (
    "{% for t in tools or [] %}{{ t.function.name }} {% endfor %}"
    "{% for m in messages %}{{ m.content }} {% for c in m.tool_calls or [] %}{{ c.name }} {% endfor %}{% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}w9{% endif %}"
    "{% if strftime_now is defined and strftime_now('%Y') | int > 2000 %} w5{% endif %}"
)


@pytest.fixture
def text_model(tmp_path):
    save_tokenizer(tmp_path, 16)
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    return TextModel(tmp_path)


def test_tools_and_options(text_model):
    messages = [{"role": "user", "content": "w3"}]
    tools = [{"type": "function", "function": {"name": "w7"}}]
    assert text_model.encode(messages) == [3, 5]
    assert text_model.encode(messages, tools) == [7, 3, 5]
    assert text_model.encode(messages, tools, {"enable_thinking": False}) == [7, 3, 9, 5]
    assert text_model.encode(messages, template_options={"messages": "w4", "enable_thinking": True}) == [3, 5]
    calls = [{"role": "assistant", "content": "w3", "tool_calls": [{"name": "w8"}]}]
    assert text_model.encode(calls) == [3, 8, 5]


def test_errors_of_the_template(text_model, tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no tools') if tools }}w1")
    model = TextModel(tmp_path)
    assert model.encode([{"role": "user", "content": ""}]) == [1]
    with pytest.raises(InvalidArgumentError, match="no tools"):
        model.encode([{"role": "user", "content": ""}], [{"type": "function"}])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nHm.\n</think>\n\nParis.", ("Hm.", "Paris.")),
        ("Hm.</think>Paris.", ("Hm.", "Paris.")),  # the template has opened it
        ("<think>\n\n</think>\n\nParis.", ("", "Paris.")),
        ("<think>\nHm", ("Hm", "")),
        ("Paris.", ("", "Paris.")),
    ],
)
def test_thinking(text, expected):
    assert split_thinking(text) == expected
