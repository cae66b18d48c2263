// Where downloaded files are kept: as blocks of whole chunks, each block written once with the digests of its chunks.
// A block is valid or it is not, whatever was interrupted and however many tabs read it. OPFS holds them; where it is
// missing, CacheStorage does.
import { blockBytes, join } from './block.js';

/** What is known of a cached file besides its blocks. */
export interface EntryMeta {
  format: 1;
  url: string;
  /** URL of the model that it was loaded for: what `cache.list()` groups by. */
  model: string;
  /** Bytes of the whole file, 0 while unknown. */
  size: number;
  chunkBytes: number;
  /** Of the whole file, by the manifest. */
  sha256?: string;
  /** ETag or Last-Modified of the response that the blocks come from. */
  validator?: string;
  complete: boolean;
  /** Milliseconds since 1970. */
  added: number;
  used: number;
}

export interface BlockStore {
  readonly kind: 'opfs' | 'cachestorage';
  /** Keys of all entries. */
  keys(): Promise<string[]>;
  /** Undefined if there is no such entry or its description is unreadable. */
  meta(key: string): Promise<EntryMeta | undefined>;
  setMeta(key: string, meta: EntryMeta): Promise<void>;
  /** Stored bytes (digests included) by block number. */
  blocks(key: string): Promise<Map<number, number>>;
  block(key: string, index: number): Promise<Uint8Array<ArrayBuffer> | undefined>;
  /** @throws DOMException QuotaExceededError where there is no room. */
  setBlock(key: string, index: number, parts: Uint8Array<ArrayBuffer>[]): Promise<void>;
  remove(key: string): Promise<void>;
}

const ROOT = 'executorch-webgpu';
const META = 'meta.json';
const encoder = new TextEncoder();

const parseMeta = (text: string): EntryMeta | undefined => {
  try {
    const meta = JSON.parse(text) as EntryMeta;
    return meta.format === 1 ? meta : undefined;
  } catch {
    return undefined;
  }
};

/** The name of an entry: SHA-256 of its URL. */
export async function keyOf(url: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', encoder.encode(url)));
  return [...digest.subarray(0, 20)].map((b) => b.toString(16).padStart(2, '0')).join('');
}

class OpfsStore implements BlockStore {
  readonly kind = 'opfs';
  constructor(private readonly root: FileSystemDirectoryHandle) {}

  async keys(): Promise<string[]> {
    const keys: string[] = [];
    for await (const [name, handle] of this.root.entries()) if (handle.kind === 'directory') keys.push(name);
    return keys;
  }
  async meta(key: string): Promise<EntryMeta | undefined> {
    const file = await this.file(key, META);
    return file && parseMeta(await file.text());
  }
  setMeta(key: string, meta: EntryMeta): Promise<void> {
    return this.write(key, META, [encoder.encode(JSON.stringify(meta))]);
  }
  async blocks(key: string): Promise<Map<number, number>> {
    const found = new Map<number, number>();
    const folder = await this.root.getDirectoryHandle(key).catch(() => undefined);
    if (!folder) return found;
    for await (const [name, handle] of folder.entries()) {
      if (/^\d+$/.test(name)) found.set(Number(name), (await (handle as FileSystemFileHandle).getFile()).size);
    }
    return found;
  }
  async block(key: string, index: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const file = await this.file(key, String(index));
    return file && new Uint8Array(await file.arrayBuffer());
  }
  setBlock(key: string, index: number, parts: Uint8Array<ArrayBuffer>[]): Promise<void> {
    return this.write(key, String(index), parts);
  }
  async remove(key: string): Promise<void> {
    await this.root.removeEntry(key, { recursive: true }).catch((error: unknown) => {
      if ((error as Error).name !== 'NotFoundError') throw error;
    });
  }

  private async file(key: string, name: string): Promise<File | undefined> {
    try {
      return await (await (await this.root.getDirectoryHandle(key)).getFileHandle(name)).getFile();
    } catch {
      return undefined; // another tab may have deleted it
    }
  }
  private async write(key: string, name: string, parts: Uint8Array<ArrayBuffer>[]): Promise<void> {
    const folder = await this.root.getDirectoryHandle(key, { create: true });
    const handle = await folder.getFileHandle(name, { create: true });
    if (!('createSyncAccessHandle' in handle)) return writeAsync(handle, parts); // not in a dedicated worker
    const access = await (handle as SyncAccessFileHandle).createSyncAccessHandle();
    try {
      access.truncate(0);
      let at = 0;
      for (const part of parts) {
        const written = access.write(part, { at });
        if (written < part.length) throw new DOMException('the disk took only a part', 'QuotaExceededError');
        at += written;
      }
      access.flush();
    } finally {
      access.close();
    }
  }
}

