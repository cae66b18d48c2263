// Pictures as tensors, to the bit as Pillow resamples them: two passes of 8-bit values in fixed point, across and then
// down. Here on the CPU; picture_gpu.ts does the same sums with the same weights.
import { check, checkOneOf } from '../checks.js';
import { makeError } from '../errors.js';
import { kindOf, type ImageInput } from '../image.js';
import type { PictureStages } from './picture_gpu.js';
import { tensor, type GpuTensor, type Tensor } from '../tensor.js';

export type Resampling = NonNullable<ImageInput['resample']>;
/** left, top, width, height */
export type Rect = [number, number, number, number];
/** Which part of a picture goes where in the tensor; around it is padding. */
export interface Fit {
  source: Rect;
  target: Rect;
}

/** Of Pillow: how far a filter reaches, and its value there (a = -0.5). */
const FILTERS: Record<Resampling, { reach: number; at: (x: number) => number }> = {
  bilinear: { reach: 1, at: (x) => Math.max(0, 1 - x) },
  bicubic: {
    reach: 2,
    at: (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * -0.5 : 0),
  },
};
/** Of a weight, behind the point. */
export const BITS = 22;

/**
 * For each of `wanted` pixels out of `size`: the first that counts, how many, and their weights; `stride` words a pixel.
 */
export function tapsOf(
  size: number,
  wanted: number,
  resample: Resampling,
): { stride: number; words: Int32Array<ArrayBuffer> } {
  const { reach, at } = FILTERS[resample];
  const scale = size / wanted;
  const stretch = Math.max(scale, 1); // smaller: all pixels count
  const radius = reach * stretch;
  const stride = Math.ceil(radius) * 2 + 3;
  const words = new Int32Array(stride * wanted);
  for (let i = 0; i < wanted; ++i) {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - radius + 0.5));
    const count = Math.min(size, Math.trunc(centre + radius + 0.5)) - first;
    const weights = Array.from({ length: count }, (_, k) => at(Math.abs((k + first - centre + 0.5) * (1 / stretch))));
    const sum = weights.reduce((a, b) => a + b, 0);
    const fixed = weights.map((w) => (w / sum) * 2 ** BITS).map((w) => Math.trunc(w + (w < 0 ? -0.5 : 0.5)));
    words.set([first, count, ...fixed], i * stride);
  }
  return { stride, words };
}

const areNumbers = (list: unknown, count: number): boolean =>
  Array.isArray(list) && list.length === count && list.every(Number.isFinite);

/** @throws InvalidArgumentError for settings that are none. */
export function fitOf(width: number, height: number, input: Omit<ImageInput, 'image'>): Fit {
  const { size, crop, letterbox, mean, std } = input;
  checkOneOf('resample', input.resample, Object.keys(FILTERS));
  checkOneOf('layout', input.layout, ['NCHW', 'NHWC']);
  check(areNumbers(size, 2) && size.every((n) => n % 1 === 0 && n > 0), 'size', size ?? null, 'height and width');
  check(typeof crop === 'number' && crop > 0 && crop <= 1, 'crop', crop, 'part of a side, up to 1');
  check(areNumbers(mean, 3), 'mean', mean, 'list of 3 numbers');
  check(areNumbers(std, 3) && !std!.includes(0), 'std', std, 'list of 3 numbers other than 0');
  const [h, w] = size;
  if (crop !== undefined) {
    const side = Math.max(1, Math.floor(Math.min(width, height) * crop));
    return { source: [(width - side) >> 1, (height - side) >> 1, side, side], target: [0, 0, w, h] };
  }
  const source: Rect = [0, 0, width, height];
  if (letterbox === undefined) return { source, target: [0, 0, w, h] };
  const scale = Math.min(w / width, h / height);
  const [tw, th] = [width, height].map((n) => Math.max(1, Math.round(n * scale))) as [number, number];
  return { source, target: [(w - tw) >> 1, (h - th) >> 1, tw, th] };
}

/** RGBA of some rows of the source. */
export type Rows = (top: number, count: number) => Uint8ClampedArray;

