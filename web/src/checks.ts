// Checks of what callers pass: JavaScript has no types at run time, and what is ignored in silence is hard to find.
import { makeError } from './errors.js';
import type { CallOptions, GenerateOptions, LoadOptions, Prompt, PromptMessage } from './types.js';

const shown = (value: unknown): string =>
  Array.isArray(value) ? `[${value.map(shown).join(', ')}]` : typeof value === 'string' ? `'${value}'` : String(value);

/** @throws InvalidArgumentError, which names the value, unless it is undefined or `fits`. */
export function check(fits: unknown, name: string, value: unknown, what: string): void {
  if (fits || value === undefined) return;
  throw makeError('invalid_argument', `${name}: ${shown(value)} is no ${what}`);
}

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
  check(typeof value === 'function', name, value, 'function');
}

/** @throws InvalidArgumentError unless `value` is undefined or an AbortSignal. */
export function checkSignal(value: unknown): void {
  check('addEventListener' in (Object(value) as object), 'signal', value, 'AbortSignal');
}

/** @throws InvalidArgumentError for what is no URL. */
export function checkUrl(name: string, value: string | URL): void {
  try {
    new URL(value, globalThis.location?.href);
  } catch (error) {
    throw makeError('invalid_argument', `${name}: ${shown(value)} is no URL`, { cause: error });
  }
}

function textOf(name: string, value: unknown): string {
  check(typeof value === 'string', name, value ?? null, 'text');
  return value as string;
}

/**
 * A prompt whose messages have a text as content, '' beside calls of tools.
 * @throws InvalidArgumentError for what templates would write out as `undefined` or `[object Object]`.
 */
export function promptOf(prompt: Prompt): Prompt {
  if (!Array.isArray(prompt)) return prompt;
  return prompt.map((given: PromptMessage | null, i) => {
    const name = `messages[${i}]`;
    const message: PromptMessage = { ...given, role: textOf(`${name}.role`, given?.role) };
    const content: unknown = message.content ?? (message.tool_calls ? '' : null);
    if (!Array.isArray(content)) return { ...message, content: textOf(`${name}.content`, content) };
    const texts = content.map((part: { type?: unknown; text?: unknown } | null, k) => {
      checkOneOf(`${name}.content[${k}].type`, part?.type ?? null, ['text']);
      return textOf(`${name}.content[${k}].text`, part?.text);
    });
    return { ...message, content: texts.join('') };
  });
}

/** The object in a file. @throws NotAProgramError, which names the file, for anything else. */
export function parseObject(file: string, text: string): object {
  let why: unknown = text;
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === 'object' && value !== null) return value;
  } catch (error) {
    why = error; // browsers quote the beginning
  }
  throw makeError('not_a_program', `${file} holds no JSON object: ${String(why)}`);
}

/** What `make` makes of a file. @throws InvalidProgramError, which names the file, where it cannot. */
export function fromFile<T>(file: string, make: () => T): T {
  try {
    return make();
  } catch (cause) {
    throw makeError('invalid_program', `${file} is damaged: ${String(cause)}`, { cause });
  }
}
