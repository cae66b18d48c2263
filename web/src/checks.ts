// Checks of what callers pass: JavaScript has no types at run time, and what is ignored in silence is hard to find.
import { makeError } from './errors.js';
import type { CallOptions, GenerateOptions, LoadOptions } from './types.js';

const shown = (value: unknown): string => (typeof value === 'string' ? `'${value}'` : String(value));

/** @throws InvalidArgumentError unless `value` is undefined or one of `names`. */
export function checkOneOf(name: string, value: unknown, names: readonly string[]): void {
  if (value === undefined || names.includes(value as string)) return;
  throw makeError('invalid_argument', `${name}: ${shown(value)} is none of ${names.join(', ')}`);
}

/** @throws InvalidArgumentError for what holds no options: null, a number … */
export function checkOptionsObject(call: string, value: unknown): void {
  if (typeof value === 'object' && value !== null) return;
  throw makeError('invalid_argument', `${call} takes options, not ${shown(value)}`);
}

export const GENERATE_OPTIONS = {
  maxTokens: 1,
  temperature: 1,
  topP: 1,
  topK: 1,
  minP: 1,
  repetitionPenalty: 1,
  seed: 1,
  logprobs: 1,
  stop: 1,
  responseFormat: 1,
  overflow: 1,
  speculation: 1,
  tools: 1,
  templateOptions: 1,
  signal: 1,
  onToken: 1,
} satisfies Record<keyof GenerateOptions, 1>;

export const LOAD_OPTIONS = {
  modelUrl: 1,
  model: 1,
  dataUrl: 1,
  adapters: 1,
  variant: 1,
  cache: 1,
  device: 1,
  worker: 1,
  activations: 1,
  precision: 1,
  threads: 1,
  onProgress: 1,
  signal: 1,
  wasmUrl: 1,
  workerUrl: 1,
  grammarUrl: 1,
  tune: 1,
  memoryCap: 1,
  debug: 1,
} satisfies Record<keyof LoadOptions, 1>;

/** max_tokens and maxtokens are maxTokens. */
const plain = (name: string) => name.replace(/_/g, '').toLowerCase();

/** @throws InvalidArgumentError for what holds no options, and for options with names that are not in `names`. */
export function checkOptions(call: string, value: object, names: Readonly<Record<string, 1>>): void {
  checkOptionsObject(call, value);
  for (const [name, given] of Object.entries(value)) {
    if (given === undefined || names[name] === 1) continue;
    const meant = Object.keys(names).find((known) => plain(known) === plain(name));
    throw makeError('invalid_argument', `${call}: no option ${shown(name)}${meant ? `, but ${meant}` : ''}`);
  }
}

/** The signal of a call, which checks it. @throws InvalidArgumentError for what holds no options. */
export function signalOf(options: CallOptions): { signal: AbortSignal | undefined } {
  checkOptionsObject('the call', options);
  return { signal: options.signal };
}

/** @throws InvalidArgumentError unless `value` is undefined or a function. */
export function checkFunction(name: string, value: unknown): void {
  if (value === undefined || typeof value === 'function') return;
  throw makeError('invalid_argument', `${name}: ${shown(value)} is no function`);
}

/** @throws InvalidArgumentError unless `value` is undefined or an AbortSignal. */
export function checkSignal(value: unknown): void {
  if (value === undefined || typeof (value as AbortSignal | null)?.addEventListener === 'function') return;
  throw makeError('invalid_argument', `signal: ${shown(value)} is no AbortSignal`);
}

/** @throws InvalidArgumentError for what is no URL. */
export function checkUrl(name: string, value: string | URL): void {
  try {
    new URL(value, globalThis.location?.href);
  } catch (error) {
    throw makeError('invalid_argument', `${name}: ${shown(value)} is no URL`, { cause: error });
  }
}
