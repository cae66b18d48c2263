// What is kept, as the page sees it.
import { heldBytes, openStore, type BlockStore, type EntryMeta } from './cache/store.js';
import { modelUrlOf } from './sources.js';

export interface CachedModelInfo {
  /** As it was given to `loadModel`, made absolute. */
  url: string;
  /** Bytes that are kept. */
  bytes: number;
  /** Bytes of the whole model, as far as known. */
  totalBytes: number;
  /** Everything that the last load needed is there: it loads without a network. */
  complete: boolean;
  files: { url: string; bytes: number; complete: boolean }[];
  addedAt: Date;
  lastUsedAt: Date;
}

export interface CacheUsage {
  /** Of the models. */
  bytes: number;
  /** Of everything of this origin, and what the browser allows it; undefined where it does not say. */
  originBytes?: number;
  quota?: number;
  /** The browser will not delete it on its own. */
  persisted: boolean;
  storage?: 'opfs' | 'cachestorage';
  /** Why nothing can be kept here. */
  reason?: string;
}

interface Found {
  store: BlockStore;
  key: string;
  meta: EntryMeta;
  bytes: number;
}

/** Both stores: a browser that has learnt OPFS may still have files in CacheStorage. */
async function stores(): Promise<BlockStore[]> {
  const opened = await Promise.all([openStore('opfs'), openStore('cachestorage')]);
  const found = opened.filter((store): store is BlockStore => typeof store === 'object');
  return found.filter((store, i) => found.findIndex((s) => s.kind === store.kind) === i);
}

async function entries(): Promise<Found[]> {
  const found: Found[] = [];
  for (const store of await stores()) {
    for (const key of await store.keys()) {
      const meta = await store.meta(key);
      if (meta) found.push({ store, key, meta, bytes: heldBytes(meta, await store.blocks(key)) });
    }
  }
  return found;
}

export const cache = {
  /** Most recently used first. */
  async list(): Promise<CachedModelInfo[]> {
    const models = new Map<string, CachedModelInfo>();
    for (const { meta, bytes } of await entries()) {
      const model = models.get(meta.model) ?? {
        url: meta.model,
        bytes: 0,
        totalBytes: 0,
        complete: true,
        files: [],
        addedAt: new Date(meta.added),
        lastUsedAt: new Date(meta.used),
      };
      model.bytes += bytes;
      model.totalBytes += Math.max(meta.size, bytes);
      model.complete &&= meta.complete;
      model.files.push({ url: meta.url, bytes, complete: meta.complete });
      if (meta.added < model.addedAt.getTime()) model.addedAt = new Date(meta.added);
      if (meta.used > model.lastUsedAt.getTime()) model.lastUsedAt = new Date(meta.used);
      models.set(meta.model, model);
    }
    return [...models.values()].sort((a, b) => b.lastUsedAt.getTime() - a.lastUsedAt.getTime());
  },

  /** Deletes a model (or one file of it) by its URL. @returns the bytes that were kept of it; sessions are not affected. */
  async delete(url: string | URL): Promise<number> {
    const names = [modelUrlOf(url), new URL(url, globalThis.location?.href).href];
    let bytes = 0;
    for (const entry of await entries()) {
      if (!names.includes(entry.meta.model) && !names.includes(entry.meta.url)) continue;
      await entry.store.remove(entry.key);
      bytes += entry.bytes;
    }
    return bytes;
  },

  async clear(): Promise<void> {
    // by key: entries whose description is damaged go, too
    for (const store of await stores()) for (const key of await store.keys()) await store.remove(key);
  },

  async usage(): Promise<CacheUsage> {
    const store = await openStore();
    const estimate = await navigator.storage?.estimate?.().catch(() => undefined);
    return {
      bytes: (await entries()).reduce((sum, entry) => sum + entry.bytes, 0),
      ...(estimate?.usage !== undefined && { originBytes: estimate.usage }),
      ...(estimate?.quota !== undefined && { quota: estimate.quota }),
      persisted: (await navigator.storage?.persisted?.()) === true,
      ...(typeof store === 'string' ? { reason: store } : { storage: store.kind }),
    };
  },

  /** Asks the browser not to delete anything of this origin on its own; some ask the user. */
  async persist(): Promise<boolean> {
    return (await navigator.storage?.persist?.()) === true;
  },
} as const;
