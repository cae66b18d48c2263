// Pictures as inputs. They cross to the worker as they are (ImageBitmap, VideoFrame, Blob) and become a tensor there.
import { makeError } from './errors.js';
import type { GpuTensor, Value } from './tensor.js';

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
 * A picture as an input of `session.run`: cropped, scaled, and normalised to `(value - mean) / std` with values of 0 to
 * 255, in the order R, G, B: an f32 tensor [1, 3, height, width]. On the GPU where the model runs there.
 */
export interface ImageInput {
  image: ImageSource;
  /** Height and width. */
  size: readonly [number, number];
  /** Part of the shorter side that a centred square takes; without it the whole picture is stretched. */
  crop?: number;
  /** Instead of stretching: the whole picture in the middle, and this value (0 to 255) around it. */
  letterbox?: number;
  /** As Pillow's filter of that name does it, to the bit. Default: bilinear. */
  resample?: 'bilinear' | 'bicubic';
  mean?: readonly number[];
  std?: readonly number[];
  /** `NHWC`: [1, height, width, 3]. */
  layout?: 'NCHW' | 'NHWC';
  /** @internal Made on the way: to be closed where it becomes a tensor. */
  transient?: boolean;
}

export type Input = Value | GpuTensor | ImageInput;

export function isImageInput(value: Input): value is ImageInput {
  return typeof value === 'object' && value !== null && 'image' in value;
}

const CROSSING = ['ImageBitmap', 'VideoFrame', 'Blob', 'File', 'ImageData'];
export const kindOf = (value: unknown) => Object.prototype.toString.call(value).slice(8, -1);

/** On the page: elements become bitmaps, which are transferred; the rest crosses as it is and stays the caller's. */
export async function crossing(input: Input, transfer: Transferable[]): Promise<Input> {
  if (!isImageInput(input) || CROSSING.includes(kindOf(input.image))) return input;
  try {
    const image = await createImageBitmap(input.image);
    transfer.push(image);
    return { ...input, image, transient: true };
  } catch (error) {
    throw makeError('invalid_argument', `a ${kindOf(input.image)} is no picture: ${String(error)}`, { cause: error });
  }
}
