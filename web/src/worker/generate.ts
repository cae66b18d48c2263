// The loop around the module's generator: prompt, tokens, text, stop conditions.
import { makeError } from '../errors.js';
import type { PlainGenerateOptions } from '../protocol.js';
import type { GeneratedToken, GenerateResult, Prompt } from '../types.js';
import type { Grammars } from './grammar.js';
import type { Allowed, Ended, FinishReason, GenerateRequest, OnToken, Sampling } from './module.js';
import { StopFinder, TextStreamer } from './text.js';
import type { TextModel } from './tokenizer.js';

/** What the loop needs of WasmModule, bound to a session; tests put something else in its place. */
export interface TokenSource {
  /** See WasmModule.generate. */
  generate(ids: readonly number[], options: GenerateRequest, onToken: OnToken, allowed?: Allowed): Promise<Ended>;
  abort(): void;
}

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

/** @throws InvalidArgumentError that names the option. */
function stopsOf(stop: PlainGenerateOptions['stop']): string[] {
  const stops: unknown = typeof stop === 'string' ? [stop] : (stop ?? []);
  if (!Array.isArray(stops) || !stops.every((s) => typeof s === 'string')) {
    throw makeError('invalid_argument', 'stop: neither a text nor a list of texts');
  }
  return stops.filter((s) => s !== '');
}

/** @throws InvalidArgumentError that names the option. */
export function slidingOf(overflow: PlainGenerateOptions['overflow']): GenerateRequest['sliding'] {
  if (overflow === undefined || overflow === 'stop') return undefined;
  if (overflow !== 'sliding' && (typeof overflow !== 'object' || overflow === null)) {
    throw makeError('invalid_argument', `overflow: ${String(overflow)} is neither stop nor sliding`);
  }
  const { sinks, keep } = overflow === 'sliding' ? {} : overflow;
  return {
    sinks: number('overflow.sinks', sinks, 4, 0, 2 ** 31 - 1, true),
    keep: number('overflow.keep', keep, -1, 1, 2 ** 31 - 1, true),
  };
}

/** @throws InvalidArgumentError that names the option. */
export function speculationOf(speculation: PlainGenerateOptions['speculation']): GenerateRequest['speculation'] {
  if (speculation === undefined || speculation === false) return undefined;
  if (speculation !== true && (typeof speculation !== 'object' || speculation === null)) {
    throw makeError('invalid_argument', `speculation: ${String(speculation)} is neither true nor false nor an object`);
  }
  const { tokens, ngram } = speculation === true ? {} : speculation;
  return {
    tokens: number('speculation.tokens', tokens, 8, 1, 15, true),
    ngram: number('speculation.ngram', ngram, 3, 1, 2 ** 31 - 1, true),
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
  private readonly endIds: readonly number[];

  /** `chunk`: most tokens of a prompt that run between two looks at the signal; 0: as the device is fast. */
  constructor(
    private readonly source: TokenSource,
    private readonly text: TextModel | Pick<TextModel, 'encode' | 'decode'>,
    endIds: ReadonlySet<number>,
    private readonly chunk: number,
    private readonly grammars?: Pick<Grammars, 'matcher'>,
  ) {
    this.endIds = [...endIds];
  }

  async generate(
    prompt: Prompt,
    options: PlainGenerateOptions,
    signal: AbortSignal,
    onToken: (token: GeneratedToken) => void,
  ): Promise<GenerateResult> {
    const sampling = samplingOf(options);
    const maxTokens = number('maxTokens', options.maxTokens, Infinity, 1, Infinity, options.maxTokens !== Infinity);
    const stops = stopsOf(options.stop);
    const logprobs = options.logprobs ?? false;
    const sliding = slidingOf(options.overflow);
    const speculation = speculationOf(options.speculation);
    const format = options.responseFormat;
    const ids = this.text.encode(prompt, options);
    const matcher = format && format.type !== 'text' ? await this.grammars?.matcher(format) : undefined;
    const out = new Output(this.text, stops, onToken);
    const request = {
      ...sampling,
      maxTokens,
      stopTokens: this.endIds,
      logprobs,
      chunk: this.chunk,
      ...(sliding && { sliding }),
      ...(speculation && { speculation }),
    };
    const abort = () => this.source.abort();
    signal.addEventListener('abort', abort);
    const began = performance.now();
    let first = began;
    let last = began;
    let ended: Ended;
    try {
      const take: OnToken = (id, reason, logprob) => {
        last = performance.now();
        if (out.ids.length === 0) first = last;
        matcher?.accept(id);
        return out.take(id, reason, logprobs ? logprob : undefined) && !signal.aborted;
      };
      ended = await this.source.generate(ids, request, take, matcher && (() => matcher.allowed()));
    } finally {
      matcher?.dispose();
      signal.removeEventListener('abort', abort);
    }
    const { reused, proposed, accepted, calls } = ended;
    return {
      text: out.finish(), // first: it may find why it ended
      tokenIds: out.ids,
      ...(logprobs && { logprobs: out.logprobs }),
      finishReason: out.reason || 'aborted',
      ...(speculation && { speculation: { proposed, accepted, calls } }),
      timings: {
        promptTokens: ids.length,
        reusedTokens: reused,
        prefillMs: (out.ids.length ? first : performance.now()) - began,
        decodeTokens: Math.max(0, out.ids.length - 1),
        decodeMs: last - first,
      },
    };
  }
}

/** What has been generated, and whether that is the end. */
class Output {
  readonly ids: number[] = [];
  readonly logprobs: number[] = [];
  reason: FinishReason = '';
  private text = '';
  private readonly streamer: TextStreamer;
  private readonly stops: StopFinder;

  constructor(
    model: Pick<TextModel, 'decode'>,
    stops: string[],
    private readonly onToken: (token: GeneratedToken) => void,
  ) {
    this.streamer = new TextStreamer((ids) => model.decode(ids));
    this.stops = new StopFinder(stops);
  }

  /** False at the end. `reason`: why this token is the last one; an end token is no text. */
  take(id: number, reason: FinishReason, logprob?: number): boolean {
    this.ids.push(id);
    this.reason = reason;
    let piece = '';
    if (reason !== 'stop') {
      piece = this.stops.push(this.streamer.push(id));
      if (this.stops.found) this.reason = 'stop';
    }
    if (this.reason) piece += this.rest();
    this.text += piece;
    if (logprob !== undefined) this.logprobs.push(logprob);
    this.onToken({ id, text: piece, ...(logprob !== undefined && { logprob }) });
    return !this.reason;
  }

  finish(): string {
    this.text += this.rest();
    return this.text;
  }

  private rest(): string {
    const piece = this.stops.push(this.streamer.end()) + this.stops.end();
    if (this.stops.found) this.reason = 'stop'; // it may have been in the rest alone
    return piece;
  }
}