/** Of dedicated workers only, so not in TypeScript's DOM library. */
interface SyncAccessFileHandle {
  createSyncAccessHandle(): Promise<{
    write(bytes: Uint8Array, options: { at: number }): number;
    truncate(size: number): void;
    flush(): void;
    close(): void;
  }>;
}
async function writeAsync(handle: FileSystemFileHandle, parts: Uint8Array<ArrayBuffer>[]): Promise<void> {
  const writable = await handle.createWritable();
  for (const part of parts) await writable.write(part);
  await writable.close();
}

class CacheStorageStore implements BlockStore {
  readonly kind = 'cachestorage';
  constructor(private readonly cache: Cache) {}

  async keys(): Promise<string[]> {
    return [...new Set((await this.names()).map(([key]) => key))];
  }
  async meta(key: string): Promise<EntryMeta | undefined> {
    const response = await this.cache.match(this.url(key, META));
    return response && parseMeta(await response.text());
  }
  async setMeta(key: string, meta: EntryMeta): Promise<void> {
    await this.put(key, META, [encoder.encode(JSON.stringify(meta))]);
  }
  async blocks(key: string): Promise<Map<number, number>> {
    const found = new Map<number, number>();
    for (const [owner, name] of await this.names()) {
      if (owner !== key || name === META) continue;
      const response = await this.cache.match(this.url(key, name));
      if (response) found.set(Number(name), Number(response.headers.get('Content-Length')));
    }
    return found;
  }
  async block(key: string, index: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const response = await this.cache.match(this.url(key, String(index)));
    return response && new Uint8Array(await response.arrayBuffer());
  }
  setBlock(key: string, index: number, parts: Uint8Array<ArrayBuffer>[]): Promise<void> {
    return this.put(key, String(index), parts);
  }
  async remove(key: string): Promise<void> {
    for (const [owner, name] of await this.names()) if (owner === key) await this.cache.delete(this.url(owner, name));
  }

  private async names(): Promise<[key: string, name: string][]> {
    return (await this.cache.keys()).map(({ url }) => new URL(url).pathname.slice(1).split('/') as [string, string]);
  }
  private put(key: string, name: string, parts: Uint8Array<ArrayBuffer>[]): Promise<void> {
    const body = join(parts);
    return this.cache.put(
      this.url(key, name),
      new Response(body, { headers: { 'Content-Length': String(body.length) } }),
    );
  }
  // never fetched: a name in the form that CacheStorage wants
  private url(key: string, name: string): string {
    return `https://${ROOT}.invalid/${key}/${name}`;
  }
}

/**
 * The store of this origin.
 * @returns a sentence that says why there is none, in its place.
 */
export async function openStore(prefer: 'opfs' | 'cachestorage' = 'opfs'): Promise<BlockStore | string> {
  if (!globalThis.crypto?.subtle) return 'a page without https keeps no files';
  const problems: string[] = [];
  if (prefer === 'opfs' && typeof navigator.storage?.getDirectory === 'function') {
    try {
      const root = await (await navigator.storage.getDirectory()).getDirectoryHandle(ROOT, { create: true });
      // a browser without either way of writing here (Safari before 26, outside of a worker) can still read
      const probe = await root.getFileHandle('probe', { create: true });
      if ('createSyncAccessHandle' in probe || 'createWritable' in probe) return new OpfsStore(root);
      problems.push('the private file system is read-only here');
    } catch (error) {
      problems.push(String(error)); // such as a private window
    }
  }
  if (typeof caches === 'object') {
    try {
      return new CacheStorageStore(await caches.open(ROOT));
    } catch (error) {
      problems.push(String(error));
    }
  }
  return `this browser keeps no files here: ${problems.join('; ') || 'neither OPFS nor CacheStorage'}`;
}

/** Bytes of a file that an entry's blocks hold. */
export function heldBytes(meta: EntryMeta, blocks: Map<number, number>): number {
  let bytes = 0;
  for (const stored of blocks.values()) bytes += blockBytes(stored, meta.chunkBytes);
  return bytes;
}
