import { describe, expect, it } from 'vitest';
import { fromBf16, fromF16, toBf16, toF16 } from '../src/half.js';
import { tensor, toNumbers } from '../src/tensor.js';

describe('f16', () => {
  it('keeps every half', () => {
    for (let bits = 0; bits < 0x10000; ++bits) {
      const x = fromF16(bits);
      if (Number.isNaN(x)) expect(fromF16(toF16(x))).toBeNaN();
      else expect(toF16(x)).toBe(bits);
    }
  });
  it('rounds to the nearest, ties to even', () => {
    // every midpoint between two neighbours, and a little beside it
    for (let bits = 0; bits < 0x7bff; bits += 7) {
      const [a, b] = [fromF16(bits), fromF16(bits + 1)];
      const middle = (a + b) / 2;
      expect(toF16(middle)).toBe(bits % 2 === 0 ? bits : bits + 1);
      expect(toF16(middle * (1 - 1e-6))).toBe(bits);
      expect(toF16(-middle * (1 + 1e-6))).toBe((bits + 1) | 0x8000);
    }
    expect([65504, 65519, 65520, 1e9, -1e9].map(toF16)).toEqual([0x7bff, 0x7bff, 0x7c00, 0x7c00, 0xfc00]);
  });
});

describe('bf16', () => {
  it('keeps every value and rounds ties to even', () => {
    for (let bits = 0; bits < 0x10000; ++bits) {
      const x = fromBf16(bits);
      if (Number.isNaN(x)) expect(fromBf16(toBf16(x))).toBeNaN();
      else expect(toBf16(x)).toBe(bits);
    }
    expect(toBf16(1 + 2 ** -8)).toBe(0x3f80);
    expect(toBf16(1 + 3 * 2 ** -8)).toBe(0x3f82);
  });
});

describe('tensor', () => {
  it('makes elements of the dtype out of numbers, and numbers of them', () => {
    for (const dtype of ['f16', 'bf16', 'f32', 'i64', 'i8'] as const) {
      expect(toNumbers(tensor(dtype, [3], [1, -2, 3]))).toEqual([1, -2, 3]);
    }
    expect(tensor('f16', [1], [1]).data).toEqual(Uint16Array.of(0x3c00));
    expect(() => tensor('f32', [2, 2], [1])).toThrow(/4 elements, not 1/);
  });
});
