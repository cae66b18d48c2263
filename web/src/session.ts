// The page's view of a loaded model. The model itself lives in the worker behind the channel.
import type { Channel } from './channel.js';
import { makeError } from './errors.js';
import { Generation } from './generation.js';
import type { PlainGenerateOptions } from './protocol.js';
import type { Value } from './tensor.js';
import type { Counters, DeviceName, GenerateOptions, KernelTime, MemoryReport, Prompt, SessionInfo } from './types.js';

export class Session {
  /** Where the model runs. */
  readonly device: DeviceName;
  /** Why `device: 'auto'` did not take the GPU; undefined where it did or was not asked to. */
  readonly fallbackReason: string | undefined;

  /** @internal Use ExecuTorchRuntime.loadModel. */
  constructor(
    private readonly channel: Channel,
    readonly info: SessionInfo,
  ) {
    this.device = info.device;
    this.fallbackReason = info.fallbackReason;
  }

  /**
   * Runs a method (default: `forward`) and resolves to its outputs in order. Calls are queued, in order.
   * The inputs are copied: they are yours again at once.
   */
  run(inputs: Value[], method = 'forward'): Promise<Value[]> {
    return this.channel.call('run', { method, inputs });
  }

  /**
   * Generates text. `await` the result, or iterate: `for await (const piece of session.generate(…))`.
   * What the prompt shares with the conversation so far is not computed again.
   */
  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    const { signal, onToken, ...rest } = options;
    const plain: PlainGenerateOptions = rest;
    return new Generation(
      (add, stop) =>
        this.channel.call(
          'generate',
          { prompt, options: plain },
          {
            signal: stop,
            onEvent: (token) => {
              add(token);
              onToken?.(token);
            },
          },
        ),
      signal,
    );
  }

  /** The token ids that `generate` would run for this prompt. */
  tokenize(prompt: Prompt): Promise<number[]> {
    return this.channel.call('tokenize', { prompt });
  }

  /** Forgets the conversation: states are as after loading. */
  async reset(): Promise<void> {
    await this.channel.call('reset', {});
  }

  /** Bytes by purpose, as the runtime counts them. */
  memoryReport(): Promise<MemoryReport> {
    return this.channel.call('memory', {});
  }

  /** What is in the program: methods, delegates, operators, islands on the CPU, weights by scheme. */
  inspect(): Promise<unknown> {
    return this.channel.call('inspect', {});
  }

  /** Counters of the last run or generated token. */
  counters(): Promise<Counters> {
    return this.channel.call('counters', {});
  }

  /**
   * Times of the kernels of the last generated token, in order; generation is slower from the first call on, which
   * switches this on and is answered by an empty list. Where a GPU cannot measure, the list stays empty.
   */
  profile(): Promise<KernelTime[]> {
    return this.channel.call('profile', {});
  }

  /** @internal For tests: as if the driver had been reset. */
  async loseDevice(): Promise<void> {
    await this.channel.call('loseDevice', {});
  }

  /** Frees everything, after the calls that are queued. Later calls reject with DisposedError. */
  async dispose(): Promise<void> {
    await this.channel.call('dispose', {}).catch(() => undefined);
    this.channel.close(makeError('disposed', 'the session was disposed of'));
  }
}
