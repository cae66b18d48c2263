// Signals that outlive the page, in localStorage.
import { effect, signal, type Signal } from '@preact/signals';

function read(key: string): unknown {
  try {
    return JSON.parse(localStorage.getItem(key) ?? 'null');
  } catch {
    return null; // switched off, or not ours
  }
}

/** A signal that begins with what was stored under `key`, if that has the fallback's type. */
export function remembered<T extends string | number | object>(key: string, fallback: T): Signal<T> {
  const stored = read(key);
  const fits = stored !== null && typeof stored === typeof fallback;
  const value = signal<T>(!fits ? fallback : typeof fallback === 'object' ? { ...fallback, ...stored } : (stored as T));
  effect(() => {
    const text = JSON.stringify(value.value);
    try {
      localStorage.setItem(key, text);
    } catch {
      // it holds until the page is closed
    }
  });
  return value;
}
