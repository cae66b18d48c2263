import { describe, expect, it } from 'vitest';
import { InvalidArgumentError } from '../src/errors.js';
import { DTYPES, tensor, type DType, type Value } from '../src/tensor.js';
import { decodeValues, encodeValues } from '../src/worker/values.js';

describe('values', () => {
  it('come back as they went', () => {
    const values: Value[] = [
      tensor('f32', [2, 3], [1, -2, 3.5, NaN, Infinity, -0]),
      tensor('i64', [1], [-5]),
      tensor('bool', [3], Uint8Array.of(1, 0, 1)),
      7,
      -3,
      { float: 0.5 },
      true,
      tensor('f32', [0, 4], []),
      tensor('u8', [], [9]),
    ];
    const back = decodeValues(encodeValues(values));
    expect(back).toEqual(values.map((v) => (typeof v === 'object' && v && 'float' in v ? v.float : v)));
  });

  it('keeps every dtype', () => {
    for (const dtype of Object.keys(DTYPES) as DType[]) {
      const t = tensor(dtype, [3], [1, 0, 1]);
      expect(decodeValues(encodeValues([t]))).toEqual([t]);
    }
  });

  it('takes views into larger buffers', () => {
    const data = Float32Array.of(9, 1, 2, 9).subarray(1, 3);
    expect(decodeValues(encodeValues([{ dtype: 'f32', shape: [2], data }]))).toEqual([tensor('f32', [2], [1, 2])]);
  });

  it('refuses what no method takes', () => {
    for (const bad of ['text', 0.5, null, { dtype: 'q4', shape: [], data: new Uint8Array() }]) {
      expect(() => encodeValues([bad as Value])).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
    }
    expect(() => tensor('f32', [2, 2], [1])).toThrow(InvalidArgumentError);
    expect(() => tensor('f32', [-1, -4], [1, 2, 3, 4])).toThrow(InvalidArgumentError);
  });
});
