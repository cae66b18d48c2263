/// <reference lib="esnext.disposable" preserve="true" />
import type { Channel } from './channel.js';
import { check, checkFunction, checkOptions, checkSignal, GENERATE_OPTIONS, promptOf, signalOf } from './checks.js';
import { makeError } from './errors.js';
import { Generation } from './generation.js';
import type { PlainGenerateOptions } from './protocol.js';
import { Chat, type ChatOptions } from './tasks/chat.js';
import type { CallOptions, GenerateOptions, Prompt } from './types.js';

/** A conversation with a loaded model: what the session and its further sequences have in common. */
export abstract class Conversation {
  /** The worker's number of it; 0: the session's own. */
  protected abstract readonly sequence: number;
  /** Of the worker; rejects where it is gone. */
  protected abstract worker(): Channel;

  /**
   * Generates text. `await` the result, or iterate: `for await (const piece of session.generate(…))`.
   * What the prompt shares with the conversation so far is not computed again.
   */
  generate(prompt: Prompt, options: GenerateOptions = {}): Generation {
    checkOptions('generate', options, GENERATE_OPTIONS);
    const { signal, onToken, ...rest } = options;
    checkFunction('onToken', onToken);
    checkSignal(signal);
    const plain: PlainGenerateOptions = rest;
    const { logprobs, tools, templateOptions, responseFormat } = plain;
    check(typeof logprobs === 'boolean', 'logprobs', logprobs, 'boolean');
    check(Array.isArray(tools), 'tools', tools, 'list');
    check(templateOptions === Object(templateOptions), 'templateOptions', templateOptions, 'object');
    try {
      JSON.stringify(responseFormat);
    } catch (cause) {
      // a circle would cross to the worker, where it has no end
      throw makeError('invalid_argument', `responseFormat: ${String(cause)}`, { cause });
    }
    const params = { sequence: this.sequence, prompt: promptOf(prompt), options: plain };
    return new Generation(
      async (add, stop) =>
        this.worker().call('generate', params, {
          signal: stop,
          onEvent: (token) => {
            add(token);
            onToken?.(token);
          },
        }),
      signal,
    );
  }

  /** A conversation that keeps its messages: `await chat.send('…')`. */
  chat(options: ChatOptions = {}): Chat {
    return new Chat(this, options);
  }

  /**
   * The conversation as the model has computed it: the tokens in the cache and the part of the states that they fill.
   * A Blob can be kept, such as in a file of the origin private file system, and restored in another visit.
   */
  async saveState(options: CallOptions = {}): Promise<Blob> {
    return this.worker().call('saveState', { sequence: this.sequence }, signalOf(options));
  }

  /**
   * Goes on from what `saveState` gave: a prompt that begins with its tokens runs its new ones only. The messages are
   * yours to keep.
   * @throws SavedStateError, with nothing changed, where it is damaged, of another model or of another precision.
   */
  async restoreState(saved: Blob | FileSystemFileHandle, options: CallOptions = {}): Promise<void> {
    const call = signalOf(options);
    const blob = saved instanceof Blob ? saved : await (saved as FileSystemFileHandle | null)?.getFile?.();
    check(blob, 'saved', saved ?? null, 'Blob or file handle');
    await this.worker().call('restoreState', { sequence: this.sequence, saved: blob as Blob }, call);
  }

  /** Forgets the conversation: states are as after loading. */
  async reset(options: CallOptions = {}): Promise<void> {
    await this.worker().call('reset', { sequence: this.sequence }, signalOf(options));
  }

  abstract dispose(): Promise<void>;
  /** For `await using session = …`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.dispose();
  }
}

/**
 * Another conversation on a session's model (`session.newSequence()`), with a cache of its own; weights, kernels and the
 * memory of intermediate values are shared. Calls of all conversations of a model are queued, in order. It ends with the
 * session, also where that is reloaded.
 */
export class Sequence extends Conversation {
  private disposed = false;

  /** @internal Use Session.newSequence. */
  constructor(
    private readonly channel: Channel,
    protected readonly sequence: number,
    /** Memory of its states, which `memoryReport` counts as well. */
    readonly stateBytes: number,
  ) {
    super();
  }

  protected worker(): Channel {
    if (this.disposed) throw makeError('disposed', 'the sequence was disposed of');
    return this.channel;
  }

  /** Frees its states, after the calls that are queued. Later calls reject with DisposedError. */
  async dispose(): Promise<void> {
    if (this.disposed) return;
    this.disposed = true;
    await this.channel.call('disposeSequence', { sequence: this.sequence }).catch(() => undefined);
  }
}
