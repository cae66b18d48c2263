import { afterEach, describe, expect, it, vi } from 'vitest';
import type { Channel } from '../src/channel.js';
import {
  ExecuTorchRuntime,
  InvalidArgumentError,
  Session,
  tensor,
  UnsupportedBrowserError,
  WorkerDiedError,
} from '../src/index.js';
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
    [{ modelUrl, memoryCap: '1GB' }, /memoryCap: 1GB/],
    [{ modelUrl, threads: 1000 }, /threads: 1000 is no count between 1 and 64/],
    [{ modelUrl, threads: 1.5 }, /threads: 1.5/],
    [{ modelUrl, tune: null }, /tune/],
    [{ modelUrl, signal: 5 }, /signal: 5 is no AbortSignal/],
    [{ modelUrl, onProgress: 5 }, /onProgress: 5 is no function/],
    [{ modelUrl, adapters: 5 }, /adapters: a number is no list/],
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
  it('a tensor has a known dtype', () => {
    expect(() => tensor('f99' as 'f32', [1], [1])).toThrow(InvalidArgumentError);
  });
});
