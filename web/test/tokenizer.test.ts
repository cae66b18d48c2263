import { describe, expect, it } from 'vitest';
import { splitThinking } from '../src/thinking.js';
import { endIds } from '../src/worker/model.js';
import { TextModel } from '../src/worker/tokenizer.js';

const tokenizer = JSON.stringify({
  version: '1.0',
  added_tokens: [],
  normalizer: null,
  pre_tokenizer: { type: 'Whitespace' },
  post_processor: null,
  decoder: null,
  model: {
    type: 'WordLevel',
    vocab: Object.fromEntries([...Array(16).keys()].map((i) => [`w${i}`, i])),
    unk_token: 'w0',
  },
});
const template =
  '{% for t in tools or [] %}{{ t.function.name }} {% endfor %}' +
  '{% for m in messages %}{{ m.content }} {% for c in m.tool_calls or [] %}{{ c.name }} {% endfor %}{% endfor %}' +
  '{% if enable_thinking is defined and not enable_thinking %}w9{% endif %}';

describe('TextModel', () => {
  const model = new TextModel(tokenizer, undefined, template);
  const messages = [{ role: 'user', content: 'w3' }];
  const tools = [{ type: 'function', function: { name: 'w7' } }];

  it('passes tools and further variables to the chat template', () => {
    expect(model.encode(messages)).toEqual([3]);
    expect(model.encode(messages, { tools })).toEqual([7, 3]);
    expect(model.encode(messages, { tools, templateOptions: { enable_thinking: false } })).toEqual([7, 3, 9]);
    expect(model.encode([{ role: 'assistant', content: 'w3', tool_calls: [{ name: 'w8' }] }])).toEqual([3, 8]);
  });

  it('takes lists of ids, and names what is none', () => {
    expect(model.encode({ tokenIds: [1, 2] })).toEqual([1, 2]);
    expect(model.encode({ tokenIds: Int32Array.of(1, 2) as unknown as number[] })).toEqual([1, 2]);
    for (const id of [1.5, -1, NaN, 2 ** 40, 'a', undefined] as number[]) {
      expect(() => model.encode({ tokenIds: [3, id] })).toThrow(/^tokenIds\[1\]: .* is no token id/);
    }
    for (const prompt of [undefined, null, {}, 5, { tokenIds: 5 }] as unknown[]) {
      expect(() => model.encode(prompt as string)).toThrow('a prompt is a text');
    }
  });

  it('does not let them replace the messages', () => {
    expect(model.encode(messages, { templateOptions: { messages: [], enable_thinking: true } })).toEqual([3]);
  });
});

describe('files of a model folder', () => {
  const [json, config, jinja] = ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'];
  const generation = 'generation_config.json';
  const load = (files: Record<string, string>) => {
    endIds({ files }, []);
    return new TextModel(files[json] ?? tokenizer, files[config], files[jinja]);
  };
  it.each([
    ...[json, config, generation].flatMap((name) =>
      ['<!doctype html><html>', '{"a": ', '', 'null', '5'].map((text) => [name, text, 'not_a_program']),
    ),
    [json, '{}', 'invalid_program'],
    [json, '{"model": {"type": "WordLevel"}}', 'invalid_program'],
    [config, '{"chat_template": 5}', 'invalid_program'],
    [config, '{"chat_template": [null]}', 'invalid_program'],
    [config, '{"chat_template": "{% if"}', 'invalid_program'],
    [jinja, '{% for x in %}', 'invalid_program'],
    [generation, '{"eos_token_id": "2"}', 'invalid_program'],
    [generation, '{"eos_token_id": [2, 1.5]}', 'invalid_program'],
  ])('a damaged %s is named: %s', (name, text, code) => {
    let error: unknown;
    try {
      load({ [name]: text });
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toMatchObject({ code, message: expect.stringContaining(name) as string });
  });
  it('may be missing, or hold what is enough', () => {
    expect(load({}).encode('w1')).toEqual([1]);
    const named = load({ [config]: '{"chat_template": [{"name": "a", "template": "w2"}]}' });
    expect(named.encode([{ role: 'user', content: '' }])).toEqual([2]);
    const constant = { name: 'get_eos_ids', constant: true, gpuBuffers: false, values: [7] };
    expect([...endIds({ files: { [generation]: '{"eos_token_id": [2, 7]}' } }, [constant])]).toEqual([7, 2]);
    expect([...endIds({ files: { [generation]: '{"eos_token_id": null}' } }, [])]).toEqual([]);
  });
});

describe('splitThinking', () => {
  it.each([
    ['<think>\nHm.\n</think>\n\nParis.', 'Hm.', 'Paris.'],
    ['Hm.</think>Paris.', 'Hm.', 'Paris.'],
    ['<think>\n\n</think>\n\nParis.', '', 'Paris.'],
    ['<think>\nHm', 'Hm', ''],
    ['Paris.', '', 'Paris.'],
  ])('%j', (text, thoughts, answer) => {
    expect(splitThinking(text)).toEqual({ thoughts, answer });
  });
});
