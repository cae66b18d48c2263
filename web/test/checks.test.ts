import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Channel } from '../src/channel.js';
import {
  ExecuTorchRuntime,
  InvalidArgumentError,
  NotAProgramError,
  Session,
  tensor,
  UnsupportedBrowserError,
  WorkerDiedError,
} from '../src/index.js';
import { ImageClassifier } from '../src/tasks/index.js';
import type { GenerateOptions, LoadOptions, SessionInfo } from '../src/types.js';

const modelUrl = 'https://models.example/m/';

describe('what callers pass', () => {
  const wrong: [unknown, RegExp][] = [
    [undefined, /takes options/],
    [{}, /which model/],
    [{ modelUrl: 'http://[' }, /modelUrl: 'http:\/\/\[' is no URL/],
    [{ model: 'http://[' }, /is no URL/],
    [{ modelUrl, model: modelUrl }, /model and modelUrl: which of them/],
    [{ modelUrl, device: 'cuda' }, /device: 'cuda' is none of auto, webgpu, wasm/],
    [{ modelUrl, precision: 'bf16' }, /precision: 'bf16' is none of/],
    [{ modelUrl, activations: 'int4' }, /activations/],
    [{ modelUrl, cache: 'bogus' }, /cache: 'bogus' is none of auto, none/],
    [{ modelUrl, debug: { wasmTier: 'bogus' } }, /debug.wasmTier/],
    [{ modelUrl, memoryCap: -1 }, /memoryCap: -1/],
    [{ modelUrl, memoryCap: NaN }, /memoryCap: NaN/],
    [{ modelUrl, memoryCap: '1GB' }, /memoryCap: '1GB' is no number of bytes/],
    [{ modelUrl, threads: 1000 }, /threads: 1000 is no count between 1 and 64/],
    [{ modelUrl, threads: 1.5 }, /threads: 1.5/],
    [{ modelUrl, tune: null }, /tune/],
    [{ modelUrl, signal: 5 }, /signal: 5 is no AbortSignal/],
    [{ modelUrl, onProgress: 5 }, /onProgress: 5 is no function/],
    [{ modelUrl, adapters: 5 }, /adapters: 5 is no list/],
    [{ modelUrl, adapters: [null] }, /adapters: give each a url or files/],
    [{ modelUrl, adapters: [5] }, /adapters: give each a url or files/],
    [{ modelUrl, device: {} }, /device: .* is no GPUDevice/],
    [{ modelUrl, device: {}, worker: false }, /device: .* is no GPUDevice/],
    [{ modelURL: modelUrl }, /loadModel: no option 'modelURL', but modelUrl/],
    [{ modelUrl, on_progress: 5 }, /no option 'on_progress', but onProgress/],
    [{ modelUrl, toString: 5 }, /no option 'toString'$/],
    [{ modelUrl, quantize: undefined, gpu: true }, /no option 'gpu'$/],
  ];
  for (const [options, message] of wrong) {
    it(`loadModel refuses ${JSON.stringify(options)}`, async () => {
      const error = await ExecuTorchRuntime.loadModel(options as LoadOptions).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(InvalidArgumentError);
      expect(String(error)).toMatch(message);
    });
  }
  describe('a loaded model', () => {
    const call = vi.fn(() => Promise.resolve({ sequence: 1, stateBytes: 0 }));
    const session = new Session({ call } as unknown as Channel, {} as SessionInfo, () => Promise.reject(new Error()));
    const slip = { max_tokens: 2 } as GenerateOptions;
    it('refuses names that are no options', async () => {
      expect(() => session.generate('a', slip)).toThrow(InvalidArgumentError);
      expect(() => session.generate('a', slip)).toThrow("generate: no option 'max_tokens', but maxTokens");
      expect(() => session.chat(slip)).toThrow("chat: no option 'max_tokens', but maxTokens");
      expect(() => session.chat(null as never)).toThrow(InvalidArgumentError);
      const chat = session.chat({ system: 'Be brief.', maxTokens: 2 });
      expect(() => chat.send('a', slip)).toThrow(InvalidArgumentError);
      expect(chat.messages).toHaveLength(1);
      expect(call).not.toHaveBeenCalled();
      const inherited = Object.create({ max_tokens: 2 }, { maxTokens: { value: 2, enumerable: true } }) as object;
      await session.generate('a', Object.assign(inherited, { maxtokens: undefined }) as GenerateOptions);
      expect(call).toHaveBeenCalledOnce();
    });
    it('refuses what a prompt or its options cannot be, and names it', async () => {
      call.mockClear();
      const circle: Record<string, unknown> = { type: 'object' };
      circle.properties = { circle };
      const user = { role: 'user', content: 'a' };
      const say = (content: unknown) => [user, { role: 'user', content }];
      const wrong: [prompt: unknown, options: unknown, message: RegExp][] = [
        ['a', { tools: 5 }, /^tools: 5 is no list/],
        ['a', { templateOptions: 'abc' }, /^templateOptions: 'abc' is no object/],
        ['a', { logprobs: 'no' }, /^logprobs: 'no' is no boolean/],
        ['a', { responseFormat: { type: 'json_schema', schema: circle } }, /^responseFormat: .*circular/],
        [say(5), {}, /^messages\[1\]\.content: 5 is no text/],
        [say(undefined), {}, /^messages\[1\]\.content: null is no text/],
        [say({ text: 'a' }), {}, /^messages\[1\]\.content: .* is no text/],
        [say([null]), {}, /^messages\[1\]\.content\[0\]\.type: null is none of text/],
        [
          say([{ type: 'text', text: 'a' }, { type: 'image_url' }]),
          {},
          /content\[1\]\.type: 'image_url' is none of text/,
        ],
        [say([{ type: 'text', text: 5 }]), {}, /content\[0\]\.text: 5 is no text/],
        [[user, { content: 'a' }], {}, /^messages\[1\]\.role: null is no text/],
        [[null], {}, /^messages\[0\]\.role/],
      ];
      for (const [prompt, options, message] of wrong) {
        expect(() => session.generate(prompt as string, options as GenerateOptions)).toThrow(InvalidArgumentError);
        expect(() => session.generate(prompt as string, options as GenerateOptions)).toThrow(message);
      }
      await expect(session.tokenize(say(5) as never)).rejects.toThrow('messages[1].content: 5 is no text');
      await expect(session.run(undefined as never)).rejects.toThrow('inputs: null is no list');
      expect(call).not.toHaveBeenCalled();
    });
    it('joins parts of text, and lets calls of tools stand alone', async () => {
      const parts = ['one ', 'two'].map((text) => ({ type: 'text', text }));
      const answer = { role: 'assistant', content: null, tool_calls: [{ name: 'f' }] };
      const given = [{ role: 'user', content: parts, name: 'x' }, answer];
      const asked = [
        { role: 'user', content: 'one two', name: 'x' },
        { ...answer, content: '' },
      ];
      call.mockClear();
      await session.generate(given);
      await session.tokenize(given);
      for (const args of call.mock.calls as unknown[][]) expect(args[1]).toMatchObject({ prompt: asked });
      expect(call).toHaveBeenCalledTimes(2);
      expect(given[0]?.content).toBe(parts);
    });
    it('refuses what holds no options', async () => {
      const none = null as never;
      const calls = [
        () => session.run([], none),
        () => session.newSequence(none),
        () => session.tokenize('a', none),
        () => session.saveState(none),
        () => session.restoreState(new Blob(), none),
        () => session.reset(none),
        () => session.setAdapterScale('a', 1, none),
        () => session.reload(none),
      ];
      for (const made of calls) await expect(made()).rejects.toBeInstanceOf(InvalidArgumentError);
    });
  });
  describe('a browser', () => {
    afterEach(() => vi.unstubAllGlobals());
    it('that refuses the worker of another origin is told what to do', async () => {
      const refused = function () {
        throw new DOMException('cannot be accessed from origin', 'SecurityError');
      };
      vi.stubGlobal('Worker', refused);
      vi.stubGlobal('location', { href: 'https://page.example/' });
      const workerUrl = 'https://cdn.example/worker.js';
      for (const [options, script] of [
        [{ modelUrl, workerUrl }, workerUrl] as const,
        [{ modelUrl }, 'src/worker.js'],
      ]) {
        const error = await ExecuTorchRuntime.loadModel(options as LoadOptions).catch((e: unknown) => e);
        expect(error).toBeInstanceOf(WorkerDiedError);
        for (const words of [script, "page's origin", 'workerUrl or worker: false', 'from origin']) {
          expect(String(error)).toContain(words);
        }
      }
    });
    it('without WebAssembly SIMD is too old', async () => {
      vi.stubGlobal('WebAssembly', { validate: () => false });
      await expect(ExecuTorchRuntime.loadModel({ modelUrl })).rejects.toBeInstanceOf(UnsupportedBrowserError);
    });
    it.each([
      [[], 'baseline'],
      [['subgroups'], 'baseline'],
      [['shader-f16'], 'f16'],
      [['shader-f16', 'subgroups'], 'subgroups'],
      [['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'], 'subgroup_matrix'],
    ])('with %j has the tier %s', async (features, tier) => {
      const adapter = { info: {}, features: new Set(features), limits: {} };
      vi.stubGlobal('isSecureContext', true);
      vi.stubGlobal('navigator', { gpu: { requestAdapter: () => Promise.resolve(adapter) } });
      expect((await ExecuTorchRuntime.capabilities()).webgpu).toMatchObject({ available: true, tier });
    });
  });
  it('a classifier gives at least one class, and names its damaged settings', async () => {
    const files = { 'preprocess.json': '{"size":[1,1]}', 'labels.txt': 'cat\ndog' };
    const run = vi.fn(() => Promise.resolve([tensor('f32', [1, 2], [0.25, 0.75])]));
    const session = { info: { files }, run } as unknown as Session;
    const classifier = new ImageClassifier(session);
    for (const topK of [-1, -Infinity, 0, 1.5, NaN, 'all']) {
      const classes = classifier.classify(new Blob(), { topK: topK as number });
      await expect(classes).rejects.toBeInstanceOf(InvalidArgumentError);
      await expect(classes).rejects.toThrow(/^topK: .* is no whole number from 1/);
    }
    expect(run).not.toHaveBeenCalled();
    expect(await classifier.classify(new Blob(), { topK: Infinity })).toHaveLength(2);
    expect((await classifier.classify(new Blob(), { topK: 1 })).map(({ label }) => label)).toEqual(['dog']);
    files['preprocess.json'] = '<!doctype html>';
    expect(() => new ImageClassifier(session)).toThrow(NotAProgramError);
    expect(() => new ImageClassifier(session)).toThrow(/^preprocess.json holds no JSON object: .*<!doctype/);
  });
  it('a tensor has a known dtype', () => {
    expect(() => tensor('f99' as 'f32', [1], [1])).toThrow(InvalidArgumentError);
  });
});
