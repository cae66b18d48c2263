// 16-bit floating-point numbers as bits: IEEE 754 binary16 and bfloat16. Not every browser has Float16Array.

const float = new Float32Array(1);
const word = new Uint32Array(float.buffer);

const bitsOf = (x: number): number => {
  float[0] = x;
  return word[0] as number;
};
const floatOf = (bits: number): number => {
  word[0] = bits;
  return float[0] as number;
};

/** Rounds to nearest, ties to even. */
export function toF16(x: number): number {
  const bits = bitsOf(x);
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00; // NaN
  if (magnitude >= 0x477ff000) return sign | 0x7c00; // rounds to 65536 or more
  if (magnitude < 0x38800000) {
    // subnormal: in units of 2^-24, which rounding to a whole number does right
    return sign | roundEven(floatOf(magnitude) * 2 ** 24);
  }
  const rounded = magnitude + 0xfff + ((magnitude >>> 13) & 1);
  return sign | ((rounded - 0x38000000) >>> 13);
}

function roundEven(x: number): number {
  const below = Math.floor(x);
  const rest = x - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}

export function fromF16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Rounds to nearest, ties to even. */
export function toBf16(x: number): number {
  const bits = bitsOf(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

export const fromBf16 = (bits: number): number => floatOf((bits << 16) >>> 0);
