import type { GeneratedToken, GenerateResult } from './types.js';

/**
 * A generation under way: `await` it for the result, or iterate over it for pieces of text. Iteration ends after the last
 * piece; an error rejects both. Each loop gets all pieces. Leaving a `for await` loop early stops the generation.
 */
export class Generation implements PromiseLike<GenerateResult>, AsyncIterable<string> {
  private readonly pieces: string[] = [];
  /** of each loop that waits for the next piece */
  private readonly waiting: (() => void)[] = [];
  private done = false;
  private readonly result: Promise<GenerateResult>;
  private readonly controller = new AbortController();

  /** `start` begins it, with the token callback and a signal for it. */
  constructor(
    start: (onToken: (token: GeneratedToken) => void, signal: AbortSignal) => Promise<GenerateResult>,
    signal?: AbortSignal,
  ) {
    const onAbort = () => this.controller.abort(signal?.reason);
    if (signal?.aborted) onAbort();
    signal?.addEventListener('abort', onAbort);
    this.result = start((token) => this.add(token.text), this.controller.signal).finally(() => {
      signal?.removeEventListener('abort', onAbort);
      this.done = true;
      this.wake();
    });
    // whoever only iterates sees the error there; without this it would also count as unhandled
    this.result.catch(() => undefined);
  }

  then<A = GenerateResult, B = never>(
    onFulfilled?: ((value: GenerateResult) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.result.then(onFulfilled, onRejected);
  }
  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<GenerateResult | B> {
    return this.result.catch(onRejected);
  }
  finally(onFinally?: (() => void) | null): Promise<GenerateResult> {
    return this.result.finally(onFinally);
  }

  /** Ends it after the step under way. */
  stop(): void {
    this.controller.abort();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    let next = 0;
    try {
      for (;;) {
        while (next < this.pieces.length) yield this.pieces[next++] as string;
        if (this.done) break;
        await new Promise<void>((resolve) => this.waiting.push(resolve));
      }
      await this.result;
    } finally {
      if (!this.done) this.stop();
    }
  }

  private add(text: string): void {
    if (text) this.pieces.push(text);
    this.wake();
  }
  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}
