// From a picture to what the model takes it for.
import { tensor, type Session, type Tensor } from 'executorch-webgpu';

/** preprocess.json of the model folder. */
interface Preprocess {
  /** Height and width of the input. */
  size: [number, number];
  /** Share of the picture's shorter side that the model sees, in the middle. */
  crop: number;
  mean: number[];
  std: number[];
}

export interface Guess {
  label: string;
  /** 0 to 1 */
  probability: number;
}

const SHOWN = 5;

export type Picture = ImageBitmap | HTMLCanvasElement | OffscreenCanvas;

/** The middle of the picture, scaled to the model's size, as [1, 3, height, width]. */
export function toTensor(picture: Picture, { size, crop, mean, std }: Preprocess): Tensor {
  const [height, width] = size;
  const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  if (!context) throw new Error('this browser gives no canvas');
  const side = Math.floor(Math.min(picture.width, picture.height) * crop);
  const left = (picture.width - side) >> 1;
  const top = (picture.height - side) >> 1;
  context.imageSmoothingQuality = 'high';
  context.drawImage(picture, left, top, side, side, 0, 0, width, height);
  const pixels = context.getImageData(0, 0, width, height).data;
  const plane = width * height;
  const data = new Float32Array(3 * plane);
  for (let c = 0; c < 3; ++c) {
    const [m, s] = [mean[c] ?? 0, std[c] ?? 1];
    for (let i = 0; i < plane; ++i) data[c * plane + i] = ((pixels[4 * i + c] ?? 0) - m) / s;
  }
  return tensor('f32', [1, 3, height, width], data);
}

/** Probabilities of all classes, as the model puts them out. */
export async function probabilities(session: Session, picture: Picture): Promise<Float32Array> {
  const settings = JSON.parse(session.info.files['preprocess.json'] ?? 'null') as Preprocess | null;
  if (!settings) throw new Error('the model folder has no preprocess.json');
  const [output] = await session.run([toTensor(picture, settings)]);
  return (output as Tensor).data as Float32Array;
}

/** The likeliest classes, best first. */
export function guesses(session: Session, all: Float32Array): Guess[] {
  const labels = (session.info.files['labels.txt'] ?? '').trimEnd().split('\n');
  return Array.from(all, (probability, i) => ({ probability, label: labels[i] ?? `class ${i}` }))
    .sort((a, b) => b.probability - a.probability)
    .slice(0, SHOWN);
}
