import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { ResponseFormat } from '../src/types.js';
import { Conversation, slidingOf } from '../src/worker/generate.js';
import { Grammars, simplified, unsupportedKeyword, vocabularyOf, type XGrammar } from '../src/worker/grammar.js';
import type { Allowed, Ended, GenerateRequest, OnToken } from '../src/worker/module.js';

const NONE = { reused: 0, proposed: 0, accepted: 0, calls: 0 };

/** The package itself, which Node would not evaluate as the module that it says it is: as in a worker of a browser. */
function load(): Promise<XGrammar> {
  const path = new URL('../../node_modules/@mlc-ai/web-xgrammar/lib/index.js', import.meta.url);
  const surroundings = {
    module: { exports: {} as XGrammar },
    process: undefined,
    importScripts: () => undefined,
    self: { location: { href: 'http://localhost/' } },
    location: { href: 'http://localhost/' },
  };
  // eslint-disable-next-line @typescript-eslint/no-implied-eval
  const evaluate = new Function('exports', ...Object.keys(surroundings), readFileSync(path, 'utf8')) as (
    ...args: unknown[]
  ) => void;
  evaluate(surroundings.module.exports, ...Object.values(surroundings));
  return Promise.resolve(surroundings.module.exports);
}

// a token for each character that JSON is made of, one of several characters, and two that are no text
const pieces = [...' {}[]:,."-0123456789abcdefghijklmnopqrstuvwxyz', '", "', 'true'];
const END = pieces.length;
const tokenizer = JSON.stringify({
  model: { vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])) },
  added_tokens: [
    { id: END, content: '</s>', special: true },
    { id: END + 1, content: '<pad>', special: true },
  ],
});
const VOCABULARY = END + 20; // models have more logits than tokens
const grammars = new Grammars('somewhere', tokenizer, VOCABULARY, [END], load);

/** As the module, with logits by chance: any token that may come. */
class Chance {
  masks = 0;
  constructor(private seed: number) {}
  async generate(_: readonly number[], options: GenerateRequest, onToken: OnToken, allowed?: Allowed): Promise<Ended> {
    for (let n = 1; ; ++n) {
      const mask = await allowed?.();
      if (!mask) throw new Error('no mask');
      this.masks++;
      expect(mask.length).toBe(Math.ceil(VOCABULARY / 32));
      const may = Array.from({ length: VOCABULARY }, (_, i) => i).filter((i) => ((mask[i >> 5] ?? 0) >> (i & 31)) & 1);
      this.seed = (this.seed * 1103515245 + 12345) % 2147483648;
      const token = may[this.seed % may.length] as number;
      const reason = options.stopTokens.includes(token) ? 'stop' : n === options.maxTokens ? 'length' : '';
      if (!onToken(token, reason, 0) || reason) return { ...NONE, reason };
    }
  }
  abort(): void {
    throw new Error('nobody aborts');
  }
}
const text = {
  encode: () => [0],
  decode: (ids: number[]) => ids.map((id) => pieces[id] ?? '').join(''),
};
const never = new AbortController().signal;
function run(seed: number, responseFormat: ResponseFormat, maxTokens = 200) {
  const source = new Chance(seed);
  const conversation = new Conversation(source, text, new Set([END]), 7, grammars);
  return conversation
    .generate({ tokenIds: [0] }, { responseFormat, maxTokens }, never, () => undefined)
    .then((result) => ({ ...result, masks: source.masks }));
}

const schema = {
  type: 'object',
  properties: { name: { type: 'string', maxLength: 5 }, old: { type: 'boolean' }, n: { enum: [1, 20] } },
  required: ['name', 'old', 'n'],
};

describe('responseFormat', () => {
  it('gives JSON by the schema, whatever is drawn', async () => {
    for (let seed = 1; seed <= 20; ++seed) {
      const result = await run(seed, { type: 'json_schema', schema });
      expect(result.finishReason).toBe('stop');
      const value = JSON.parse(result.text) as { name: string; old: boolean; n: number };
      expect(Object.keys(value)).toEqual(['name', 'old', 'n']);
      expect([typeof value.name, typeof value.old, [1, 20].includes(value.n)]).toEqual(['string', 'boolean', true]);
      expect(result.masks).toBe(result.tokenIds.length);
    }
  });
  it('follows a grammar', async () => {
    const result = await run(3, { type: 'grammar', grammar: 'root ::= "yes" | "no" [0-9]' });
    expect(result.text).toMatch(/^(yes|no\d)$/);
  });
  it('begins any JSON object', async () => {
    expect((await run(5, { type: 'json_object' }, 4)).text).toMatch(/^\{/);
  });
  it.each([
    [{ type: 'json_schema' }, /json_schema with a schema/],
    [{ type: 'yaml' }, /yaml/],
    [{ type: 'json_schema', schema: { type: 'nothing' } }, /responseFormat/],
    [{ type: 'grammar', grammar: 'root ::= (' }, /responseFormat/],
  ])('refuses %j', async (format, words) => {
    await expect(run(1, format as ResponseFormat)).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.stringMatching(words) as string,
    });
  });
  it('says that the package is missing', async () => {
    for (const [url, words] of [
      ['', /grammarUrl/],
      ['data:text/javascript,export default 1', /another script/],
      ['file:///nowhere.js', /nowhere/],
    ] as const) {
      const matcher = new Grammars(url, tokenizer, VOCABULARY, [END]).matcher({ type: 'json_object' });
      await expect(matcher).rejects.toMatchObject({
        code: 'package_missing',
        message: expect.stringMatching(words) as string,
      });
    }
    const endless = new Grammars('x', tokenizer, VOCABULARY, [], load).matcher({ type: 'json_object' });
    await expect(endless).rejects.toMatchObject({ code: 'invalid_argument' });
  });
  it('knows how a tokenizer writes its pieces', () => {
    expect(vocabularyOf(tokenizer)).toMatchObject({ type: 'raw', prependSpace: false });
    expect(vocabularyOf(tokenizer).pieces.slice(END)).toEqual(['', '']);
    const like = (more: object) => vocabularyOf(JSON.stringify({ model: { vocab: [['▁', -1]] }, ...more }));
    expect(like({ decoder: { type: 'ByteLevel' } }).type).toBe('byte_level');
    expect(like({ pre_tokenizer: { type: 'Metaspace' } })).toEqual({
      pieces: ['▁'],
      type: 'byte_fallback',
      prependSpace: true,
    });
  });
});

