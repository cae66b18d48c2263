import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { fitOf, normalize, resample, type Rect, type Resampling } from '../src/worker/picture.js';

/** R, G, B of pixels that are anything. */
function noise(width: number, height: number): Uint8Array {
  let seed = width * 7919 + height;
  return Uint8Array.from({ length: 3 * width * height }, () => (seed = (seed * 48271) % 2147483647) >> 8);
}

const SIZES = [
  [300, 200, 112, 112],
  [37, 91, 20, 64],
  [10, 7, 33, 21],
  [50, 50, 50, 50],
  [1, 1, 5, 3],
  [900, 50, 8, 7],
] as const;
const FILTERS: Resampling[] = ['bilinear', 'bicubic'];
const PILLOW = `
import sys
from PIL import Image
for case in sys.argv[1:]:
    w, h, tw, th, how = case.split(",")
    size = int(w), int(h)
    picture = Image.frombytes("RGB", size, sys.stdin.buffer.read(3 * size[0] * size[1]))
    sys.stdout.buffer.write(picture.resize((int(tw), int(th)), Image.Resampling[how.upper()]).tobytes())
`;

describe('pictures', () => {
  it('are scaled as Pillow scales them, to the bit', () => {
    const cases = SIZES.flatMap((size) => FILTERS.map((how) => ({ size, how })));
    const input = Buffer.concat(cases.map(({ size: [w, h] }) => noise(w, h)));
    const args = ['-c', PILLOW, ...cases.map(({ size, how }) => `${size.join()},${how}`)];
    const expected = execFileSync('python', args, { input, maxBuffer: 2 ** 26 });
    let at = 0;
    for (const { size, how } of cases) {
      const [w, h, tw, th] = size;
      const rgb = noise(w, h);
      const rgba = Uint8ClampedArray.from({ length: 4 * w * h }, (_, i) =>
        i % 4 < 3 ? (rgb[3 * (i >> 2) + (i % 4)] as number) : 255,
      );
      const rows = (top: number, count: number) => rgba.subarray(4 * top * w, 4 * (top + count) * w);
      const got = resample(rows, [0, 0, w, h], [0, 0, tw, th], how);
      expect(Buffer.compare(Buffer.from(got), expected.subarray(at, at + got.length)), `${size.join()} ${how}`).toBe(0);
      at += got.length;
    }
    expect(at).toBe(expected.length);
  }, 60_000); // Python starts, on a machine that may be busy

  it('are cropped in the middle, stretched, or put in the middle', () => {
    const size = [10, 20] as const;
    expect(fitOf(100, 50, { size, crop: 0.5 })).toEqual({ source: [37, 12, 25, 25], target: [0, 0, 20, 10] });
    expect(fitOf(100, 50, { size })).toEqual({ source: [0, 0, 100, 50], target: [0, 0, 20, 10] });
    expect(fitOf(50, 50, { size, letterbox: 0 })).toEqual({ source: [0, 0, 50, 50], target: [5, 0, 10, 10] });
    expect(fitOf(100, 1, { size, letterbox: 0 })).toEqual({ source: [0, 0, 100, 1], target: [0, 4, 20, 1] });
    expect(fitOf(9, 9, { size, crop: 1, mean: [0, 0, 0], std: [1, -1, 0.5] }).source).toEqual([0, 0, 9, 9]);
  });

  it('refuse settings that are none, and name them', () => {
    const wrong: object[] = [
      ...[undefined, 5, [0, 1], [1.5, 1], [1], ['1', '1']].map((size) => ({ size })),
      ...['lanczos', 'toString'].map((resample) => ({ resample })),
      ...[0, -0.5, NaN, 1.5, '1'].map((crop) => ({ crop })),
      ...[[0, 0], 5, ['0', '0', '0'], [0, 0, NaN]].map((mean) => ({ mean })),
      ...[
        [1, 1, 0],
        [1, 1],
        [1, 1, Infinity],
      ].map((std) => ({ std })),
      { layout: 'nhwc' },
    ];
    for (const settings of wrong) {
      const [name = ''] = Object.keys(settings);
      const fit = () => fitOf(1, 1, { size: [1, 1], ...settings });
      expect(fit, JSON.stringify(settings)).toThrow(expect.objectContaining({ code: 'invalid_argument' }));
      expect(fit).toThrow(new RegExp(`^${name}: `));
    }
  });

  it('are normalised by channel, in either layout, with padding around', () => {
    const pixels = Uint8ClampedArray.of(0, 10, 20, 100, 110, 120);
    const input = { size: [1, 2] as const, mean: [0, 10, 20], std: [1, 10, 100] };
    const whole: Rect = [0, 0, 2, 1];
    expect(normalize(pixels, whole, input)).toEqual({
      dtype: 'f32',
      shape: [1, 3, 1, 2],
      data: Float32Array.of(0, 100, 0, 10, 0, 1),
    });
    expect(normalize(pixels, whole, { ...input, layout: 'NHWC' })).toMatchObject({
      shape: [1, 1, 2, 3],
      data: Float32Array.of(0, 0, 0, 100, 10, 1),
    });
    const padded = normalize(pixels.subarray(3), [1, 0, 1, 1], { ...input, size: [2, 2], letterbox: 110 });
    expect(padded.data.subarray(0, 4)).toEqual(Float32Array.of(110, 100, 110, 110));
  });
});
