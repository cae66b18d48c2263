import { describe, expect, it } from 'vitest';
import type { Capabilities, Manifest } from '../src/types.js';
import { chooseVariant, memoryBudget } from '../src/worker/variants.js';

const manifest: Manifest = {
  format: 1,
  name: 'm',
  task: 'text-generation',
  files: [
    { path: 'large.pte', size: 3e9 },
    { path: 'half.pte', size: 2e9 },
    { path: 'small.pte', size: 1e9 },
    { path: 'small.ptd', size: 2e8 },
  ],
  variants: [
    { name: 'int8', program: 'large.pte', limits: { maxStorageBufferBindingSize: 1e9 } },
    { name: 'f16', program: 'half.pte', dtype: 'f16' },
    { name: 'int4', program: 'small.pte', data: 'small.ptd' },
  ],
};
const gpu = (features: string[], binding: number) => () =>
  Promise.resolve({
    webgpu: { available: true, features, limits: { maxStorageBufferBindingSize: binding } },
  } as unknown as Capabilities);
const auto = { device: 'auto' as const };
const never = () => Promise.reject(new Error('must not be asked'));

describe('chooseVariant', () => {
  it('takes the first that suits and says what was wrong with those before', async () => {
    const best = await chooseVariant(manifest, auto, gpu(['shader-f16'], 2e9), Infinity);
    expect([best?.variant.name, best?.reason]).toEqual(['int8', 'it is the first choice']);
    const second = await chooseVariant(manifest, auto, gpu(['shader-f16'], 128e6), Infinity);
    expect(second?.variant.name).toBe('f16');
    expect(second?.reason).toMatch(/int8 needs maxStorageBufferBindingSize 1000000000, this GPU has 128000000/);
    const third = await chooseVariant(manifest, auto, gpu([], 128e6), Infinity);
    expect(third?.variant.name).toBe('int4');
    expect(third?.reason).toMatch(/f16 computes in f16, this GPU does not/);
  });
  it('looks at the memory, of weights beside the program too', async () => {
    const tight = await chooseVariant(manifest, auto, gpu(['shader-f16'], 2e9), 1.3e9);
    expect(tight?.variant.name).toBe('int4');
    const none = await chooseVariant(manifest, auto, gpu(['shader-f16'], 2e9), 1.1e9);
    expect([none?.variant.name, none?.reason]).toEqual([
      'int4',
      expect.stringMatching(/smallest.*int4 takes 1\.20 GB/),
    ]);
  });
  it('asks for no GPU where none is wanted or there is no choice', async () => {
    expect((await chooseVariant(manifest, { device: 'wasm' }, never, Infinity))?.variant.name).toBe('int8');
    const single = { ...manifest, variants: manifest.variants.slice(1, 2) };
    expect((await chooseVariant(single, auto, never, 1))?.variant.name).toBe('f16');
    expect((await chooseVariant(manifest, { ...auto, variant: 'int4' }, never, 1))?.variant.name).toBe('int4');
    await expect(chooseVariant(manifest, { ...auto, variant: 'q2' }, never)).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });
});

describe('memoryBudget', () => {
  it('is a part of what there is, and no limit where nobody can tell', () => {
    expect(memoryBudget({ deviceMemory: 8 })).toBe(Infinity);
    expect(memoryBudget({ deviceMemory: 2 })).toBe(0.7e9);
    expect(memoryBudget({ userAgentData: { mobile: true } })).toBe(1.4e9);
    expect(memoryBudget({ deviceMemory: 8, userAgentData: { mobile: true } })).toBe(2.8e9);
  });
});
