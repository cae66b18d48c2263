import { describe, expect, it } from 'vitest';
import { Conversation, samplingOf, type Sampling, type TokenSource } from '../src/worker/generate.js';

/** Counts upwards: after token n comes n + 1. Remembers what it was asked to do. */
class Counter implements TokenSource {
  capacity = 64;
  cache: number[] = [];
  appended: number[][] = [];
  sampling: Sampling[] = [];
  append(ids: readonly number[]): Promise<number> {
    this.appended.push([...ids]);
    this.cache.push(...ids);
    return Promise.resolve((ids.at(-1) as number) + 1);
  }
  rollback(position: number): void {
    expect(position).toBeLessThanOrEqual(this.cache.length);
    this.cache.length = position;
  }
  setSampling(options: Sampling): void {
    this.sampling.push(options);
  }
}
const letters = {
  encode: (prompt: unknown) => (prompt as { tokenIds: number[] }).tokenIds,
  decode: (ids: number[]) => ids.map((i) => `<${i}>`).join(''),
};
const never = new AbortController().signal;
const setUp = (chunk = 512, ends = [99]) => {
  const source = new Counter();
  return { source, conversation: new Conversation(source, letters, new Set(ends), chunk) };
};
const prompt = (...tokenIds: number[]) => ({ tokenIds });

describe('Conversation', () => {
  it('ends at an end token, which is in the ids and not in the text', async () => {
    const { conversation } = setUp(512, [12]);
    const seen: string[] = [];
    const result = await conversation.generate(prompt(9), {}, never, (t) => seen.push(t.text));
    expect(result).toMatchObject({ tokenIds: [10, 11, 12], text: '<10><11>', finishReason: 'stop' });
    expect(seen.join('')).toBe(result.text);
  });

  it('ends at maxTokens without running the last token', async () => {
    const { source, conversation } = setUp();
    const result = await conversation.generate(prompt(1), { maxTokens: 3 }, never, () => undefined);
    expect(result).toMatchObject({ tokenIds: [2, 3, 4], finishReason: 'length' });
    expect(source.appended).toEqual([[1], [2], [3]]);
  });

  it('ends with the context, not beyond it', async () => {
    const { source, conversation } = setUp();
    source.capacity = 4;
    const result = await conversation.generate(prompt(1, 2), {}, never, () => undefined);
    expect(result.finishReason).toBe('length');
    expect(source.cache).toHaveLength(4);
    await expect(conversation.generate(prompt(1, 2, 3, 4), {}, never, () => undefined)).rejects.toMatchObject({
      code: 'limit_exceeded',
    });
  });

  it('runs only what a second turn adds', async () => {
    const { source, conversation } = setUp();
    await conversation.generate(prompt(1, 2, 3), { maxTokens: 2 }, never, () => undefined);
    source.appended = [];
    const result = await conversation.generate(prompt(1, 2, 3, 4, 50), { maxTokens: 1 }, never, () => undefined);
    expect(source.appended).toEqual([[50]]);
    expect(result.timings).toMatchObject({ promptTokens: 5, reusedTokens: 4 });
    expect(source.cache).toEqual([1, 2, 3, 4, 50]);
  });

  it('answers the same prompt again by running its last token', async () => {
    const { source, conversation } = setUp();
    const once = await conversation.generate(prompt(1, 2), { maxTokens: 2 }, never, () => undefined);
    source.appended = [];
    const twice = await conversation.generate(prompt(1, 2), { maxTokens: 2 }, never, () => undefined);
    expect(twice.tokenIds).toEqual(once.tokenIds);
    expect(source.appended[0]).toEqual([2]);
  });

  it('samples only after the last chunk of a prompt', async () => {
    const { source, conversation } = setUp(2);
    await conversation.generate(
      prompt(1, 2, 3, 4, 5),
      { maxTokens: 1, temperature: 0.5, seed: 7 },
      never,
      () => undefined,
    );
    expect(source.appended).toEqual([[1, 2], [3, 4], [5]]);
    expect(source.sampling.map((s) => s.temperature)).toEqual([0, 0.5]);
  });

  it('stops between chunks and between tokens, and can be used again', async () => {
    const { source, conversation } = setUp(1);
    const early = new AbortController();
    const append = source.append.bind(source);
    source.append = (ids) => {
      early.abort();
      return append(ids);
    };
    const first = await conversation.generate(prompt(1, 2, 3), {}, early.signal, () => undefined);
    expect(first).toMatchObject({ finishReason: 'aborted', tokenIds: [], text: '' });
    expect(source.cache).toEqual([1]);
    const second = await conversation.generate(prompt(1, 2, 3), { maxTokens: 1 }, never, () => undefined);
    expect(second.tokenIds).toEqual([4]);
    expect(source.cache).toEqual([1, 2, 3]);
  });

  it('cuts the text before a stop string', async () => {
    const { conversation } = setUp();
    const seen: string[] = [];
    const result = await conversation.generate(prompt(1), { stop: '><4' }, never, (t) => seen.push(t.text));
    expect(result).toMatchObject({ text: '<2><3', finishReason: 'stop' });
    expect(seen.join('')).toBe(result.text);
  });
});

describe('samplingOf', () => {
  it('names the option that is out of range', () => {
    expect(() => samplingOf({ topP: 1.5 })).toThrow(/topP/);
    expect(() => samplingOf({ topK: 1.5 })).toThrow(/topK/);
    expect(() => samplingOf({ seed: -1 })).toThrow(/seed/);
    expect(samplingOf({})).toMatchObject({ temperature: 0, topP: 1, repetitionPenalty: 1 });
  });
});
