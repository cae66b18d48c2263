import { describe, expect, it } from 'vitest';
import { InvalidArgumentError } from '../src/errors.js';
import { DTYPES, tensor, type DType, type GpuTensor, type OutputPlace, type Value } from '../src/tensor.js';
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

  it('names buffers of the GPU by their handles', () => {
    const buffer = { usage: 0x80, size: 1000 } as GPUBuffer;
    const handleOf = () => 7;
    const t: GpuTensor = { dtype: 'f16', shape: [2, 5], buffer, offset: 256 };
    const back = decodeValues(encodeValues([t], [], handleOf), (handle) => (handle === 7 ? buffer : (null as never)));
    expect(back).toEqual([{ ...t, size: 744 }]);
    // places are records without a shape: kind 7, and as data nothing, zeros, or handle, offset and room
    const places: OutputPlace[] = ['cpu', 'gpu', buffer, { buffer, offset: 512 }];
    const words = new Uint32Array(encodeValues([], places, handleOf).buffer);
    expect([words[0], words[3], words[4], words[7]]).toEqual([7, 0, 7, 24]);
    const doubles = [...new Float64Array(words.buffer)];
    expect(doubles.slice(4, 7)).toEqual([0, 0, 0]);
    expect(doubles.slice(9, 12)).toEqual([7, 0, 1000]);
    expect(doubles.slice(14)).toEqual([7, 512, 488]);
  });

  it('refuses typed arrays whose bits would be something else', () => {
    const views = [Float32Array, Int32Array, Uint16Array, Uint8Array, Int8Array, BigInt64Array];
    for (const [dtype, { view }] of Object.entries(DTYPES) as [DType, (typeof DTYPES)['u8']][]) {
      for (const other of views.filter((v) => v !== view)) {
        const data = new other(1);
        expect(() => tensor(dtype, [1], data)).toThrow(
          `a tensor of ${dtype} takes a ${view.name}, not a ${other.name}`,
        );
        const raw = { dtype, shape: [1], data } as Value;
        expect(() => encodeValues([raw])).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
      }
    }
    const pixels = Uint8ClampedArray.of(7) as unknown as Uint8Array;
    expect(tensor('u8', [1], pixels).data).toBe(pixels);
  });

  it('refuses buffers that no kernel could use', () => {
    const buffer = { usage: 0x80, size: 1000 } as GPUBuffer;
    const wrong: [OutputPlace, RegExp][] = [
      [{ usage: 0x4c, size: 8 } as GPUBuffer, /output 0 .*STORAGE/],
      [{ buffer: undefined as never }, /STORAGE/],
      [{ buffer, offset: 4 }, /offset 4 .*256/],
      [{ buffer, offset: NaN }, /offset NaN/],
      [{ buffer, offset: -256 }, /offset -256/],
    ];
    for (const [place, message] of wrong) {
      expect(() => encodeValues([], [place], () => 1)).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
      expect(() => encodeValues([], [place], () => 1)).toThrow(message);
    }
    const input: GpuTensor = { dtype: 'f32', shape: [1], buffer, offset: 8 };
    expect(() => encodeValues([0, input], [], () => 1)).toThrow(/input 1: its offset 8/);
  });

  it('refuses what no method takes', () => {
    for (const bad of ['text', 0.5, null, { dtype: 'q4', shape: [], data: new Uint8Array() }]) {
      expect(() => encodeValues([bad as Value])).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
    }
    const data = new Float32Array(2);
    for (const shape of [undefined, null, '2', ['2'], [NaN], [1.5], [-2], [2n]] as number[][]) {
      const raw = { dtype: 'f32', shape, data } as const;
      expect(() => encodeValues([0, raw])).toThrow(InvalidArgumentError);
      expect(() => encodeValues([0, raw])).toThrow(/^input 1: shape: .* is no list of whole numbers from 0/);
      expect(() => tensor('f32', shape, data)).toThrow(InvalidArgumentError);
    }
    expect(() => tensor('f32', [2, 2], [1])).toThrow(InvalidArgumentError);
    expect(() => tensor('f32', [-1, -4], [1, 2, 3, 4])).toThrow(InvalidArgumentError);
  });
});
