// Where a model's files come from: a URL, files at hand, or a stream.
import { makeError } from '../errors.js';
import type { SourceRef } from '../protocol.js';
import type { CacheInfo } from '../types.js';
import { CachedModel } from './cached.js';
import { HEAD_BYTES, impostor } from './impostor.js';
import { RemoteFile, type FileSpec, type OnPosition, type Traffic } from './remote.js';
import type { Open } from './source.js';

export interface Place {
  /** For messages. */
  readonly name: string;
  /** A model folder, with a manifest; else a bare program. */
  readonly folder: boolean;
  /** The parsed manifest; undefined where a folder at hand has none. `parse` throws for what is none. */
  manifest<T>(signal: AbortSignal, parse: (url: string, bytes: Uint8Array) => T): Promise<T | undefined>;
  /** Paths that are known without a manifest. */
  readonly paths: readonly string[];
  describe(path: string): string;
  /** Files that will be read; `onWait` reports the bytes while another tab downloads them. */
  begin(specs: readonly FileSpec[], signal: AbortSignal, onWait: (bytes: number) => void): Promise<void>;
  open(spec: FileSpec): Open;
  bytes(spec: FileSpec, signal: AbortSignal): Promise<Uint8Array>;
  /** After a load: keeps what belongs to the files and was not read. */
  finish(signal: AbortSignal): Promise<void>;
  /** After a failed one. */
  abandon(): Promise<void>;
  report(): CacheInfo;
}

const fileName = (path: string) => path.slice(path.lastIndexOf('/') + 1);

class UrlPlace implements Place {
  readonly name: string;
  readonly folder: boolean;
  readonly paths: readonly string[];
  private readonly base: URL;
  private readonly files = new Map<string, RemoteFile>();
  private readonly traffic: Traffic = { fromCache: 0, fromNetwork: 0 };

  constructor(
    modelUrl: string,
    private readonly cache: CachedModel,
    private readonly onPosition: OnPosition,
  ) {
    this.base = new URL(modelUrl);
    this.folder = this.base.pathname.endsWith('/');
    this.name = modelUrl;
    this.paths = this.folder ? [] : [fileName(this.base.pathname)];
  }

  manifest<T>(signal: AbortSignal, parse: (url: string, bytes: Uint8Array) => T): Promise<T> {
    const url = this.describe('manifest.json');
    return this.cache.revalidated(url, signal, (bytes) => parse(url, bytes));
  }
  describe(path: string): string {
    // with its query: addresses may be signed
    return path === this.paths[0] ? this.base.href : new URL(path, this.base).href;
  }
  async begin(specs: readonly FileSpec[], signal: AbortSignal, onWait: (bytes: number) => void): Promise<void> {
    for (const spec of specs) {
      const file = new RemoteFile(this.describe(spec.path), spec, this.cache, this.traffic, this.onPosition);
      this.files.set(spec.path, file);
    }
    const files = [...this.files.values()];
    const look = async () => (await Promise.all(files.map((f) => f.heldBytes()))).reduce((a, b) => a + b, 0);
    if (this.cache.refused !== undefined || (await this.allCached(files, signal))) return;
    await this.cache.lock(signal, async () => {
      const bytes = await look();
      onWait(bytes);
      return bytes;
    });
    for (const file of files) file.forget();
    if (await this.allCached(files, signal)) return this.cache.unlock();
    const size = specs.reduce((sum, spec) => sum + spec.size, 0);
    await this.cache.needs(Math.max(0, size - (await look())));
  }
  open(spec: FileSpec): Open {
    return (offset, signal) => this.file(spec).open(offset, signal);
  }
  bytes(spec: FileSpec, signal: AbortSignal): Promise<Uint8Array> {
    return this.file(spec).bytes(signal);
  }
  async finish(signal: AbortSignal): Promise<void> {
    await Promise.all([...this.files.values()].map((f) => f.finish(signal)));
    this.cache.unlock();
  }
  async abandon(): Promise<void> {
    await Promise.allSettled([...this.files.values()].map((f) => f.abandon()));
    this.cache.unlock();
  }
  report(): CacheInfo {
    const { refused, note, kind } = this.cache;
    const { fromCache, fromNetwork } = this.traffic;
    const state = refused !== undefined ? 'off' : fromNetwork === 0 ? 'hit' : 'stored';
    const reason = refused ?? note;
    return {
      state,
      ...(reason !== undefined && { reason }),
      ...(refused === undefined && kind && { storage: kind }),
      bytesFromCache: fromCache,
      bytesFromNetwork: fromNetwork,
    };
  }

  private file(spec: FileSpec): RemoteFile {
    const file = this.files.get(spec.path);
    if (!file) throw makeError('internal', `${spec.path} was not announced`);
    return file;
  }
  private async allCached(files: RemoteFile[], signal: AbortSignal): Promise<boolean> {
    return (await Promise.all(files.map((f) => f.isCached(signal)))).every(Boolean);
  }
}

