// The cache as one load sees it: entries of its files, the lock between tabs, the quota, and why files are not kept.
import { chunksOf, digestOf } from '../cache/block.js';
import { keyOf, openStore, type BlockStore, type EntryMeta } from '../cache/store.js';
import { request, totalOf, validatorOf } from './download.js';
import type { FileSpec } from './remote.js';

/** How long a server may take to say whether a kept file has changed. */
const REVALIDATION_MS = 4000;
/** Another tab that downloads the same model and does not get on for so long is not waited for. */
const STALLED_MS = 20_000;
const LOOK_MS = 300;
/** Left free beside what is written. */
const MARGIN_BYTES = 4 << 20;

const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

function within(signal: AbortSignal, ms: number): AbortSignal {
  return typeof AbortSignal.any === 'function' ? AbortSignal.any([signal, AbortSignal.timeout(ms)]) : signal;
}

/** A file in the cache. Nothing is written before the first block. */
export class Entry {
  private begun: boolean;
  constructor(
    private readonly cache: CachedModel,
    private readonly store: BlockStore,
    private readonly key: string,
    readonly meta: EntryMeta,
    fresh: boolean,
  ) {
    this.begun = !fresh;
  }

  /** Usable blocks by number, with their stored bytes. */
  blocks(): Promise<Map<number, number>> {
    return this.begun ? this.store.blocks(this.key) : Promise.resolve(new Map<number, number>());
  }
  /** Blocks that are there, whoever wrote them. */
  stored(): Promise<Map<number, number>> {
    return this.store.blocks(this.key);
  }
  block(index: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    return this.store.block(this.key, index);
  }
  /** @returns the stored bytes. */
  async setBlock(index: number, chunks: Uint8Array<ArrayBuffer>[]): Promise<number> {
    if (!this.begun) {
      this.begun = true;
      await this.store.remove(this.key);
      await this.store.setMeta(this.key, this.meta);
    }
    const parts = [...chunks, ...(await Promise.all(chunks.map(digestOf)))];
    await this.store.setBlock(this.key, index, parts);
    return parts.reduce((sum, part) => sum + part.length, 0);
  }
  /** What the first response said. */
  async describe(size: number, validator: string | undefined): Promise<void> {
    const knew = this.meta.size > 0;
    this.meta.size ||= size;
    if (validator !== undefined) this.meta.validator = validator;
    if (!knew && size) await this.cache.needs(size);
    if (this.begun) await this.store.setMeta(this.key, this.meta);
  }
  async complete(size: number): Promise<void> {
    if (!this.begun) return;
    this.meta.size = size;
    this.meta.complete = true;
    await this.touch();
  }
  async touch(): Promise<void> {
    this.meta.used = Date.now();
    // a full disk must not fail a load from it
    await this.store.setMeta(this.key, this.meta).catch(() => undefined);
  }
  async remove(): Promise<void> {
    await this.store.remove(this.key);
  }
}

export class CachedModel {
  /** Why files are not kept; undefined while they are. */
  refused: string | undefined;
  /** What else is worth saying, such as that the server could not be asked for news. */
  note: string | undefined;
  private readonly entries: Entry[] = [];
  private release: (() => void) | undefined;

  private constructor(
    readonly modelUrl: string,
    private readonly store: BlockStore | undefined,
  ) {}

  static async open(modelUrl: string, mode: 'auto' | 'none', prefer?: 'opfs' | 'cachestorage'): Promise<CachedModel> {
    const store = mode === 'none' ? "cache: 'none' was asked for" : await openStore(prefer);
    const self = new CachedModel(modelUrl, typeof store === 'string' ? undefined : store);
    if (typeof store === 'string') self.refused = store;
    return self;
  }
  get kind(): BlockStore['kind'] | undefined {
    return this.store?.kind;
  }

  /** The entry of a file; what is there is used only if it is of the version that the server or the manifest has. */
  async entry(url: string, spec: FileSpec, signal: AbortSignal): Promise<Entry | undefined> {
    if (!this.store || this.refused !== undefined) return undefined;
    const key = await keyOf(url);
    const kept = await this.store.meta(key);
    const usable = kept !== undefined && (await this.isCurrent(kept, spec, signal));
    const now = Date.now();
    const meta: EntryMeta = usable
      ? kept
      : {
          format: 1,
          url,
          model: this.modelUrl,
          size: spec.size,
          chunkBytes: spec.chunkBytes,
          ...(spec.sha256 && { sha256: spec.sha256 }),
          complete: false,
          added: now,
          used: now,
        };
    const entry = new Entry(this, this.store, key, meta, !usable);
    this.entries.push(entry);
    return entry;
  }

