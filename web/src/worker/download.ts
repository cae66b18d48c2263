// A file's bytes from the network, from any position on. A connection that breaks is taken up again where it broke, as
// long as each attempt brings something.
import { makeError } from '../errors.js';

const cancelled = () => makeError('cancelled', 'the download was cancelled');

export interface RequestOptions {
  signal: AbortSignal;
  /** `no-store`: the file is kept elsewhere, and twice is too often. */
  mode?: RequestCache;
  headers?: Record<string, string>;
  method?: 'GET' | 'HEAD';
}

/** fetch with this package's errors. @throws DownloadError that names the URL and what the server said. */
export async function request(url: string, options: RequestOptions): Promise<Response> {
  const { signal, mode = 'default', headers = {}, method = 'GET' } = options;
  let response: Response;
  try {
    response = await fetch(url, { signal, cache: mode, headers, method });
  } catch (error) {
    if (signal.aborted) throw cancelled();
    throw makeError('io_error', `${url} could not be fetched: ${String(error)}`);
  }
  if (response.ok) return response;
  throw makeError('io_error', `${url}: the server answered ${response.status} ${response.statusText}`.trimEnd());
}

/** What tells one version of a file from another: the ETag, else the date. */
export function validatorOf(response: Response): string | undefined {
  const tag = response.headers.get('ETag')?.replace(/^W\//, '');
  return tag || (response.headers.get('Last-Modified') ?? undefined);
}

/** Bytes of the whole file by a response's headers; 0 where they don't tell, as with compression. */
export function totalOf(response: Response, start: number): number {
  if (response.headers.has('Content-Encoding')) return 0;
  const range = /\/(\d+)$/.exec(response.headers.get('Content-Range') ?? '');
  if (range) return Number(range[1]);
  const length = Number(response.headers.get('Content-Length') ?? 0);
  return length ? start + length : 0;
}

export class Download {
  /** Bytes of the whole file, 0 while unknown. */
  total = 0;
  validator: string | undefined;
  private reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  private rest: Uint8Array = new Uint8Array(0);
  /** Position of the first byte of `rest`. */
  position: number;
  private gained = false;

  private constructor(
    private readonly url: string,
    from: number,
    private readonly signal: AbortSignal,
    private readonly mode: RequestCache,
    private readonly onBytes: (position: number, total: number) => void,
  ) {
    this.position = from;
  }

  static async open(
    url: string,
    from: number,
    signal: AbortSignal,
    mode: RequestCache,
    onBytes: (position: number, total: number) => void,
  ): Promise<Download> {
    const self = new Download(url, from, signal, mode, onBytes);
    await self.connect();
    return self;
  }

  /** The next `count` bytes; fewer only at the end of a file whose size nobody knew. */
  async take(count: number): Promise<Uint8Array<ArrayBuffer>> {
    const out = new Uint8Array(count);
    let have = 0;
    while (have < count) {
      if (this.rest.length === 0 && !(await this.more())) break;
      const piece = this.rest.subarray(0, count - have);
      out.set(piece, have);
      have += piece.length;
      this.rest = this.rest.subarray(piece.length);
      this.position += piece.length;
    }
    return out.subarray(0, have);
  }

  close(): void {
    void this.reader?.cancel().catch(() => undefined);
    this.reader = undefined;
  }

  private async connect(): Promise<void> {
    const from = this.position;
    const response = await request(this.url, {
      signal: this.signal,
      mode: this.mode,
      ...(from > 0 && { headers: { Range: `bytes=${from}-` } }),
    });
    const validator = validatorOf(response);
    if (this.validator !== undefined && validator !== this.validator) {
      void response.body?.cancel();
      throw makeError('io_error', `${this.url} changed on the server while it was being loaded: load it again`);
    }
    this.validator = validator;
    // where a server ignores ranges, the stream begins at 0 and is skipped over
    const start = response.status === 206 ? from : 0;
    this.total = totalOf(response, start) || this.total;
    this.reader = response.body?.getReader();
    this.gained = false;
    if (start < from) await this.skip(from - start);
  }

  private async skip(bytes: number): Promise<void> {
    for (let left = bytes; left > 0;) {
      const piece = await this.read();
      if (!piece) throw this.ended(bytes - left);
      this.rest = piece.subarray(left);
      left -= Math.min(left, piece.length);
    }
  }

  /** Fills `rest`; false at the end. */
  private async more(): Promise<boolean> {
    for (;;) {
      let problem: Error;
      try {
        const piece = await this.read();
        if (piece) {
          if (piece.length === 0) continue;
          this.rest = piece;
          this.gained = true;
          this.onBytes(this.position + piece.length, this.total);
          return true;
        }
        if (!this.total || this.position >= this.total) return false;
        problem = this.ended(this.position);
      } catch (error) {
        problem = error as Error;
      }
      if (this.signal.aborted) throw cancelled();
      if (!this.gained || !this.total) throw problem;
      await this.connect().catch((error: unknown) => {
        throw (error as { code?: string }).code === 'cancelled' ? error : problem;
      });
    }
  }

  private ended(at: number): Error {
    const of = this.total ? ` of ${this.total}` : '';
    return makeError('io_error', `${this.url} ends after ${at}${of} bytes`);
  }

  private async read(): Promise<Uint8Array | undefined> {
    try {
      return (await this.reader?.read())?.value;
    } catch (error) {
      if (this.signal.aborted) throw cancelled();
      throw makeError('io_error', `${this.url}: the download broke off at byte ${this.position}: ${String(error)}`);
    }
  }
}
