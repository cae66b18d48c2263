import { describe, expect, it } from 'vitest';
import { ExecuTorchRuntime, InvalidArgumentError, tensor } from '../src/index.js';
import type { LoadOptions } from '../src/types.js';

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
  ];
  for (const [options, message] of wrong) {
    it(`loadModel refuses ${JSON.stringify(options)}`, async () => {
      const error = await ExecuTorchRuntime.loadModel(options as LoadOptions).catch((e: unknown) => e);
      expect(error).toBeInstanceOf(InvalidArgumentError);
      expect(String(error)).toMatch(message);
    });
  }
  it('a tensor has a known dtype', () => {
    expect(() => tensor('f99' as 'f32', [1], [1])).toThrow(InvalidArgumentError);
  });
});
