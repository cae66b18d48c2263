// Pictures as inputs. They cross to the worker as they are (ImageBitmap, VideoFrame, Blob) and become a tensor there.
import { makeError } from './errors.js';
import { tensor, type Tensor, type Value } from './tensor.js';

export type ImageSource =
  | ImageBitmap
  | VideoFrame
  | Blob
  | ImageData
  | HTMLImageElement
  | HTMLVideoElement
  | HTMLCanvasElement
  | OffscreenCanvas;

/**
 * A picture as an input of `session.run`: scaled by the browser (OffscreenCanvas, high quality) and normalised to
 * `(value - mean) / std` with values of 0 to 255, in the order R, G, B: an f32 tensor [1, 3, height, width].
 */
export interface ImageInput {
  image: ImageSource;
  /** Height and width. */
  size: readonly [number, number];
  /** Part of the shorter side that a centred square takes; without it the whole picture is stretched. */
  crop?: number;
  mean?: readonly number[];
  std?: readonly number[];
  /** `NHWC`: [1, height, width, 3]. */
  layout?: 'NCHW' | 'NHWC';
}

export type Input = Value | ImageInput;

export function isImageInput(value: Input): value is ImageInput {
  return typeof value === 'object' && value !== null && 'image' in value;
}

const CROSSING = ['ImageBitmap', 'VideoFrame', 'Blob', 'File', 'ImageData'];
const kindOf = (value: unknown) => Object.prototype.toString.call(value).slice(8, -1);

/** On the page: elements become bitmaps; the rest crosses as it is and stays the caller's. */
export async function crossing(input: Input): Promise<Input> {
  if (!isImageInput(input) || CROSSING.includes(kindOf(input.image))) return input;
  try {
    return { ...input, image: await createImageBitmap(input.image) };
  } catch (error) {
    throw makeError('invalid_argument', `a ${kindOf(input.image)} is no picture: ${String(error)}`, { cause: error });
  }
}

/** The middle square of a picture, or all of it: [left, top, width, height]. */
export function cropOf(width: number, height: number, crop: number | undefined): [number, number, number, number] {
  if (crop === undefined) return [0, 0, width, height];
  const side = Math.max(1, Math.floor(Math.min(width, height) * crop));
  return [(width - side) >> 1, (height - side) >> 1, side, side];
}

/** RGBA bytes as a normalised tensor. */
export function normalize(pixels: Uint8ClampedArray, input: Omit<ImageInput, 'image'>): Tensor {
  const { size, mean = [0, 0, 0], std = [255, 255, 255], layout = 'NCHW' } = input;
  const [height, width] = size;
  const count = width * height;
  const data = new Float32Array(3 * count);
  const [step, next] = layout === 'NCHW' ? [count, 1] : [1, 3];
  for (let c = 0; c < 3; ++c) {
    const [m, s] = [mean[c] ?? 0, std[c] ?? 1];
    for (let i = 0; i < count; ++i) data[c * step + i * next] = ((pixels[4 * i + c] as number) - m) / s;
  }
  return tensor('f32', layout === 'NCHW' ? [1, 3, height, width] : [1, height, width, 3], data);
}

/** In the worker. @throws InvalidArgumentError for what no browser can read. */
export async function toTensor(input: ImageInput): Promise<Tensor> {
  const { size, crop } = input;
  const [height, width] = size;
  if (!(Number.isInteger(height) && Number.isInteger(width) && height > 0 && width > 0)) {
    throw makeError('invalid_argument', `size: ${String(size)} is no height and width`);
  }
  let image = input.image as ImageBitmap | VideoFrame;
  const decode = !['ImageBitmap', 'VideoFrame'].includes(kindOf(image));
  if (decode) {
    try {
      image = await createImageBitmap(input.image);
    } catch (error) {
      throw makeError('invalid_argument', `this is no picture that the browser can read: ${String(error)}`);
    }
  }
  const [w, h] = 'displayWidth' in image ? [image.displayWidth, image.displayHeight] : [image.width, image.height];
  const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  if (!context) throw makeError('internal', 'this browser gives no canvas in a worker');
  context.imageSmoothingQuality = 'high';
  context.drawImage(image, ...cropOf(w, h, crop), 0, 0, width, height);
  if (decode) image.close();
  return normalize(context.getImageData(0, 0, width, height).data, input);
}
