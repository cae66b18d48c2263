/// <reference lib="esnext.disposable" preserve="true" />
// The page's view of a loaded model. The model itself lives in the worker behind the channel.
import type { Channel } from './channel.js';
import { check, checkSignal, promptOf, signalOf } from './checks.js';
import { makeError, throwIfAborted } from './errors.js';
import { crossing, isImageInput, type Input } from './image.js';
import { Conversation, Sequence } from './sequence.js';
import { isGpuTensor, type GpuTensor, type OutputPlace, type Value } from './tensor.js';
import type { CallOptions, Counters, DeviceName, KernelTime, MemoryReport, Prompt, SessionInfo } from './types.js';

/** Loads the same model once more. */
export type Reload = (signal: AbortSignal | undefined) => Promise<{ channel: Channel; info: SessionInfo }>;

export interface RunOptions extends CallOptions {
  /** Default: `forward`. */
  method?: string;
}

export interface GpuRunOptions extends RunOptions {
  /** Where the outputs are wanted: one place for all of them, or one for each. A number comes as it is. */
  outputs: OutputPlace | readonly OutputPlace[];
}

export class Session extends Conversation {
  protected readonly sequence = 0;
  private readonly scales = new Map<string, number>(); // of adapters, where they are not those of the load

  /** @internal Use ExecuTorchRuntime.loadModel. */
  constructor(
    private channel: Channel,
    private loaded: SessionInfo,
    private readonly loadAgain: Reload,
    /** It runs on a GPUDevice of the caller's, and on the caller's thread. */
    private readonly onOwnDevice = false,
  ) {
    super();
  }

  protected worker(): Channel {
    return this.channel;
  }

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
   *
   * On a GPUDevice of yours inputs and outputs may be GPU buffers, which no byte leaves. Inputs are read, and outputs
   * written, by what has been submitted to the device's queue when the promise resolves. What lies in the model's own
   * memory (`outputs: 'gpu'`) may be read until the session's next call, or dispose(); buffers of yours stay yours.
   */
  run(inputs: readonly Input[], options: GpuRunOptions): Promise<(Value | GpuTensor)[]>;
  run(inputs: readonly Input[], options?: RunOptions | string): Promise<Value[]>;
  async run(
    inputs: readonly Input[],
    options: (RunOptions & Partial<GpuRunOptions>) | string = {},
  ): Promise<(Value | GpuTensor)[]> {
    const asked = typeof options === 'string' ? { method: options } : options;
    const { signal } = signalOf(asked);
    const { method = 'forward', outputs = [] } = asked;
    check(Array.isArray(inputs), 'inputs', inputs ?? null, 'list');
    const places: OutputPlace[] = [outputs].flat();
    if (!this.onOwnDevice && (inputs.some(isGpuTensor) || places.some((place) => place !== 'cpu'))) {
      throw makeError(
        'invalid_argument',
        'GPU buffers need a model on their own device: loadModel({ device: theGPUDevice, worker: false })',
      );
    }
    const transfer: Transferable[] = [];
    const crossed = inputs.some(isImageInput)
      ? await Promise.all(inputs.map((input) => crossing(input, transfer)))
      : [...inputs];
    return this.channel.call('run', { method, inputs: crossed, places }, { signal, transfer });
  }

  /**
   * Another conversation on this model: see Sequence.
   * @throws LimitExceededError, OutOfMemoryError, InvalidArgumentError for a model that generates no text.
   */
  async newSequence(options: CallOptions = {}): Promise<Sequence> {
    const { channel } = this;
    const { sequence, stateBytes } = await channel.call('newSequence', {}, signalOf(options));
    return new Sequence(channel, sequence, stateBytes);
  }

  /** The token ids that `generate` would run for this prompt. */
  async tokenize(prompt: Prompt, options: CallOptions = {}): Promise<number[]> {
    return this.channel.call('tokenize', { prompt: promptOf(prompt) }, signalOf(options));
  }

  /**
   * What a LoRA adapter of `loadModel` counts from the next call on: 1 as trained, 0 off. The conversations, which were
   * computed with another scale, are forgotten.
   * @throws InvalidArgumentError for an unknown name.
   */
  async setAdapterScale(name: string, scale: number, options: CallOptions = {}): Promise<void> {
    await this.channel.call('adapterScale', { name, scale }, signalOf(options));
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
   * a conversation is gone, its messages are yours. Calls under way reject with DisposedError, those of further sequences, too.
   * @throws like loadModel; the session can then be reloaded once more.
   */
  async reload(options: CallOptions = {}): Promise<void> {
    const { signal } = signalOf(options);
    checkSignal(signal);
    throwIfAborted(signal);
    this.channel.close(makeError('disposed', 'the session is being reloaded'));
    ({ channel: this.channel, info: this.loaded } = await this.loadAgain(signal));
    for (const [name, scale] of this.scales) await this.channel.call('adapterScale', { name, scale });
  }

  /** Frees everything, after the calls that are queued. Later calls reject with DisposedError. */
  async dispose(): Promise<void> {
    await this.channel.call('dispose', {}).catch(() => undefined);
    this.channel.close(makeError('disposed', 'the session was disposed of'));
  }
}