/** R, G, B of a source of this width and height as `tw` x `th` pixels. */
export function resample(rows: Rows, [, , w, h]: Rect, [, , tw, th]: Rect, how: Resampling): Uint8ClampedArray {
  const across = tapsOf(w, tw, how);
  const down = tapsOf(h, th, how);
  const most = Math.max(1, Math.floor(2 ** 22 / w)); // 16 MiB at a time
  const half = 2 ** (BITS - 1);
  const middle = new Uint8ClampedArray(3 * tw * h);
  for (let top = 0; top < h; top += most) {
    const count = Math.min(most, h - top);
    const pixels = rows(top, count);
    for (let y = 0; y < count; ++y) {
      for (let x = 0; x < tw; ++x) {
        const [at, n] = [x * across.stride, across.words[x * across.stride + 1] as number];
        let p = 4 * (y * w + (across.words[at] as number));
        let [r, g, b] = [half, half, half];
        for (let k = at + 2; k < at + 2 + n; ++k, p += 4) {
          const weight = across.words[k] as number;
          r += weight * (pixels[p] as number);
          g += weight * (pixels[p + 1] as number);
          b += weight * (pixels[p + 2] as number);
        }
        const to = 3 * ((top + y) * tw + x);
        middle[to] = r >> BITS;
        middle[to + 1] = g >> BITS;
        middle[to + 2] = b >> BITS;
      }
    }
  }
  const line = 3 * tw;
  const out = new Uint8ClampedArray(line * th);
  for (let y = 0; y < th; ++y) {
    const at = y * down.stride;
    const [first, n] = [down.words[at] as number, down.words[at + 1] as number];
    for (let i = 0; i < line; ++i) {
      let sum = half;
      for (let k = 0; k < n; ++k)
        sum += (down.words[at + 2 + k] as number) * (middle[(first + k) * line + i] as number);
      out[y * line + i] = sum >> BITS;
    }
  }
  return out;
}

/** R, G, B of the target as a normalised tensor. */
export function normalize(
  pixels: Uint8ClampedArray,
  [left, top, tw, th]: Rect,
  input: Omit<ImageInput, 'image'>,
): Tensor {
  const { size, mean = [0, 0, 0], std = [255, 255, 255], layout = 'NCHW', letterbox = 0 } = input;
  const [height, width] = size;
  const count = width * height;
  const data = new Float32Array(3 * count);
  const [step, next] = layout === 'NCHW' ? [count, 1] : [1, 3];
  for (let c = 0; c < 3; ++c) {
    const [m, s] = [mean[c] ?? 0, std[c] ?? 1];
    if (tw * th < count) for (let i = 0; i < count; ++i) data[c * step + i * next] = (letterbox - m) / s;
    for (let i = 0; i < tw * th; ++i) {
      const to = (top + Math.floor(i / tw)) * width + left + (i % tw);
      data[c * step + to * next] = ((pixels[3 * i + c] as number) - m) / s;
    }
  }
  return tensor('f32', shapeOf(input), data);
}

export function shapeOf({ size: [height, width], layout }: Omit<ImageInput, 'image'>): number[] {
  return layout === 'NHWC' ? [1, height, width, 3] : [1, 3, height, width];
}

/** In the worker, for input number `index`. @throws InvalidArgumentError for what no browser can read. */
export async function toTensor(
  input: ImageInput,
  index: number,
  onGpu: PictureStages | undefined,
): Promise<Tensor | GpuTensor> {
  let image = input.image as ImageBitmap | VideoFrame;
  let ours = input.transient === true;
  if (!['ImageBitmap', 'VideoFrame'].includes(kindOf(image))) {
    try {
      image = await createImageBitmap(input.image);
    } catch (error) {
      throw makeError('invalid_argument', `this is no picture that the browser can read: ${String(error)}`);
    }
    ours = true;
  }
  const [width, height] =
    'displayWidth' in image ? [image.displayWidth, image.displayHeight] : [image.width, image.height];
  try {
    const fit = fitOf(width, height, input);
    return (await onGpu?.put(index, image, fit, input)) ?? draw(image, fit, input);
  } finally {
    if (ours) image.close();
  }
}

function draw(image: ImageBitmap | VideoFrame, { source, target }: Fit, input: ImageInput): Tensor {
  const [left, top, w] = source;
  let context: OffscreenCanvasRenderingContext2D | null = null;
  const rows: Rows = (from, count) => {
    if (context?.canvas.height !== count)
      context = new OffscreenCanvas(w, count).getContext('2d', { willReadFrequently: true });
    if (!context) throw makeError('internal', 'this browser gives no canvas in a worker');
    context.clearRect(0, 0, w, count);
    context.drawImage(image, left, top + from, w, count, 0, 0, w, count);
    return context.getImageData(0, 0, w, count).data;
  };
  return normalize(resample(rows, source, target, input.resample ?? 'bilinear'), target, input);
}
