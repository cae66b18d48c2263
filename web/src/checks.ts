// Checks of what callers pass: JavaScript has no types at run time, and what is ignored in silence is hard to find.
import { makeError } from './errors.js';

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
