// A private file system and a file server in memory, for tests of the cache and of downloads.
import { createHash } from 'node:crypto';
import { vi } from 'vitest';

type Node = FakeFile | FakeFolder;

class FakeFile {
  readonly kind = 'file';
  bytes = new Uint8Array(0);
  constructor(private readonly disk: FakeDisk) {}
  getFile(): Promise<Blob> {
    return Promise.resolve(new Blob([this.bytes]));
  }
  createWritable() {
    const parts: Uint8Array[] = [];
    return Promise.resolve({
      write: (part: Uint8Array) => {
        parts.push(part.slice());
        return Promise.resolve();
      },
      close: () => {
        const bytes = Buffer.concat(parts);
        this.disk.take(bytes.length - this.bytes.length);
        this.bytes = new Uint8Array(bytes);
        return Promise.resolve();
      },
    });
  }
}

const missing = () => Promise.reject(new DOMException('not found', 'NotFoundError'));

class FakeFolder {
  readonly kind = 'directory';
  readonly children = new Map<string, Node>();
  constructor(private readonly disk: FakeDisk) {}
  getDirectoryHandle(name: string, { create = false } = {}): Promise<FakeFolder> {
    if (!this.children.has(name) && create) this.children.set(name, new FakeFolder(this.disk));
    const found = this.children.get(name);
    return found instanceof FakeFolder ? Promise.resolve(found) : missing();
  }
  getFileHandle(name: string, { create = false } = {}): Promise<FakeFile> {
    if (!this.children.has(name) && create) this.children.set(name, new FakeFile(this.disk));
    const found = this.children.get(name);
    return found instanceof FakeFile ? Promise.resolve(found) : missing();
  }
  removeEntry(name: string): Promise<void> {
    return this.children.delete(name) ? Promise.resolve() : missing();
  }
  async *entries(): AsyncGenerator<[string, Node]> {
    for (const entry of [...this.children]) yield await Promise.resolve(entry);
  }
  *files(): Generator<[string, FakeFile]> {
    for (const [name, child] of this.children) {
      if (child instanceof FakeFile) yield [name, child];
      else yield* child.files();
    }
  }
}

export class FakeDisk {
  readonly root = new FakeFolder(this);
  used = 0;
  /** What is really there, and what the browser says is. */
  quota = Infinity;
  estimated = Infinity;
  onLine = true;
  take(bytes: number): void {
    if (this.used + bytes > this.quota) throw new DOMException('the disk is full', 'QuotaExceededError');
    this.used += bytes;
  }
  /** Puts it behind `navigator`; without Web Locks unless given. */
  install(locks?: unknown): this {
    vi.stubGlobal('navigator', {
      storage: {
        getDirectory: () => Promise.resolve(this.root),
        estimate: () => Promise.resolve({ usage: 0, quota: this.estimated }),
      },
      ...(locks !== undefined && { locks }),
    });
    Object.defineProperty(navigator, 'onLine', { get: () => this.onLine });
    return this;
  }
}

/** Every byte depends on its position, so that a shifted or swapped piece cannot look right. */
export function pattern(size: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: size }, (_, i) => (i * 31 + (i >> 8) * 7 + (i >> 16)) & 0xff);
}
export const sha256 = (bytes: Uint8Array) => createHash('sha256').update(bytes).digest('hex');

export interface Served {
  bytes: Uint8Array<ArrayBuffer>;
  etag?: string;
  /** Connections end after this position of the file. */
  cutAt?: number;
  /** Answers ranges with the whole file. */
  noRange?: boolean;
  /** Sends no length, as with compression. */
  noLength?: boolean;
  /** Position that arrives damaged, as often as this. */
  damage?: { at: number; times: number };
}

export class FakeServer {
  readonly files = new Map<string, Served>();
  readonly requests: { method: string; url: string; range: string | undefined }[] = [];
  down = false;
  pieceBytes = 700;

  install(): this {
    vi.stubGlobal('fetch', (url: string, init: RequestInit = {}) => this.answer(String(url), init));
    return this;
  }
  /** Byte ranges that were asked for since the last call. */
  taken(): string[] {
    return this.requests.splice(0).map((r) => `${r.method} ${r.range ?? 'all'}`);
  }

  private answer(url: string, init: RequestInit): Promise<Response> {
    const method = init.method ?? 'GET';
    const range = (init.headers as Record<string, string> | undefined)?.Range;
    this.requests.push({ method, url, range });
    if (this.down) return Promise.reject(new TypeError('network is down'));
    const file = this.files.get(url);
    if (!file) return Promise.resolve(new Response('', { status: 404 }));
    const start = file.noRange || !range ? 0 : Number(/bytes=(\d+)-/.exec(range)?.[1]);
    const headers: Record<string, string> = {
      ...(!file.noLength && { 'Content-Length': String(file.bytes.length - start) }),
      ...(file.etag && { ETag: file.etag }),
      ...(start > 0 && { 'Content-Range': `bytes ${start}-${file.bytes.length - 1}/${file.bytes.length}` }),
    };
    const status = start > 0 ? 206 : 200;
    if (method === 'HEAD') return Promise.resolve(new Response(null, { headers }));
    return Promise.resolve(new Response(this.body(file, start), { status, headers }));
  }
  private body(file: Served, start: number): ReadableStream<Uint8Array> {
    let at = start;
    return new ReadableStream({
      pull: (controller) => {
        const end = Math.min(file.bytes.length, file.cutAt ?? Infinity);
        if (at >= end) {
          if (at < file.bytes.length) controller.error(new TypeError('connection reset'));
          else controller.close();
          return;
        }
        const piece = file.bytes.slice(at, Math.min(end, at + this.pieceBytes));
        const { damage } = file;
        if (damage && damage.times > 0 && damage.at >= at && damage.at < at + piece.length) {
          damage.times--;
          piece[damage.at - at] = (piece[damage.at - at] as number) ^ 0xff;
        }
        at += piece.length;
        controller.enqueue(piece);
      },
    });
  }
}
