// Which models' files are on this device.
import { signal } from '@preact/signals';
import type { ModelEntry } from './catalog.js';

/** Bytes kept, by the model folder's address. */
export const kept = signal<ReadonlyMap<string, number>>(new Map());

export function onDevice(model: ModelEntry): boolean {
  return model.own === true || kept.value.has(model.url);
}
