// Serving byte ranges of a file from one forward pass over a download.
import { ExecuTorchError, makeError } from '../errors.js';

/** A range of the file and where its bytes go; `write` gets them in order, in pieces of any length. */
export interface ReadTarget {
  offset: number;
  size: number;
  write(bytes: Uint8Array): void;
  /** After the last byte. */
  end?(): void;
}

/** A stream of a file's bytes from `start` on. */
export interface Opened {
  stream: ReadableStream<Uint8Array>;
  start: number;
  /** Bytes of the whole file, 0 if the server did not say. */
  total: number;
}
export type Open = (offset: number, signal: AbortSignal) => Promise<Opened>;

/** Pieces handed out are at most this long, so that a slow consumer does not hold up everything. */
const PAUSE_BYTES = 64 << 20;

export class StreamSource {
  private reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  private position = 0;
  private rest: Uint8Array = new Uint8Array(0); // received, not yet consumed; begins at `position`
  private sincePause = 0;

  /**
   * `expected`: bytes that the manifest promises, 0 if nothing does. `onPosition`: how far the download is.
   * `pause`: awaited now and then, so that what takes the bytes can keep up.
   */
  constructor(
    readonly name: string,
    private readonly open: Open,
    private readonly signal: AbortSignal,
    private readonly expected = 0,
    private readonly onPosition: (bytes: number, total: number) => void = () => undefined,
    private readonly pause: () => Promise<unknown> = () => Promise.resolve(),
  ) {}

  total = 0;
  /** What the first failed read threw: on its way through the module it would lose its class. */
  failure: unknown;

  /** Serves all targets. Targets may overlap; those before the position of the stream start a new request. */
  async read(targets: ReadTarget[]): Promise<void> {
    try {
      await this.serve(targets);
    } catch (error) {
      this.failure ??= error;
      throw error;
    }
  }

  private async serve(targets: ReadTarget[]): Promise<void> {
    const todo = targets.map((target) => ({ target, done: 0 })).sort((a, b) => a.target.offset - b.target.offset);
    for (const t of todo) if (t.target.size === 0) t.target.end?.();
    let active = todo.filter((t) => t.target.size > 0);
    const last = Math.max(0, ...active.map((t) => t.target.offset + t.target.size));
    const frontier = () => active.reduce((least, t) => Math.min(least, t.target.offset + t.done), last);
    while (active.length) {
      await this.seek(frontier());
      const end = this.position + this.rest.length;
      for (const t of active) {
        if (t.target.offset >= end) break;
        const from = t.target.offset + t.done;
        const to = Math.min(end, t.target.offset + t.target.size);
        if (to > from) t.target.write(this.rest.subarray(from - this.position, to - this.position));
        t.done = to - t.target.offset;
        if (t.done === t.target.size) t.target.end?.();
      }
      active = active.filter((t) => t.done < t.target.size);
      this.consume(Math.min(this.rest.length, frontier() - this.position));
      if (this.sincePause >= PAUSE_BYTES) {
        this.sincePause = 0;
        await this.pause();
      }
    }
  }

  /** Ends the download. */
  close(): void {
    void this.reader?.cancel().catch(() => undefined);
    this.reader = undefined;
    this.rest = new Uint8Array(0);
  }

  private consume(bytes: number): void {
    this.rest = this.rest.subarray(bytes);
    this.position += bytes;
    this.sincePause += bytes;
  }

  /** Makes `rest` begin with the byte at `offset`; skips forward over what nobody needs. */
  private async seek(offset: number): Promise<void> {
    if (this.reader && offset < this.position) this.close();
    if (!this.reader) {
      const opened = await this.open(offset, this.signal);
      this.reader = opened.stream.getReader();
      this.position = opened.start;
      this.total = opened.total || this.expected;
      if (this.expected && opened.total && opened.total !== this.expected) {
        const message = `${this.name} has ${opened.total} bytes on the server, its manifest says ${this.expected}`;
        this.close();
        throw makeError('io_error', message);
      }
    }
    for (;;) {
      this.consume(Math.min(this.rest.length, offset - this.position));
      if (this.position === offset && this.rest.length > 0) return;
      await this.fill(offset);
    }
  }

  private async fill(needed: number): Promise<void> {
    if (!this.reader) throw makeError('internal', 'the stream is closed');
    let result: ReadableStreamReadResult<Uint8Array>;
    try {
      result = await this.reader.read();
    } catch (error) {
      if (this.signal.aborted) throw makeError('cancelled', 'the download was cancelled');
      if (error instanceof ExecuTorchError) throw error;
      throw makeError('io_error', `${this.name}: the download broke off at byte ${this.position}: ${String(error)}`);
    }
    if (result.done) {
      const of = this.total ? ` of ${this.total}` : '';
      throw makeError('io_error', `${this.name} ends after ${this.position}${of} bytes; byte ${needed} is needed`);
    }
    if (!((result.value as unknown) instanceof Uint8Array)) {
      throw makeError('invalid_argument', `${this.name} gives a ${typeof result.value}, not a Uint8Array`);
    }
    this.rest = result.value;
    this.onPosition(this.position + this.rest.length, this.total);
  }
}

/**
 * Feeds bytes to `put` at multiples of 4, as GPUQueue.writeBuffer wants them: what remains of a piece waits for the
 * next one; the very end is padded with zeros.
 */
export class WordWriter {
  private readonly carry = new Uint8Array(4);
  private carried = 0;
  private at = 0;

  constructor(private readonly put: (offset: number, bytes: Uint8Array) => void) {}

  write(bytes: Uint8Array): void {
    if (this.carried > 0) {
      const taken = Math.min(4 - this.carried, bytes.length);
      this.carry.set(bytes.subarray(0, taken), this.carried);
      this.carried += taken;
      bytes = bytes.subarray(taken);
      if (this.carried < 4) return;
      this.flush();
    }
    const whole = bytes.length & ~3;
    if (whole > 0) {
      this.put(this.at, bytes.subarray(0, whole));
      this.at += whole;
    }
    this.carry.set(bytes.subarray(whole));
    this.carried = bytes.length - whole;
  }

  end(): void {
    if (this.carried === 0) return;
    this.carry.fill(0, this.carried);
    this.flush();
  }

  private flush(): void {
    this.put(this.at, this.carry.slice());
    this.at += 4;
    this.carried = 0;
  }
}
