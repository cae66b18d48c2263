/// <reference lib="esnext.disposable" preserve="true" />
import { makeError } from '../errors.js';
import type { ImageSource } from '../image.js';
import type { Session } from '../session.js';
import type { Tensor } from '../tensor.js';

export interface Classification {
  label: string;
  /** Number of the class. */
  index: number;
  /** Probability, 0 to 1. */
  score: number;
}

interface Preprocess {
  size: [number, number];
  crop?: number;
  mean: number[];
  std: number[];
  layout?: 'NCHW' | 'NHWC';
}

/** Says what is on a picture, with a model folder that has `preprocess.json` and `labels.txt`. */
export class ImageClassifier {
  private readonly preprocess: Preprocess;
  private readonly labels: string[];

  /** @throws InvalidArgumentError for a model that is no classifier. */
  constructor(readonly session: Session) {
    const { files } = session.info;
    const settings = files['preprocess.json'];
    if (settings === undefined) {
      throw makeError('invalid_argument', 'this model is no image classifier: its folder has no preprocess.json');
    }
    this.preprocess = JSON.parse(settings) as Preprocess;
    this.labels = (files['labels.txt'] ?? '').trimEnd().split('\n');
  }

  /** The `topK` (default 5) most probable classes, best first. The picture stays yours. */
  async classify(
    image: ImageSource,
    { topK = 5, signal }: { topK?: number; signal?: AbortSignal } = {},
  ): Promise<Classification[]> {
    const { size, crop, mean, std, layout } = this.preprocess;
    const input = { image, size, mean, std, ...(crop !== undefined && { crop }), ...(layout && { layout }) };
    const [output] = await this.session.run([input], { ...(signal && { signal }) });
    const scores = (output as Tensor).data as Float32Array;
    return Array.from(scores, (score, index) => ({ label: this.labels[index] ?? `class ${index}`, index, score }))
      .sort((a, b) => b.score - a.score)
      .slice(0, topK);
  }

  dispose(): Promise<void> {
    return this.session.dispose();
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}