const known = JSON.parse(readFileSync(new URL('../../tests/models/json_schemas.json', import.meta.url), 'utf8')) as {
  unsupported: [object, string][];
  supported: object[];
  /** what libraries write, and how the package gets it */
  simplified: [object, object][];
};

describe('keywords of a schema that would not hold', () => {
  it.each(known.unsupported)('names those of %j', async (schema, found) => {
    expect(unsupportedKeyword(schema)).toBe(found);
    // before the package is loaded
    const matcher = new Grammars('', tokenizer, VOCABULARY, [END]).matcher({ type: 'json_schema', schema });
    await expect(matcher).rejects.toMatchObject({
      code: 'invalid_argument',
      message: expect.stringContaining(found) as string,
    });
  });
  it.each([...known.supported, schema])('takes %j', (schema) => {
    expect(unsupportedKeyword(schema)).toBeUndefined();
  });
  it.each(known.simplified)('takes what libraries write: %j', async (schema, simple) => {
    expect(simplified(schema)).toEqual(simple);
    expect(unsupportedKeyword(simple)).toBeUndefined();
    expect((await run(1, { type: 'json_schema', schema }, 1)).tokenIds).toHaveLength(1);
  });
  it('writes the tag of a union, which pydantic leaves away where it is the default', async () => {
    const { items, $defs } = known.simplified[3]?.[0] as { items: object; $defs: object };
    const format: ResponseFormat = { type: 'json_schema', schema: { ...items, $defs } };
    const results = await Promise.all(Array.from({ length: 20 }, (_, seed) => run(seed, format, 300)));
    const values = results.filter((r) => r.finishReason === 'stop').map((r) => JSON.parse(r.text) as { kind: string });
    expect(values.length).toBeGreaterThan(0);
    for (const { kind } of values) expect(kind).toMatch(/^(cat|dog)$/);
  });
  it.each(['minimum', 'exclusiveMaximum'])('names %s of a number, which this package does not follow', (word) => {
    expect(unsupportedKeyword({ items: { type: ['null', 'number'], [word]: 1 } })).toBe(`#/items: ${word} of a number`);
  });
  it('names a bound of older schemas that is no number', () => {
    const schema = { type: 'integer', minimum: 0, exclusiveMinimum: true };
    expect(unsupportedKeyword(schema)).toBe('#: exclusiveMinimum true');
  });
  it('holds for values that begin alike and for bounds on one side', async () => {
    const schema = {
      type: 'object',
      properties: {
        kind: { enum: ['category', 'cat'] },
        high: { type: 'integer', minimum: 23 },
        low: { type: 'integer', exclusiveMaximum: -5 },
        word: { anyOf: [{ const: 'abc' }, { type: 'integer', exclusiveMinimum: 8.5, maximum: 10 }, { const: 'a' }] },
      },
      required: ['kind', 'high', 'low', 'word'],
    };
    for (let seed = 1; seed <= 40; ++seed) {
      const value = JSON.parse((await run(seed, { type: 'json_schema', schema }, 300)).text) as Record<string, number>;
      expect(['category', 'cat']).toContain(value.kind);
      expect(value.high).toBeGreaterThanOrEqual(23);
      expect(value.low).toBeLessThan(-5);
      expect(['abc', 'a', 9, 10]).toContain(value.word);
    }
  });
  it('refuses a schema that lies in itself', async () => {
    const schema: Record<string, unknown> = { type: 'object' };
    schema.properties = { self: schema };
    const matcher = new Grammars('', tokenizer, VOCABULARY, [END]).matcher({ type: 'json_schema', schema });
    await expect(matcher).rejects.toMatchObject({ code: 'invalid_argument' });
  });
});

describe('overflow', () => {
  it('stops, or slides with what is kept', () => {
    expect([slidingOf(undefined), slidingOf('stop')]).toEqual([undefined, undefined]);
    expect(slidingOf('sliding')).toEqual({ sinks: 4, keep: -1 });
    expect(slidingOf({ sinks: 0, keep: 100 })).toEqual({ sinks: 0, keep: 100 });
    for (const wrong of ['slide', 1, null, { keep: 0 }, { sinks: 1.5 }]) {
      expect(() => slidingOf(wrong as 'stop')).toThrow(/overflow/);
    }
  });
});
