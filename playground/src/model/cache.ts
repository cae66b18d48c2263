// Which models' files are on this device: what the package keeps of downloads.
import { signal } from '@preact/signals';
import { ExecuTorchRuntime, type CachedModelInfo, type CacheUsage } from 'executorch-webgpu';
import type { ModelEntry } from './catalog.js';

const { cache } = ExecuTorchRuntime;

export const kept = signal<readonly CachedModelInfo[]>([]);
export const usage = signal<CacheUsage | undefined>(undefined);

export async function refreshKept(): Promise<void> {
  try {
    [kept.value, usage.value] = await Promise.all([cache.list(), cache.usage()]);
  } catch {
    kept.value = []; // a browser that keeps nothing
  }
}

export function keptOf(model: ModelEntry): CachedModelInfo | undefined {
  return kept.value.find(({ url }) => url === model.url);
}

/** It loads without a network. */
export function onDevice(model: ModelEntry): boolean {
  return model.own === true || keptOf(model)?.complete === true;
}

export async function forget(url: string): Promise<void> {
  await cache.delete(url);
  await refreshKept();
}

/** Asks the browser not to clear the page's data on its own. */
export async function persist(): Promise<void> {
  await cache.persist();
  await refreshKept();
}
