import { checkOptions, GENERATE_OPTIONS } from '../checks.js';
import type { Generation } from '../generation.js';
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
   * Asks; the answer streams (`for await`) or is awaited, and is part of the conversation when it ends. An answer that was
   * stopped stays as far as it came; after an error the question is taken back.
   */
  send(content: string, options: GenerateOptions = {}): Generation {
    const question: ChatMessage = { role: 'user', content };
    const generation = this.session.generate([...this.messages, question], { ...this.defaults, ...options });
    this.messages.push(question);
    const asked = this.messages.length;
    generation.then(
      ({ text }) => {
        if (this.messages[asked - 1] === question) this.messages.splice(asked, 0, { role: 'assistant', content: text });
      },
      () => {
        const at = this.messages.indexOf(question);
        if (at >= 0) this.messages.splice(at, 1);
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
