import { describe, expect, it } from 'vitest';
import { makeError } from '../src/errors.js';
import { Generation } from '../src/generation.js';
import { openai } from '../src/openai.js';
import type { Session } from '../src/session.js';
import { Chat } from '../src/tasks/chat.js';
import type { GenerateOptions, GenerateResult, Prompt } from '../src/types.js';

/** Answers what it was asked, piece by piece. */
function session(answer: (prompt: Prompt) => string[] | Error, finishReason: GenerateResult['finishReason'] = 'stop') {
  const asked: { prompt: Prompt; options: GenerateOptions }[] = [];
  const generate = (prompt: Prompt, options: GenerateOptions = {}) => {
    asked.push({ prompt, options });
    return new Generation(async (add) => {
      const pieces = answer(prompt);
      await Promise.resolve();
      if (pieces instanceof Error) throw pieces;
      pieces.forEach((text, id) => add({ id, text }));
      return {
        text: pieces.join(''),
        tokenIds: pieces.map((_, i) => i),
        finishReason,
        timings: { promptTokens: 7, reusedTokens: 3, prefillMs: 0, decodeTokens: 1, decodeMs: 0 },
      };
    }, options.signal);
  };
  return { asked, it: { generate, info: { manifest: { name: 'tiny' } } } as unknown as Session };
}

describe('Chat', () => {
  it('keeps questions and answers, and passes its options on', async () => {
    const s = session((prompt) => [`answer ${(prompt as unknown[]).length}`]);
    const chat = new Chat(s.it, { system: 'Be brief.', maxTokens: 5, seed: 1 });
    await chat.send('one');
    await chat.send('two', { maxTokens: 9 });
    expect(chat.messages.map((m) => `${m.role}: ${m.content}`)).toEqual([
      ...['system: Be brief.', 'user: one', 'assistant: answer 2', 'user: two', 'assistant: answer 4'],
    ]);
    expect(s.asked[1]?.options).toMatchObject({ maxTokens: 9, seed: 1 });
    expect(chat.undo()).toBe('two');
    expect(chat.messages).toHaveLength(3);
    chat.clear();
    expect(chat.messages).toHaveLength(1);
  });
  it('answers what is asked at once one after another', async () => {
    const s = session((prompt) => [`answer ${(prompt as unknown[]).length}`]);
    const chat = new Chat(s.it);
    const answers = await Promise.all([chat.send('one'), chat.send('two'), chat.send('three')]);
    expect(answers.map(({ text }) => text)).toEqual(['answer 1', 'answer 3', 'answer 5']);
    expect(chat.messages.map((m) => m.content)).toEqual(['one', 'answer 1', 'two', 'answer 3', 'three', 'answer 5']);
  });
  it('goes on after an error, and leaves out what was taken back', async () => {
    let calls = 0;
    const chat = new Chat(session(() => (++calls === 1 ? makeError('device_lost', 'gone') : ['yes'])).it);
    const lost = chat.send('one');
    const kept = chat.send('two');
    const back = chat.send('three');
    expect(chat.undo()).toBe('three');
    await expect(lost).rejects.toMatchObject({ code: 'device_lost' });
    expect((await kept).text).toBe('yes');
    await expect(back).rejects.toMatchObject({ code: 'invalid_argument' });
    expect(chat.messages.map((m) => m.content)).toEqual(['two', 'yes']);
  });
  it('refuses unknown options before it asks', () => {
    const chat = new Chat(session(() => ['yes']).it);
    expect(() => chat.send('one', { maxToken: 1 } as GenerateOptions)).toThrow(/maxToken/);
    expect(chat.messages).toEqual([]);
  });
  it('takes a question back that was not answered', async () => {
    const chat = new Chat(session(() => makeError('device_lost', 'gone')).it);
    await expect(chat.send('one')).rejects.toMatchObject({ code: 'device_lost' });
    expect(chat.messages).toEqual([]);
  });
});

describe('Generation', () => {
  it('gives each loop all pieces', async () => {
    const generation = session(() => ['a', 'b', 'c']).it.generate('hi');
    const read = async () => {
      let text = '';
      for await (const piece of generation) text += piece;
      return text;
    };
    expect(await Promise.all([read(), read()])).toEqual(['abc', 'abc']);
    expect(await read()).toBe('abc');
  });
});

