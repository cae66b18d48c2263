import { describe, expect, it } from 'vitest';
import { splitThinking } from '../src/thinking.js';
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
    for (const id of [1.5, -1, NaN, 2 ** 40, 'a'] as number[]) {
      expect(() => model.encode({ tokenIds: [3, id] })).toThrow(`tokenIds[1]: ${id} is no token id`);
    }
    for (const prompt of [undefined, null, {}, 5, { tokenIds: 5 }] as unknown[]) {
      expect(() => model.encode(prompt as string)).toThrow('a prompt is a text');
    }
  });

  it('does not let them replace the messages', () => {
    expect(model.encode(messages, { templateOptions: { messages: [], enable_thinking: true } })).toEqual([3]);
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
