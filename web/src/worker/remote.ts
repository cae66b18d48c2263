// A file behind a URL: its chunks come from the cache or the network, are checked against their hashes, and are kept.
import { BLOCK_CHUNKS, blockBytes, chunksOf, digestOf, hex } from '../cache/block.js';
import { makeError } from '../errors.js';
import type { CachedModel, Entry } from './cached.js';
import { Download } from './download.js';
import { HEAD_BYTES, impostor } from './impostor.js';
import type { Opened } from './source.js';

/** A file as the manifest describes it; of a bare `.pte` only the path is known. */
export interface FileSpec {
  path: string;
  /** 0: unknown. */
  size: number;
  sha256?: string;
  /** SHA-256 of each chunk. */
  chunks?: readonly string[];
  chunkBytes: number;
}

export interface Traffic {
  fromCache: number;
  fromNetwork: number;
}
/** `cached`: of the bytes up to `position`, those that needed no network. */
export type OnPosition = (path: string, position: number, total: number, cached: boolean) => void;

const QUEUED_CHUNKS = 4;

export class RemoteFile {
  private download: Download | undefined;
  private found: Entry | undefined;
  private blocks = new Map<number, number>();
  /** The last block that was read or is being filled: its chunks from the first on. */
  private current: { index: number; chunks: Uint8Array<ArrayBuffer>[]; stored: boolean } | undefined;
  private writing: Promise<void> = Promise.resolve();
  private prepared: Promise<void> | undefined;
  private size: number;
  /** Set when the network says that the file ends. */
  private ended = false;
  /** One chunk at a time, whoever asks. */
  private turn: Promise<unknown> = Promise.resolve();

  constructor(
    readonly url: string,
    readonly spec: FileSpec,
    private readonly cache: CachedModel,
    private readonly traffic: Traffic,
    private readonly onPosition: OnPosition = () => undefined,
  ) {
    this.size = spec.size;
  }