describe('openai', () => {
  const ask = { messages: [{ role: 'user', content: 'hi' }] };
  it('answers in its shape', async () => {
    const s = session(() => ['a', 'b'], 'length');
    const answer = await openai(s.it).chat.completions.create({ ...ask, max_tokens: 2, top_p: 0.5, stop: 'x' });
    expect(answer).toMatchObject({
      object: 'chat.completion',
      model: 'tiny',
      choices: [{ index: 0, message: { role: 'assistant', content: 'ab' }, finish_reason: 'length' }],
      usage: { prompt_tokens: 7, completion_tokens: 2, total_tokens: 9, prompt_tokens_details: { cached_tokens: 3 } },
    });
    expect(s.asked[0]?.options).toEqual({ temperature: 1, maxTokens: 2, topP: 0.5, stop: 'x' });
  });
  it('takes a response format', async () => {
    const s = session(() => ['{}']);
    const schema = { type: 'object' };
    const formats = [
      { type: 'json_schema', json_schema: { name: 'x', schema } },
      { type: 'json_object' },
      { type: 'text' },
    ];
    for (const response_format of formats) await openai(s.it).chat.completions.create({ ...ask, response_format });
    expect(s.asked.map(({ options }) => options.responseFormat)).toEqual([
      { type: 'json_schema', schema },
      { type: 'json_object' },
      { type: 'text' },
    ]);
  });
  it('streams chunks that begin with the role and end with the reason', async () => {
    const chunks = [];
    const stream = await openai(session(() => ['a', 'b']).it).chat.completions.create({ ...ask, stream: true });
    for await (const chunk of stream) chunks.push(chunk.choices[0]);
    expect(chunks.map((c) => c?.delta)).toEqual([
      { role: 'assistant', content: '' },
      { content: 'a' },
      { content: 'b' },
      {},
    ]);
    expect(chunks.map((c) => c?.finish_reason)).toEqual([null, null, null, 'stop']);
  });
  it.each([
    [{ tools: [] }, /tools/],
    [{ n: 2 }, /n: only 1/],
    [{ frequency_penalty: 0.5 }, /frequency_penalty: only 0/],
    [{ messages: undefined }, /messages: a list/],
    [{ messages: [null] }, /messages/],
    [{ messages: [{ role: 'user', content: null }] }, /messages\[0\]\.content: null is no text/],
    [{ messages: [{ role: 'assistant', tool_calls: [{}] }] }, /tool_calls/],
    [{ tool_choice: 'none', logprobs: true }, /tool_choice, logprobs/],
    [{ response_format: { type: 'json_schema' } }, /response_format/],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url' }] }] }, /image_url/],
  ])('refuses %j', async (more, words) => {
    const create = openai(session(() => []).it).chat.completions.create({ ...ask, ...more } as never);
    await expect(create).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.stringMatching(words) as string,
    });
  });
  it('takes what says what is so anyway', async () => {
    const s = session(() => ['a']);
    const neutral = { frequency_penalty: 0, presence_penalty: 0, logprobs: false, n: 1, stream: false, user: 'x' };
    const nothing = { stop: null, seed: null, n: null, tools: null, logit_bias: null, stream: null, top_p: null };
    const create = (more: object) => openai(s.it).chat.completions.create({ ...ask, ...more }, null);
    for (const more of [neutral, nothing]) expect(await create(more)).toMatchObject({ object: 'chat.completion' });
    expect(s.asked.map(({ options }) => options)).toEqual([{ temperature: 0 }, { temperature: 0 }]);
  });
  it('takes calls of tools, whose content may be null', async () => {
    const s = session(() => ['a']);
    const call = (given: unknown) => ({ id: '1', function: { name: 'now', arguments: given } });
    const messages = [
      { role: 'assistant', content: null, tool_calls: [call('{"zone":1}')] },
      { role: 'tool', content: 'noon', tool_call_id: '1' },
    ];
    await openai(s.it).chat.completions.create({ messages });
    expect(s.asked[0]?.prompt).toEqual([
      { role: 'assistant', content: '', tool_calls: [call({ zone: 1 })] },
      { role: 'tool', content: 'noon', tool_call_id: '1' },
    ]);
  });
  it.each([undefined, null, {}])('refuses %j', async (params) => {
    const create = openai(session(() => []).it).chat.completions.create(params as never);
    await expect(create).rejects.toMatchObject({ code: 'invalid_argument' });
  });
  it('rejects an aborted completion', async () => {
    const create = openai(session(() => ['a'], 'aborted').it).chat.completions.create(ask);
    await expect(create).rejects.toMatchObject({ name: 'AbortError' });
  });
});