  /** Stops keeping files; after a full disk, what has come so far is of no use either. */
  refuse(error: unknown): void {
    if (this.refused !== undefined) return;
    const { name, message } = error as Error;
    const full = name === 'QuotaExceededError';
    this.refused = full ? `there is no room for it: ${message}` : `keeping it failed: ${String(error)}`;
    if (full) for (const entry of this.entries) if (!entry.meta.complete) void entry.remove().catch(() => undefined);
  }

  /** Refuses where the browser's estimate leaves no room for so many more bytes. */
  async needs(bytes: number): Promise<void> {
    if (this.refused !== undefined || bytes === 0) return;
    const { quota, usage = 0 } = (await navigator.storage?.estimate?.().catch(() => undefined)) ?? {};
    if (quota === undefined || quota - usage >= bytes + MARGIN_BYTES) return;
    const room = megabytes(Math.max(0, quota - usage));
    this.refuse(new DOMException(`it needs ${megabytes(bytes)}, the browser has ${room} left`, 'QuotaExceededError'));
  }

  /**
   * A small file that may change: from the network, from the cache where the network is gone or answers nonsense.
   * `parse` throws for nonsense.
   */
  async revalidated<T>(url: string, signal: AbortSignal, parse: (bytes: Uint8Array) => T): Promise<T> {
    const key = this.store && this.refused === undefined ? await keyOf(url) : '';
    const kept = key ? await this.small(key) : undefined;
    if (kept && navigator.onLine === false) return parse(kept);
    try {
      const limited = kept ? within(signal, REVALIDATION_MS) : signal;
      const response = await request(url, { signal: limited, mode: 'no-cache' });
      const bytes = new Uint8Array(await response.arrayBuffer());
      const parsed = parse(bytes);
      if (key) await this.keepSmall(key, url, bytes);
      return parsed;
    } catch (error) {
      if (!kept || signal.aborted) throw error;
      this.note = `the kept copy is used, since ${(error as Error).message}`;
      return parse(kept);
    }
  }
  private async small(key: string): Promise<Uint8Array | undefined> {
    const [meta, stored] = await Promise.all([this.store?.meta(key), this.store?.block(key, 0)]);
    if (!meta?.complete || !stored) return undefined;
    return (await chunksOf(stored, meta.chunkBytes))[0];
  }
  private async keepSmall(key: string, url: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const now = Date.now();
    const size = bytes.length;
    const meta: EntryMeta = {
      format: 1,
      url,
      model: this.modelUrl,
      size,
      chunkBytes: size || 1,
      complete: true,
      added: now,
      used: now,
    };
    try {
      await this.store?.setBlock(key, 0, [bytes, await digestOf(bytes)]);
      await this.store?.setMeta(key, meta);
    } catch (error) {
      this.refuse(error);
    }
  }

  /**
   * Waits until no other tab downloads this model. `onLook` is called meanwhile and returns the bytes that are there.
   * The lock is kept until `unlock`.
   */
  async lock(signal: AbortSignal, onLook: () => Promise<number>): Promise<void> {
    if (this.refused !== undefined || !navigator.locks) return;
    const giveUp = new AbortController();
    const onAbort = () => giveUp.abort();
    signal.addEventListener('abort', onAbort);
    const locked = new Promise<boolean>((resolve) => {
      navigator.locks
        .request(`executorch-webgpu ${this.modelUrl}`, { signal: giveUp.signal }, () => {
          resolve(true);
          return new Promise<void>((release) => (this.release = release));
        })
        .catch(() => resolve(false));
    });
    try {
      let [bytes, since] = [-1, performance.now()];
      for (;;) {
        const waited = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), LOOK_MS));
        const done = await Promise.race([locked, waited]);
        if (done === false) return;
        if (done) return;
        const now = await onLook();
        if (now !== bytes) [bytes, since] = [now, performance.now()];
        else if (performance.now() - since > STALLED_MS) {
          this.refused = 'another tab is loading this model and does not get on';
          giveUp.abort();
          return;
        }
      }
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }
  unlock(): void {
    this.release?.();
    this.release = undefined;
  }

  private async isCurrent(meta: EntryMeta, spec: FileSpec, signal: AbortSignal): Promise<boolean> {
    if (meta.chunkBytes !== spec.chunkBytes) return false;
    if (spec.sha256) return meta.sha256 === spec.sha256;
    if (navigator.onLine === false) return true;
    try {
      const limited = within(signal, REVALIDATION_MS);
      const response = await request(meta.url, { signal: limited, mode: 'no-cache', method: 'HEAD' });
      const [validator, size] = [validatorOf(response), totalOf(response, 0)];
      if (size && meta.size && size !== meta.size) return false;
      if (validator !== undefined && meta.validator !== undefined) return validator === meta.validator;
      return meta.complete;
    } catch (error) {
      if (signal.aborted) throw error;
      // no network, or a server that answers no HEAD: a whole file is used, a part is not continued blindly
      if (meta.complete) this.note = `the kept copy is used, since ${(error as Error).message}`;
      return meta.complete;
    }
  }
}
