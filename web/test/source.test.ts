import { describe, expect, it } from 'vitest';
import { ExecuTorchError } from '../src/errors.js';
import { StreamSource, WordWriter, type Open, type ReadTarget } from '../src/worker/source.js';

// Every byte depends on its position, so that a shifted or swapped piece cannot look right.
const byteAt = (i: number) => (i * 31 + (i >> 8) * 7 + (i >> 16)) & 0xff;
const FILE = Uint8Array.from({ length: 100_003 }, (_, i) => byteAt(i));

interface Server {
  open: Open;
  requests: number[];
  sent: number;
}
/** Serves FILE in pieces of the given lengths, over and over; `end`: as if the connection closed there. */
function server(lengths: number[], { end = FILE.length, ranges = true, total = FILE.length } = {}): Server {
  const self: Server = { requests: [], sent: 0, open: () => Promise.reject(new Error()) };
  self.open = (offset) => {
    self.requests.push(offset);
    let at = ranges ? offset : 0;
    const start = at;
    let turn = 0;
    const stream = new ReadableStream<Uint8Array>({
      pull(controller) {
        if (at >= end) return controller.close();
        const piece = FILE.slice(at, Math.min(end, at + (lengths[turn++ % lengths.length] as number)));
        at += piece.length;
        self.sent += piece.length;
        controller.enqueue(piece);
      },
    });
    return Promise.resolve({ stream, start, total });
  };
  return self;
}

class Sink implements ReadTarget {
  private readonly pieces: number[] = [];
  ended = 0;
  constructor(
    readonly offset: number,
    readonly size: number,
  ) {}
  write(bytes: Uint8Array): void {
    this.pieces.push(...bytes);
  }
  end(): void {
    this.ended++;
  }
  check(): void {
    expect(Uint8Array.from(this.pieces)).toEqual(FILE.slice(this.offset, this.offset + this.size));
    expect(this.ended).toBe(1);
  }
}
const source = (s: Server, expected = 0) =>
  new StreamSource('model.pte', s.open, new AbortController().signal, expected);

describe('StreamSource', () => {
  it.each([[[1]], [[3, 5, 1, 2]], [[4096]], [[7, 100_000]], [[200_000]]])(
    'serves ranges from pieces of %j bytes',
    async (lengths) => {
      const s = server(lengths);
      const sinks = [new Sink(5, 1), new Sink(6, 1001), new Sink(2000, 0), new Sink(2003, 4096), new Sink(99_999, 4)];
      await source(s).read(sinks);
      for (const sink of sinks) sink.check();
      expect(s.requests).toEqual([5]);
    },
  );

  it('goes on forward over several calls without a new request', async () => {
    const s = server([977]);
    const stream = source(s);
    for (const [offset, size] of [
      [0, 64],
      [64, 5000],
      [9001, 3],
      [9004, 90_000],
    ] as const) {
      const sink = new Sink(offset, size);
      await stream.read([sink]);
      sink.check();
    }
    expect(s.requests).toEqual([0]);
    expect(s.sent).toBeLessThanOrEqual(FILE.length);
  });

  it('serves overlapping and equal ranges', async () => {
    const sinks = [new Sink(10, 500), new Sink(10, 500), new Sink(100, 20), new Sink(300, 900)];
    await source(server([37])).read(sinks);
    for (const sink of sinks) sink.check();
  });

  it.each([true, false])('starts again for an earlier offset (server with ranges: %s)', async (ranges) => {
    const s = server([1000], { ranges });
    const stream = source(s);
    await stream.read([new Sink(50_000, 10)]);
    const sink = new Sink(17, 2000);
    await stream.read([sink]);
    sink.check();
    expect(s.requests).toEqual([50_000, 17]);
  });

  it('says where a truncated file ends', async () => {
    const error = await source(server([1000], { end: 4500 }))
      .read([new Sink(4000, 1000)])
      .catch((e: unknown) => e);
    expect(error).toBeInstanceOf(ExecuTorchError);
    expect((error as ExecuTorchError).code).toBe('io_error');
    expect((error as Error).message).toContain('4500 of 100003');
  });

  it('refuses a file whose size differs from the manifest', async () => {
    const error = await source(server([1000]), 12)
      .read([new Sink(0, 8)])
      .catch((e: unknown) => e);
    expect((error as Error).message).toMatch(/100003 bytes on the server.*12/);
  });

  it('reports a broken connection and a cancelled one differently', async () => {
    const failing =
      (signal: AbortSignal): Open =>
      () =>
        Promise.resolve({
          start: 0,
          total: 0,
          stream: new ReadableStream<Uint8Array>({
            pull: (c) => c.error(signal.aborted ? signal.reason : new TypeError('reset')),
          }),
        });
    const live = new AbortController().signal;
    await expect(new StreamSource('x', failing(live), live).read([new Sink(0, 1)])).rejects.toMatchObject({
      code: 'io_error',
    });
    const gone = AbortSignal.abort();
    await expect(new StreamSource('x', failing(gone), gone).read([new Sink(0, 1)])).rejects.toMatchObject({
      code: 'cancelled',
    });
  });

  it('tells how far it is, and pauses for a slow consumer', async () => {
    const positions: number[] = [];
    const stream = new StreamSource('x', server([30_000]).open, new AbortController().signal, 0, (p) =>
      positions.push(p),
    );
    await stream.read([new Sink(0, FILE.length)]);
    expect(positions).toEqual([30_000, 60_000, 90_000, 100_003]);
  });
});

describe('WordWriter', () => {
  it.each([[[1]], [[3]], [[4]], [[2, 5, 1, 9, 4, 3]]])('keeps to multiples of 4 with pieces of %j bytes', (lengths) => {
    for (const size of [0, 1, 2, 3, 4, 5, 7, 8, 1001]) {
      const out = new Uint8Array((size + 3) & ~3).fill(0xee);
      let expectedOffset = 0;
      const writer = new WordWriter((offset, bytes) => {
        expect(bytes.length % 4).toBe(0);
        expect(offset).toBe(expectedOffset);
        expectedOffset += bytes.length;
        out.set(bytes, offset);
      });
      for (let at = 0, turn = 0; at < size;) {
        const n = Math.min(lengths[turn++ % lengths.length] as number, size - at);
        writer.write(FILE.subarray(at, at + n));
        at += n;
      }
      writer.end();
      expect(out.slice(0, size)).toEqual(FILE.slice(0, size));
      expect(out.slice(size)).toEqual(new Uint8Array(out.length - size));
    }
  });
});
