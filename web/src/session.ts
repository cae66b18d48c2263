/// <reference lib="esnext.disposable" preserve="true" />
// The page's view of a loaded model. The model itself lives in the worker behind the channel.
import type { Channel } from './channel.js';
import { makeError } from './errors.js';
import { Generation } from './generation.js';
import { crossing, type Input } from './image.js';
import type { PlainGenerateOptions } from './protocol.js';
import { Chat, type ChatOptions } from './tasks/chat.js';
import type { Value } from './tensor.js';
import type { Counters, DeviceName, GenerateOptions, KernelTime, MemoryReport, Prompt, SessionInfo } from './types.js';

/** Loads the same model once more. */
export type Reload = (signal: AbortSignal | undefined) => Promise<{ channel: Channel; info: SessionInfo }>;

export interface RunOptions {
  /** Default: `forward`. */
  method?: string;
  /** A run that waits for its turn is dropped; one under way ends first. Either rejects with CancelledError. */
  signal?: AbortSignal;
}

export class Session {
  private readonly scales = new Map<string, number>(); // of adapters, where they are not those of the load
  /** @internal Use ExecuTorchRuntime.loadModel. */
  constructor(
    private channel: Channel,
    private loaded: SessionInfo,
    private readonly loadAgain: Reload,
  ) {}

  get info(): SessionInfo {
    return this.loaded;
  }
  /** Where the model runs. */
  get device(): DeviceName {
    return this.loaded.device;
  }
  /** Why `device: 'auto'` did not take the GPU; undefined where it did or was not asked to. */
  get fallbackReason(): string | undefined {
    return this.loaded.fallbackReason;
  }

  /**
   * Runs a method and resolves to its outputs in order. Calls are queued, in order. The inputs are copied, pictures
   * included: they are yours again at once.
   */
  async run(inputs: readonly Input[], options: RunOptions | string = {}): Promise<Value[]> {
    const { method = 'forward', signal } = typeof options === 'string' ? { method: options } : options;
    const crossed = inputs.some((input) => typeof input === 'object' && input !== null && 'image' in input)
      ? await Promise.all(inputs.map(crossing))
      : [...inputs];
    return this.channel.call('run', { method, inputs: crossed }, { signal });
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

  /** A conversation that keeps its messages: `await chat.send('…')`. */
  chat(options: ChatOptions = {}): Chat {
    return new Chat(this, options);
  }

  /** The token ids that `generate` would run for this prompt. */
  tokenize(prompt: Prompt): Promise<number[]> {
    return this.channel.call('tokenize', { prompt });
  }

  /**
   * The conversation as the model has computed it: the tokens in the cache and the part of the states that they fill.
   * A Blob can be kept, such as in a file of the origin private file system, and restored in another visit.
   */
  saveState(): Promise<Blob> {
    return this.channel.call('saveState', {});
  }

  /**
   * Goes on from what `saveState` gave: a prompt that begins with its tokens runs its new ones only. The messages are
   * yours to keep.
   * @throws SavedStateError, with nothing changed, where it is damaged, of another model or of another precision.
   */
  async restoreState(saved: Blob | FileSystemFileHandle): Promise<void> {
    const blob = saved instanceof Blob ? saved : await saved.getFile();
    await this.channel.call('restoreState', { saved: blob });
  }

  /** Forgets the conversation: states are as after loading. */
  async reset(): Promise<void> {
    await this.channel.call('reset', {});
  }

  /**
   * What a LoRA adapter of `loadModel` counts from the next call on: 1 as trained, 0 off. The conversation, which was
   * computed with another scale, is forgotten.
   * @throws InvalidArgumentError for an unknown name.
   */
  async setAdapterScale(name: string, scale: number): Promise<void> {
    await this.channel.call('adapterScale', { name, scale });
    this.scales.set(name, scale);
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

  /**
   * Loads the model again, after DeviceLostError or WorkerDiedError: from the cache, if it is there. What was computed of
   * a conversation is gone, its messages are yours. Calls under way reject with DisposedError.
   * @throws like loadModel; the session can then be reloaded once more.
   */
  async reload({ signal }: { signal?: AbortSignal } = {}): Promise<void> {
    this.channel.close(makeError('disposed', 'the session is being reloaded'));
    ({ channel: this.channel, info: this.loaded } = await this.loadAgain(signal));
    for (const [name, scale] of this.scales) await this.channel.call('adapterScale', { name, scale });
  }

  /** Frees everything, after the calls that are queued. Later calls reject with DisposedError. */
  async dispose(): Promise<void> {
    await this.channel.call('dispose', {}).catch(() => undefined);
    this.channel.close(makeError('disposed', 'the session was disposed of'));
  }
  /** For `await using session = …`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}
