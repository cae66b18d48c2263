import { describe, expect, it } from 'vitest';
import { Conversation, samplingOf, speculationOf, type TokenSource } from '../src/worker/generate.js';
import type { Ended, GenerateRequest, OnToken } from '../src/worker/module.js';

const NONE = { reused: 0, proposed: 0, accepted: 0, calls: 0 };

/** As the module: counts upwards, after token n comes n + 1, a turn of the event loop each. Remembers its requests. */
class Counter implements TokenSource {
  requests: GenerateRequest[] = [];
  delivered: number[] = [];
  private aborted = false;
  async generate(ids: readonly number[], options: GenerateRequest, onToken: OnToken): Promise<Ended> {
    this.requests.push(options);
    this.aborted = false;
    for (let token = (ids.at(-1) as number) + 1, n = 1; ; token++, n++) {
      await new Promise((resolve) => setTimeout(resolve, 0));
      if (this.aborted) return { ...NONE, reason: 'aborted' };
      const reason = options.stopTokens.includes(token)
        ? 'stop'
        : n === Math.min(options.maxTokens, 60)
          ? 'length'
          : '';
      this.delivered.push(token);
      if (!onToken(token, reason, -token)) return { ...NONE, reason };
      expect(reason).toBe(''); // false was due
    }
  }
  abort(): void {
    this.aborted = true;
  }
}
const letters = {
  encode: (prompt: unknown) => (prompt as { tokenIds: number[] }).tokenIds,
  decode: (ids: number[]) => ids.map((i) => `<${i}>`).join(''),
};
const never = new AbortController().signal;
const setUp = (ends = [99]) => {
  const source = new Counter();
  return { source, conversation: new Conversation(source, letters, new Set(ends), 7) };
};
const prompt = (...tokenIds: number[]) => ({ tokenIds });

describe('Conversation', () => {
  it('ends at an end token, which is in the ids and not in the text', async () => {
    const { conversation } = setUp([12]);
    const seen: string[] = [];
    const result = await conversation.generate(prompt(9), {}, never, (t) => seen.push(t.text));
    expect(result).toMatchObject({ tokenIds: [10, 11, 12], text: '<10><11>', finishReason: 'stop' });
    expect(seen.join('')).toBe(result.text);
  });

  it('ends at maxTokens', async () => {
    const { source, conversation } = setUp();
    const result = await conversation.generate(prompt(1), { maxTokens: 3 }, never, () => undefined);
    expect(result).toMatchObject({ tokenIds: [2, 3, 4], text: '<2><3><4>', finishReason: 'length' });
    expect(result.timings).toMatchObject({ promptTokens: 1, reusedTokens: 0, decodeTokens: 2 });
    expect(source.delivered).toEqual([2, 3, 4]);
  });

  it('hands the options on', async () => {
    const { source, conversation } = setUp();
    await conversation.generate(prompt(1), { maxTokens: 1, temperature: 0.5, seed: 7 }, never, () => undefined);
    await conversation.generate(prompt(1), { maxTokens: 1 }, never, () => undefined);
    expect(source.requests[0]).toMatchObject({ temperature: 0.5, seed: 7, maxTokens: 1, stopTokens: [99], chunk: 7 });
    expect(source.requests[1]).toMatchObject({ temperature: 0, topP: 1, repetitionPenalty: 1 });
  });

  it('gives the logarithms of probabilities where asked to', async () => {
    const { conversation } = setUp();
    const seen: (number | undefined)[] = [];
    const options = { maxTokens: 2, logprobs: true };
    const result = await conversation.generate(prompt(1), options, never, (t) => seen.push(t.logprob));
    expect(result.logprobs).toEqual([-2, -3]);
    expect(seen).toEqual([-2, -3]);
    expect(await conversation.generate(prompt(1), { maxTokens: 2 }, never, () => undefined)).not.toHaveProperty(
      'logprobs',
    );
  });

  it('tells the module of an abort, and ends where it does', async () => {
    const { source, conversation } = setUp();
    const before = new AbortController();
    setTimeout(() => before.abort(), 0);
    const none = await conversation.generate(prompt(1), {}, before.signal, () => undefined);
    expect(none.finishReason).toBe('aborted');
    expect(none.tokenIds.length).toBeLessThanOrEqual(1);
    const during = new AbortController();
    const some = await conversation.generate(prompt(1), {}, during.signal, (t) => {
      if (t.id === 4) during.abort();
    });
    expect(some).toMatchObject({ finishReason: 'aborted', tokenIds: [2, 3, 4], text: '<2><3><4>' });
    source.delivered = [];
    const again = await conversation.generate(prompt(1), { maxTokens: 1 }, never, () => undefined);
    expect(again).toMatchObject({ finishReason: 'length', tokenIds: [2] });
  });

  it('cuts the text before a stop string', async () => {
    const { source, conversation } = setUp();
    const seen: string[] = [];
    const result = await conversation.generate(prompt(1), { stop: '><4' }, never, (t) => seen.push(t.text));
    expect(result).toMatchObject({ text: '<2><3', finishReason: 'stop' });
    expect(seen.join('')).toBe(result.text);
    expect(source.delivered.at(-1)).toBe(4);
  });

  it.each([
    ['maxTokens', { maxTokens: 2 }],
    ['an abort', { maxTokens: 9 }],
  ])('says stop where a stop string is in what %s leaves of the text', async (_, options) => {
    // half a character: nothing of it is given out before the end
    const half = { ...letters, decode: (ids: number[]) => ids.map((i) => (i === 3 ? 'end\uFFFD' : `<${i}>`)).join('') };
    const conversation = new Conversation(new Counter(), half, new Set([99]), 7);
    const controller = new AbortController();
    const seen: string[] = [];
    const result = await conversation.generate(prompt(1), { ...options, stop: 'end' }, controller.signal, (t) => {
      seen.push(t.text);
      if (t.id === 3) controller.abort();
    });
    expect(result).toMatchObject({ text: '<2>', tokenIds: [2, 3], finishReason: 'stop' });
    expect(seen.join('')).toBe('<2>');
  });
});

describe('options of generate', () => {
  it('refuses what would otherwise be ignored', async () => {
    const { conversation } = setUp();
    for (const wrong of [{ stop: 5 }, { stop: [5] }, { maxTokens: 1.5 }, { maxTokens: 0 }] as object[]) {
      const [name] = Object.keys(wrong);
      await expect(conversation.generate(prompt(1), wrong, never, () => undefined)).rejects.toThrow(name);
    }
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

describe('speculationOf', () => {
  it('has defaults, and names what is wrong', () => {
    expect([speculationOf(undefined), speculationOf(false)]).toEqual([undefined, undefined]);
    expect(speculationOf(true)).toEqual({ tokens: 8, ngram: 3 });
    expect(speculationOf({ tokens: 15, ngram: 1 })).toEqual({ tokens: 15, ngram: 1 });
    for (const wrong of ['yes', 8, null, { tokens: 0 }, { tokens: 16 }, { ngram: 1.5 }]) {
      expect(() => speculationOf(wrong as unknown as true)).toThrow(/speculation/);
    }
  });
});