  /** A stream from the chunk that holds `offset` on. */
  async open(offset: number, signal: AbortSignal): Promise<Opened> {
    await this.prepare(signal);
    const first = Math.floor(offset / this.spec.chunkBytes);
    let next = first;
    const opening = await this.chunk(next++, signal);
    const stream = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          if (opening) controller.enqueue(opening);
          else controller.close();
        },
        pull: async (controller) => {
          const bytes = await this.chunk(next++, signal);
          if (bytes) controller.enqueue(bytes);
          else controller.close();
        },
      },
      { highWaterMark: QUEUED_CHUNKS },
    );
    return { stream, start: first * this.spec.chunkBytes, total: this.size };
  }

  /** The whole file, for small ones. */
  async bytes(signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
    const { stream } = await this.open(0, signal);
    return new Uint8Array(await new Response(stream as ReadableStream<Uint8Array<ArrayBuffer>>).arrayBuffer());
  }

  /** True if every byte is in the cache. */
  async isCached(signal: AbortSignal): Promise<boolean> {
    await this.prepare(signal);
    return this.entry?.meta.complete === true;
  }
  /** Bytes in the cache, as far as this tab or another one has come. */
  async heldBytes(): Promise<number> {
    const blocks = this.entry ? await this.entry.stored() : new Map<number, number>();
    let held = 0;
    for (const stored of blocks.values()) held += blockBytes(stored, this.spec.chunkBytes);
    return held;
  }
  /** Looks again at what is there: another tab may have filled the entry meanwhile. */
  forget(): void {
    this.prepared = undefined;
  }

  /** Fetches what is still missing in the cache, so that the next load finds the file whole; never fails for that. */
  async finish(signal: AbortSignal): Promise<void> {
    if (this.entry && !this.entry.meta.complete) {
      try {
        for (let block = 0; !this.isEnd(block * BLOCK_CHUNKS); ++block) {
          if (this.isWhole(block)) continue;
          for (let i = 0; i < BLOCK_CHUNKS; ++i) if (!(await this.chunk(block * BLOCK_CHUNKS + i, signal))) break;
        }
        await this.writing;
        await this.entry?.complete(this.size);
      } catch (error) {
        this.cache.refuse(error);
      }
    } else await this.entry?.touch();
    this.close();
  }

  /** After a failure: keeps what has come of the block under way. */
  async abandon(): Promise<void> {
    if (this.current && !this.current.stored) this.store(this.current.index, this.current.chunks);
    await this.writing;
    this.close();
  }
  /** The entry in the cache, while files are kept. */
  private get entry(): Entry | undefined {
    return this.cache.refused === undefined ? this.found : undefined;
  }
  private close(): void {
    this.download?.close();
    this.download = undefined;
  }

  private prepare(signal: AbortSignal): Promise<void> {
    this.prepared ??= (async () => {
      this.found = await this.cache.entry(this.url, this.spec, signal);
      this.blocks = this.entry ? await this.entry.blocks() : new Map<number, number>();
      this.size ||= this.entry?.meta.size ?? 0;
    })();
    return this.prepared;
  }

  private isEnd(index: number): boolean {
    return this.ended || (this.size > 0 && index * this.spec.chunkBytes >= this.size);
  }
  private chunkSize(index: number): number {
    const { chunkBytes } = this.spec;
    return this.size ? Math.min(chunkBytes, this.size - index * chunkBytes) : chunkBytes;
  }
  private isWhole(block: number): boolean {
    const stored = this.blocks.get(block);
    if (stored === undefined) return false;
    const { chunkBytes } = this.spec;
    const bytes = blockBytes(stored, chunkBytes);
    return (
      bytes === BLOCK_CHUNKS * chunkBytes || (this.size > 0 && block * BLOCK_CHUNKS * chunkBytes + bytes === this.size)
    );
  }

  /** Undefined after the last one. */
  private chunk(index: number, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const result = this.turn.then(() => this.nextChunk(index, signal));
    this.turn = result.catch(() => undefined);
    return result;
  }
  private async nextChunk(index: number, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer> | undefined> {
    if (this.size > 0 && index * this.spec.chunkBytes >= this.size) return undefined;
    const block = Math.floor(index / BLOCK_CHUNKS);
    if (this.current?.index !== block) await this.enter(block);
    const ready = this.current?.chunks[index - block * BLOCK_CHUNKS];
    if (ready) return ready;
    const bytes = await this.fromNetwork(index, signal);
    if (!bytes) {
      if (this.current && !this.current.stored) this.store(block, this.current.chunks);
      return undefined;
    }
    this.collect(index, block, bytes);
    return bytes;
  }

  /** Makes a block the current one; what the cache has of it is read and checked. */
  private async enter(block: number): Promise<void> {
    await this.writing; // a slow disk holds up the network, not the memory
    this.current = { index: block, chunks: [], stored: false };
    if (!this.entry || !this.blocks.has(block)) return;
    const stored = await this.entry.block(block);
    if (!stored) return;
    const from = block * BLOCK_CHUNKS;
    const chunks = await chunksOf(stored, this.spec.chunkBytes, this.spec.chunks?.slice(from, from + BLOCK_CHUNKS));
    // a short chunk that is not the file's last cannot be continued
    const usable = chunks.filter((c, i) => c.length === this.chunkSize(from + i));
    this.current = { index: block, chunks: usable, stored: usable.length === chunks.length && this.isWhole(block) };
    if (usable.length === 0) return;
    const end = from * this.spec.chunkBytes + usable.reduce((sum, c) => sum + c.length, 0);
    this.traffic.fromCache += usable.reduce((sum, c) => sum + c.length, 0);
    this.onPosition(this.spec.path, end, this.size, true);
  }

  private async fromNetwork(index: number, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const at = index * this.spec.chunkBytes;
    if (this.download?.position !== at) {
      this.close();
      this.download = await this.connect(at, signal);
    }
    const bytes = await this.download.take(this.chunkSize(index));
    this.traffic.fromNetwork += bytes.length;
    if (bytes.length === 0 || bytes.length < this.chunkSize(index)) {
      if (this.size) {
        const head = index === 0 && this.spec.size ? bytes : new Uint8Array(0);
        throw this.otherFile(head, `ends after ${at + bytes.length} of ${this.size} bytes`);
      }
      this.size = at + bytes.length;
      this.ended = true;
      if (bytes.length === 0) return undefined;
    }
    return this.check(index, bytes, signal);
  }

  private async connect(at: number, signal: AbortSignal): Promise<Download> {
    const download = await Download.open(this.url, at, signal, this.entry ? 'no-store' : 'default', (position, total) =>
      this.onPosition(this.spec.path, position, this.size || total, false),
    );
    if (this.spec.size && download.total && download.total !== this.spec.size) {
      const head = at === 0 ? await download.take(Math.min(HEAD_BYTES, download.total)) : new Uint8Array(0);
      download.close();
      throw this.otherFile(head, `has ${download.total} bytes on the server, its manifest says ${this.spec.size}`);
    }
    this.size ||= download.total;
    await this.entry?.describe(this.size, download.validator);
    return download;
  }

  /** The error where the server has another file than the manifest describes. */
  private otherFile(head: Uint8Array, otherwise: string): Error {
    const what = impostor(head);
    return what === undefined
      ? makeError('io_error', `${this.url} ${otherwise}`)
      : makeError('not_a_program', `${this.url} is ${what}, not the file of ${this.spec.size} bytes in the manifest`);
  }

  /** A chunk that does not match the manifest is fetched once more, by itself. */
  private async check(
    index: number,
    bytes: Uint8Array<ArrayBuffer>,
    signal: AbortSignal,
  ): Promise<Uint8Array<ArrayBuffer>> {
    const expected = this.spec.chunks?.[index];
    if (expected === undefined || !globalThis.crypto?.subtle) return bytes;
    if (hex(await digestOf(bytes)) === expected) return bytes;
    // another connection, and no cache on the way
    const again = await Download.open(this.url, index * this.spec.chunkBytes, signal, 'reload', () => undefined);
    const second = await again.take(this.chunkSize(index)).finally(() => again.close());
    this.traffic.fromNetwork += second.length;
    if (hex(await digestOf(second)) === expected) return second;
    throw makeError(
      'integrity',
      `${this.url}: chunk ${index} (bytes ${index * this.spec.chunkBytes} to ` +
        `${index * this.spec.chunkBytes + bytes.length}) does not match its hash in the manifest, twice`,
    );
  }

  private collect(index: number, block: number, bytes: Uint8Array<ArrayBuffer>): void {
    const { current } = this;
    if (!current || !this.entry) return;
    // a block that was entered in its middle is left to finish()
    if (current.chunks.length !== index - block * BLOCK_CHUNKS) return;
    current.chunks.push(bytes);
    if (current.chunks.length === BLOCK_CHUNKS || this.isEnd(index + 1)) {
      this.store(block, current.chunks);
      current.stored = true;
    }
  }

  private store(block: number, chunks: Uint8Array<ArrayBuffer>[]): void {
    const { entry } = this;
    if (!entry || chunks.length === 0) return;
    this.writing = this.writing.then(async () => {
      if (this.entry !== entry) return;
      try {
        const stored = await entry.setBlock(block, chunks);
        this.blocks.set(block, stored);
      } catch (error) {
        this.cache.refuse(error); // the load goes on without
      }
    });
  }
}
