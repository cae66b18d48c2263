import { checkOptions, GENERATE_OPTIONS } from '../checks.js';
import { makeError } from '../errors.js';
import { Generation } from '../generation.js';
import type { Conversation } from '../sequence.js';
import type { ChatMessage, GenerateOptions } from '../types.js';

export interface ChatOptions extends Omit<GenerateOptions, 'signal' | 'onToken'> {
  /** What the model is told before everything else. */
  system?: string;
}

const CHAT_OPTIONS = { ...GENERATE_OPTIONS, system: 1 } satisfies Record<keyof ChatOptions, 1>;

/** A conversation: keeps the messages, and what the model has computed of them. */
export class Chat {
  readonly messages: ChatMessage[] = [];
  private readonly system: string | undefined;
  private readonly defaults: GenerateOptions;
  /** Settled when nothing is asked any more. */
  private last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly session: Pick<Conversation, 'generate'>,
    options: ChatOptions = {},
  ) {
    checkOptions('chat', options, CHAT_OPTIONS);
    const { system, ...defaults } = options;
    this.system = system;
    this.defaults = defaults;
    this.clear();
  }

  /**
   * Asks; the answer streams (`for await`) or is awaited, and is part of the conversation when it ends. What is asked before
   * then waits for it. An answer that was stopped stays as far as it came; after an error the question is taken back.
   */
  send(content: string, options: GenerateOptions = {}): Generation {
    checkOptions('send', options, GENERATE_OPTIONS);
    const question: ChatMessage = { role: 'user', content };
    const place = () => this.messages.indexOf(question);
    const before = this.last;
    this.messages.push(question);
    const generation = new Generation(async (onToken, signal) => {
      await before;
      if (place() < 0) throw makeError('invalid_argument', 'the question was taken back before its turn');
      return this.session.generate(this.messages.slice(0, place() + 1), {
        ...this.defaults,
        ...options,
        signal,
        onToken: (token) => {
          options.onToken?.(token);
          onToken(token);
        },
      });
    }, options.signal);
    this.last = generation.then(
      ({ text }) => {
        if (place() >= 0) this.messages.splice(place() + 1, 0, { role: 'assistant', content: text });
      },
      () => {
        if (place() >= 0) this.messages.splice(place(), 1);
      },
    );
    return generation;
  }

  /** Takes back the last question with its answer. @returns its text. */
  undo(): string | undefined {
    const at = this.messages.findLastIndex((m) => m.role === 'user');
    return at < 0 ? undefined : this.messages.splice(at)[0]?.content;
  }

  /** Starts again. */
  clear(): void {
    this.messages.length = 0;
    if (this.system !== undefined) this.messages.push({ role: 'system', content: this.system });
  }
}
