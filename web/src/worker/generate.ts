// The loop around the module's generator: prompt, tokens, text, stop conditions.
import { makeError } from '../errors.js';
import type { PlainGenerateOptions } from '../protocol.js';
import type { GeneratedToken, GenerateResult, Prompt } from '../types.js';
import { StopFinder, TextStreamer } from './text.js';
import type { TextModel } from './tokenizer.js';

/** What the loop needs of WasmModule, bound to a session; tests put something else in its place. */
export interface TokenSource {
  readonly capacity: number;
  append(ids: readonly number[]): Promise<number>;
  rollback(position: number): void;
  setSampling(options: Sampling): void;
}
export interface Sampling {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  seed: number;
}
const GREEDY: Sampling = { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1, seed: 0 };

function number(
  name: string,
  value: number | undefined,
  fallback: number,
  low: number,
  high: number,
  whole = false,
): number {
  if (value === undefined) return fallback;
  if (typeof value !== 'number' || !(value >= low && value <= high) || (whole && !Number.isInteger(value))) {
    throw makeError(
      'invalid_argument',
      `${name}: ${value} is not ${whole ? 'a whole number ' : ''}between ${low} and ${high}`,
    );
  }
  return value;
}

/** @throws InvalidArgumentError that names the option. */
export function samplingOf(o: PlainGenerateOptions): Sampling {
  return {
    temperature: number('temperature', o.temperature, 0, 0, 100),
    topK: number('topK', o.topK, 0, 0, 2 ** 31 - 1, true),
    topP: number('topP', o.topP, 1, 0, 1),
    minP: number('minP', o.minP, 0, 0, 1),
    repetitionPenalty: number('repetitionPenalty', o.repetitionPenalty, 1, 0.01, 100),
    seed: number('seed', o.seed, 0, 0, Number.MAX_SAFE_INTEGER, true),
  };
}

/** Messages, such as an abort, are handled between two steps even where a step never waits. */
export function breathe(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port2.onmessage = () => {
      port2.close();
      resolve();
    };
    port1.postMessage(null);
  });
}

export class Conversation {
  /** Tokens in the model's cache. */
  private cached: number[] = [];

  /** `chunk`: most tokens that run between two looks at the signal. */
  constructor(
    private readonly source: TokenSource,
    private readonly text: TextModel | Pick<TextModel, 'encode' | 'decode'>,
    private readonly endIds: ReadonlySet<number>,
    private readonly chunk: number,
  ) {}

  /** After the states were reset. */
  forget(): void {
    this.cached = [];
  }

  async generate(
    prompt: Prompt,
    options: PlainGenerateOptions,
    signal: AbortSignal,
    onToken: (token: GeneratedToken) => void,
  ): Promise<GenerateResult> {
    const sampling = samplingOf(options);
    const maxTokens = number('maxTokens', options.maxTokens, Infinity, 1, Infinity);
    const stops = (typeof options.stop === 'string' ? [options.stop] : (options.stop ?? [])).filter((s) => s !== '');
    const ids = this.text.encode(prompt);
    if (ids.length >= this.source.capacity) {
      throw makeError(
        'limit_exceeded',
        `a prompt of ${ids.length} tokens does not fit into a context of ${this.source.capacity}`,
      );
    }
    const out = new Output(this.text, this.endIds, stops, maxTokens, onToken);
    const reused = this.reuse(ids);
    const began = performance.now();
    let decodeBegan = began;
    let token = await this.prefill(ids, reused, sampling, signal);
    if (token !== undefined) {
      decodeBegan = performance.now();
      while (!out.take(token, this.cached.length >= this.source.capacity)) {
        await breathe();
        if (signal.aborted) break;
        token = await this.append([token]);
      }
    }
    const ended = performance.now();
    return {
      text: out.finish(),
      tokenIds: out.ids,
      finishReason: out.reason ?? 'aborted',
      timings: {
        promptTokens: ids.length,
        reusedTokens: reused,
        prefillMs: decodeBegan - began,
        decodeTokens: Math.max(0, out.ids.length - 1),
        decodeMs: ended - decodeBegan,
      },
    };
  }

  /** Rolls back to what the cache shares with the prompt; at least one token is left to run. */
  private reuse(ids: number[]): number {
    let same = 0;
    while (same < ids.length - 1 && same < this.cached.length && this.cached[same] === ids[same]) ++same;
    this.source.rollback(same);
    this.cached.length = same;
    return same;
  }

  /** Runs the prompt's rest; undefined where the signal fired before its end. */
  private async prefill(
    ids: number[],
    from: number,
    sampling: Sampling,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    let token: number | undefined;
    // only the last chunk's token counts: the others take the cheapest, and no random number
    this.source.setSampling(GREEDY);
    for (let at = from; at < ids.length; at += this.chunk) {
      if (at > from) await breathe();
      if (signal.aborted) return undefined;
      const last = at + this.chunk >= ids.length;
      if (last) this.source.setSampling(sampling);
      token = await this.append(ids.slice(at, at + this.chunk));
    }
    return token;
  }

  private async append(ids: number[]): Promise<number> {
    const token = await this.source.append(ids);
    this.cached.push(...ids);
    return token;
  }
}

/** What has been generated, and whether that is the end. */
class Output {
  readonly ids: number[] = [];
  reason: 'stop' | 'length' | undefined;
  private text = '';
  private readonly streamer: TextStreamer;
  private readonly stops: StopFinder;

  constructor(
    model: Pick<TextModel, 'decode'>,
    private readonly endIds: ReadonlySet<number>,
    stops: string[],
    private readonly maxTokens: number,
    private readonly onToken: (token: GeneratedToken) => void,
  ) {
    this.streamer = new TextStreamer((ids) => model.decode(ids));
    this.stops = new StopFinder(stops);
  }

  /** True at the end. `full`: the context has no place for this token. */
  take(id: number, full: boolean): boolean {
    this.ids.push(id);
    let piece = '';
    if (this.endIds.has(id)) {
      this.reason = 'stop';
    } else {
      piece = this.stops.push(this.streamer.push(id));
      if (this.stops.found) this.reason = 'stop';
      else if (full || this.ids.length >= this.maxTokens) this.reason = 'length';
    }
    if (this.reason) piece += this.rest();
    this.text += piece;
    this.onToken({ id, text: piece });
    return this.reason !== undefined;
  }

  finish(): string {
    this.text += this.rest();
    return this.text;
  }

  private rest(): string {
    return this.stops.push(this.streamer.end()) + this.stops.end();
  }
}
