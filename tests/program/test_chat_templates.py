"""Chat templates against transformers: what the templates of the field's models use."""

import pytest
from executorch_webgpu.text import _compile
from transformers.utils.chat_template_utils import render_jinja_template

MESSAGES = [
    {"role": "user", "content": 'Hi <b>& "é"'},
    {"role": "assistant", "content": None, "tool_calls": [{"name": "weather", "arguments": {"city": "Köln", "n": 2}}]},
    {"role": "tool", "content": '{"degrees": 3}'},
]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "of a <city>", "parameters": {}}}]


@pytest.mark.parametrize(
    "template",
    [
        "{% for tool in tools %}{{ tool | tojson }}{% endfor %}",
        "{{ tools | tojson(indent=4) }}",
        "{{ messages[1].tool_calls | tojson(ensure_ascii=False) }}",
        "{{ messages[1].tool_calls | tojson(ensure_ascii=True) }}",
        "{% for m in messages %}{% if m.role == 'tool' %}{% break %}{% endif %}\n  {{- m.content or '' }}{% endfor %}",
        "{% set n = namespace(at=0) %}{% for m in messages[::-1] %}{% set n.at = loop.index0 %}{% endfor %}{{ n.at }}",
        "{{ strftime_now('%d %b %Y') }}",
        "{{ bos_token + (messages[0]['content'] | trim) }}{% if add_generation_prompt %}\n<assistant>{% endif %}",
        "{{ 'off' if enable_thinking is defined and enable_thinking is false else 'on' }}",
    ],
)
def test_rendered_as_by_transformers(template):
    variables = {"bos_token": "<s>", "eos_token": "</s>", "enable_thinking": False, "add_generation_prompt": True}
    found = _compile(template).render(messages=MESSAGES, tools=TOOLS, **variables)
    texts, _ = render_jinja_template([MESSAGES], tools=TOOLS, chat_template=template, **variables)
    assert found == texts[0]