const NOT_KEPT: CacheInfo = {
  state: 'off',
  reason: 'the files are at hand, not at a URL',
  bytesFromCache: 0,
  bytesFromNetwork: 0,
};

class BlobPlace implements Place {
  readonly name: string;
  readonly folder: boolean;
  readonly paths: readonly string[];
  private readonly blobs: Map<string, Blob>;

  /** Paths are relative to the folder of the manifest, or of the program. */
  constructor(files: readonly { path: string; blob: Blob }[]) {
    const at = (test: RegExp) =>
      files.filter(({ path }) => test.test(path)).sort((a, b) => a.path.split('/').length - b.path.split('/').length);
    const manifest = at(/(^|\/)manifest\.json$/)[0];
    const program = files.length === 1 ? files[0] : at(/\.pte$/)[0];
    const main = files.length === 1 ? program : (manifest ?? program);
    if (!main) {
      throw makeError('not_a_program', 'none of the files is a manifest.json or a .pte: choose the whole model folder');
    }
    const base = main.path.slice(0, main.path.lastIndexOf('/') + 1);
    this.blobs = new Map(
      files.filter((f) => f.path.startsWith(base)).map(({ path, blob }) => [path.slice(base.length), blob]),
    );
    this.folder = main === manifest;
    this.name = main.path || 'the file';
    this.paths = [...this.blobs.keys()].sort((a, b) => +(a !== fileName(main.path)) - +(b !== fileName(main.path)));
  }
  async manifest<T>(_signal: AbortSignal, parse: (url: string, bytes: Uint8Array) => T): Promise<T | undefined> {
    const blob = this.blobs.get('manifest.json');
    return blob && this.folder ? parse('manifest.json', new Uint8Array(await blob.arrayBuffer())) : undefined;
  }
  describe(path: string): string {
    return path;
  }
  async begin(specs: readonly FileSpec[]): Promise<void> {
    for (const spec of specs) {
      const blob = this.blob(spec.path);
      if (!spec.size || blob.size === spec.size) continue;
      const what = impostor(new Uint8Array(await blob.slice(0, HEAD_BYTES).arrayBuffer()));
      if (what) throw makeError('not_a_program', `${spec.path} is ${what}, not the file in the manifest`);
      const message = `${spec.path} has ${blob.size} bytes, its manifest says ${spec.size}: it was not copied whole`;
      throw makeError('io_error', message);
    }
  }
  open(spec: FileSpec): Open {
    const blob = this.blob(spec.path);
    return (offset) => Promise.resolve({ stream: blob.slice(offset).stream(), start: offset, total: blob.size });
  }
  async bytes(spec: FileSpec): Promise<Uint8Array> {
    return new Uint8Array(await this.blob(spec.path).arrayBuffer());
  }
  async finish(): Promise<void> {}
  async abandon(): Promise<void> {}
  report(): CacheInfo {
    return NOT_KEPT;
  }

  private blob(path: string): Blob {
    const blob = this.blobs.get(path);
    if (!blob) throw makeError('io_error', `${path} is not among the files: choose the whole model folder`);
    return blob;
  }
}

class StreamPlace implements Place {
  readonly name = 'the stream';
  readonly folder = false;
  readonly paths = ['the stream'];
  constructor(private readonly stream: ReadableStream<Uint8Array>) {}

  manifest(): Promise<undefined> {
    return Promise.resolve(undefined);
  }
  describe(path: string): string {
    return path;
  }
  async begin(): Promise<void> {}
  open(): Open {
    let opened = false;
    return () => {
      if (opened) return Promise.reject(makeError('io_error', 'a stream can be read only once: pass a Blob or a URL'));
      opened = true;
      return Promise.resolve({ stream: this.stream, start: 0, total: 0 });
    };
  }
  bytes(): Promise<Uint8Array> {
    return Promise.reject(makeError('internal', 'a stream is a program, nothing else'));
  }
  async finish(): Promise<void> {}
  async abandon(): Promise<void> {
    await this.stream.cancel().catch(() => undefined);
  }
  report(): CacheInfo {
    return NOT_KEPT;
  }
}

export interface CacheOptions {
  mode: 'auto' | 'none';
  storage?: 'opfs' | 'cachestorage';
}

export async function openPlace(source: SourceRef, cache: CacheOptions, onPosition: OnPosition): Promise<Place> {
  switch (source.kind) {
    case 'url': {
      const remote = /^https?:/.test(source.url);
      const kept = await CachedModel.open(source.url, remote ? cache.mode : 'none', cache.storage);
      return new UrlPlace(source.url, kept, onPosition);
    }
    case 'files':
      return new BlobPlace(source.files);
    case 'stream':
      return new StreamPlace(source.stream);
  }
}
