/// <reference lib="esnext.disposable" preserve="true" />
import { check, parseObject } from '../checks.js';
import { makeError } from '../errors.js';
import type { ImageInput, ImageSource } from '../image.js';
import type { Session } from '../session.js';
import type { Tensor } from '../tensor.js';

export interface Classification {
  label: string;
  /** Number of the class. */
  index: number;
  /** Probability, 0 to 1. */
  score: number;
}

/** Says what is on a picture, with a model folder that has `preprocess.json` and `labels.txt`. */
export class ImageClassifier {
  private readonly preprocess: Omit<ImageInput, 'image'>;
  private readonly labels: string[];

  /** @throws InvalidArgumentError for a model that is no classifier. */
  constructor(readonly session: Session) {
    const { files } = session.info;
    const settings = files['preprocess.json'];
    if (settings === undefined) {
      throw makeError('invalid_argument', 'this model is no image classifier: its folder has no preprocess.json');
    }
    this.preprocess = parseObject('preprocess.json', settings) as Omit<ImageInput, 'image'>;
    this.labels = (files['labels.txt'] ?? '').trimEnd().split('\n');
  }

  /** The `topK` (default 5, Infinity: all) most probable classes, best first. The picture stays yours. */
  async classify(
    image: ImageSource,
    { topK = 5, signal }: { topK?: number; signal?: AbortSignal } = {},
  ): Promise<Classification[]> {
    check((Number.isInteger(topK) || topK === Infinity) && topK > 0, 'topK', topK, 'whole number from 1');
    const [output] = await this.session.run([{ ...this.preprocess, image }], { ...(signal && { signal }) });
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
