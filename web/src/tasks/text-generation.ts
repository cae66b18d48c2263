/// <reference lib="esnext.disposable" preserve="true" />
import { makeError } from '../errors.js';
import type { Generation } from '../generation.js';
import type { Session } from '../session.js';
import type { GenerateOptions } from '../types.js';

/** Continues text as it is; for questions and answers see `Chat`. */
export class TextGenerator {
  /** @throws InvalidArgumentError for a model that generates no text. */
  constructor(
    readonly session: Session,
    private readonly defaults: GenerateOptions = {},
  ) {
    if (!session.info.canGenerate) throw makeError('invalid_argument', 'this model does not generate text');
  }

  continue(text: string, options: GenerateOptions = {}): Generation {
    return this.session.generate(text, { ...this.defaults, ...options });
  }

  dispose(): Promise<void> {
    return this.session.dispose();
  }
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}
