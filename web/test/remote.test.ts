import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { cache } from '../src/cache.js';
import { CachedModel } from '../src/worker/cached.js';
import { RemoteFile, type FileSpec } from '../src/worker/remote.js';
import { FakeDisk, FakeServer, pattern, sha256 } from './fakes.js';

const CHUNK = 1000;
const FILE = pattern(11_234); // blocks of 4 chunks: two whole ones and 3,234 bytes
const WHOLE = sha256(FILE);
const URL_ = 'https://host/model/model.pte';
const MODEL = 'https://host/model/';
const signal = new AbortController().signal;

const chunks = Array.from({ length: 12 }, (_, i) => sha256(FILE.subarray(i * CHUNK, (i + 1) * CHUNK)));
const listed: FileSpec = { path: 'model.pte', size: FILE.length, sha256: sha256(FILE), chunks, chunkBytes: CHUNK };
const bare: FileSpec = { path: 'model.pte', size: 0, chunkBytes: CHUNK };

const matching = (words: RegExp): unknown => expect.stringMatching(words);

let disk: FakeDisk;
let server: FakeServer;
beforeEach(() => {
  disk = new FakeDisk().install();
  server = new FakeServer().install();
  server.files.set(URL_, { bytes: FILE, etag: '"1"' });
});
afterEach(() => vi.unstubAllGlobals());

async function start(spec: FileSpec, mode: 'auto' | 'none' = 'auto') {
  const model = await CachedModel.open(MODEL, mode);
  const traffic = { fromCache: 0, fromNetwork: 0 };
  return { model, traffic, file: new RemoteFile(URL_, spec, model, traffic) };
}
/** Loads as a session does: one pass over the file, then the rest. */
async function load(spec: FileSpec, mode: 'auto' | 'none' = 'auto') {
  const { file, model, traffic } = await start(spec, mode);
  try {
    const bytes = await file.bytes(signal);
    await file.finish(signal);
    return { bytes, model, traffic };
  } catch (error) {
    await file.abandon();
    throw error;
  }
}

describe.each([
  ['with hashes', listed],
  ['without hashes', bare],
])('a file %s', (_, spec) => {
  it('is downloaded once', async () => {
    expect(sha256((await load(spec)).bytes)).toBe(WHOLE);
    expect(server.taken()).toEqual(['GET all']);
    const again = await load(spec);
    expect(sha256(again.bytes)).toBe(WHOLE);
    expect(again.traffic).toEqual({ fromCache: FILE.length, fromNetwork: 0 });
    // without hashes, the server is asked whether it has changed
    expect(server.taken()).toEqual(spec === bare ? ['HEAD all'] : []);
  });

  it('needs no request at all without a network', async () => {
    await load(spec);
    server.taken();
    disk.onLine = false;
    server.down = true;
    expect(sha256((await load(spec)).bytes)).toBe(WHOLE);
    expect(server.taken()).toEqual([]);
  });

  it('is used from the cache where the network fails, though the browser thinks it is there', async () => {
    await load(spec);
    server.down = true;
    const again = await load(spec);
    expect(sha256(again.bytes)).toBe(WHOLE);
    if (spec === bare) expect(again.model.note).toMatch(/kept copy.*network is down/);
  });

  it('goes on where the last download was cut', async () => {
    server.files.set(URL_, { bytes: FILE, etag: '"1"', cutAt: 6740 });
    await expect(load(spec)).rejects.toMatchObject({ code: 'io_error', message: matching(/broke off/) });
    expect((await cache.list())[0]).toMatchObject({ url: MODEL, bytes: 6000, complete: false });
    server.taken();
    server.files.set(URL_, { bytes: FILE, etag: '"1"' });
    const again = await load(spec);
    expect(sha256(again.bytes)).toBe(WHOLE);
    expect(server.taken().at(-1)).toBe('GET bytes=6000-');
    expect(again.traffic).toEqual({ fromCache: 6000, fromNetwork: FILE.length - 6000 });
    expect((await cache.list())[0]).toMatchObject({ bytes: FILE.length, complete: true });
  });

  it('is loaded without being kept where the disk is full', async () => {
    disk.quota = 6000;
    const loaded = await load(spec);
    expect(sha256(loaded.bytes)).toBe(WHOLE);
    expect(loaded.model.refused).toMatch(/no room.*full/);
    await vi.waitFor(async () => expect(await cache.list()).toEqual([]));
  });

  it('is not kept unless asked to', async () => {
    expect(sha256((await load(spec, 'none')).bytes)).toBe(WHOLE);
    expect(await cache.list()).toEqual([]);
  });

  it('is fetched again where a kept block is damaged', async () => {
    await load(spec);
    server.taken();
    const [, block] = [...disk.root.files()].find(([name]) => name === '1') as [string, { bytes: Uint8Array }];
    block.bytes[1500] = (block.bytes[1500] as number) ^ 1;
    const again = await load(spec);
    expect(sha256(again.bytes)).toBe(WHOLE);
    expect(server.taken().at(-1)).toBe('GET bytes=5000-');
    expect((await load(spec)).traffic.fromNetwork).toBe(0);
  });

  it('is taken up again within a load, as long as each connection brings something', async () => {
    server.files.set(URL_, { bytes: FILE, etag: '"1"', cutAt: 3300 });
    const { file } = await start(spec);
    const { stream } = await file.open(0, signal);
    const reader = stream.getReader();
    await reader.read();
    server.files.set(URL_, { bytes: FILE, etag: '"1"' });
    let bytes = CHUNK;
    for (let r = await reader.read(); !r.done; r = await reader.read()) bytes += r.value.length;
    expect(bytes).toBe(FILE.length);
    expect(server.taken()).toEqual(['GET all', matching(/GET bytes=3300-/)]);
  });

  it('is served from any position', async () => {
    for (const offset of [0, 1, 999, 1000, 4001, 8000, 11_233]) {
      const { file } = await start(spec);
      const { stream, start: at, total } = await file.open(offset, signal);
      const bytes = new Uint8Array(await new Response(stream as ReadableStream<Uint8Array<ArrayBuffer>>).arrayBuffer());
      expect(at).toBeLessThanOrEqual(offset);
      expect(total).toBe(FILE.length);
      expect(bytes).toEqual(FILE.slice(at));
      await file.finish(signal);
    }
    expect((await load(spec)).traffic.fromNetwork).toBe(0);
  });

  it('is deleted', async () => {
    await load(spec);
    expect(await cache.delete('https://host/model')).toBe(FILE.length);
    expect(await cache.list()).toEqual([]);
    expect((await load(spec)).traffic.fromCache).toBe(0);
  });
});

describe('a file with hashes', () => {
  it('is refused where the server has another size', async () => {
    server.files.set(URL_, { bytes: FILE.slice(0, 9000) });
    await expect(load(listed)).rejects.toMatchObject({ message: matching(/9000 bytes.*11234/) });
  });

  it('gets a corrupt chunk anew, that chunk alone and once', async () => {
    server.files.set(URL_, { bytes: FILE, damage: { at: 5500, times: 1 } });
    expect(sha256((await load(listed)).bytes)).toBe(WHOLE);
    expect(server.taken()).toEqual(['GET all', 'GET bytes=5000-']);
    expect((await load(listed)).traffic.fromNetwork).toBe(0);
  });

  it('names file and chunk where it stays corrupt', async () => {
    server.files.set(URL_, { bytes: FILE, damage: { at: 5500, times: 2 } });
    await expect(load(listed)).rejects.toMatchObject({
      code: 'integrity',
      message: matching(/model\.pte: chunk 5 \(bytes 5000 to 6000\)/),
    });
    // what was right is kept
    server.taken();
    expect(sha256((await load(listed)).bytes)).toBe(WHOLE);
    expect(server.taken()).toEqual(['GET bytes=5000-']);
  });

  it('starts again where the manifest has another version', async () => {
    await load(listed);
    const other = FILE.slice().reverse();
    server.files.set(URL_, { bytes: other });
    const hashes = Array.from({ length: 12 }, (_, i) => sha256(other.subarray(i * CHUNK, (i + 1) * CHUNK)));
    const loaded = await load({ ...listed, sha256: sha256(other), chunks: hashes });
    expect(loaded.bytes).toEqual(other);
    expect(loaded.traffic.fromCache).toBe(0);
  });

  it('is not begun to be kept where the estimate leaves no room', async () => {
    const model = await CachedModel.open(MODEL, 'auto');
    disk.estimated = 4_000_000;
    await model.needs(FILE.length);
    expect(model.refused).toMatch(/needs 0\.0 MB, the browser has 4\.0 MB/);
  });
});

describe('a file without hashes', () => {
  it.each([
    ['its tag', { bytes: FILE.slice().reverse(), etag: '"2"' }],
    ['its size', { bytes: FILE.slice(0, 9000), etag: '"1"' }],
  ])('starts again where %s changed', async (__, changed) => {
    await load(bare);
    server.files.set(URL_, changed);
    const loaded = await load(bare);
    expect(loaded.bytes).toEqual(changed.bytes);
    expect(loaded.traffic.fromCache).toBe(0);
  });

  it('is not continued where nothing tells its version', async () => {
    server.files.set(URL_, { bytes: FILE, cutAt: 6740 });
    await expect(load(bare)).rejects.toThrow();
    server.files.set(URL_, { bytes: FILE });
    expect((await load(bare)).traffic.fromCache).toBe(0);
  });

  it('says so where it changes during the load', async () => {
    const served = { bytes: FILE, etag: '"1"', cutAt: 3300 };
    server.files.set(URL_, served);
    const { file } = await start(bare);
    const reader = (await file.open(0, signal)).stream.getReader();
    server.files.set(URL_, { bytes: FILE, etag: '"2"' });
    await expect(
      (async () => {
        for (let r = await reader.read(); !r.done; r = await reader.read());
      })(),
    ).rejects.toMatchObject({ code: 'io_error' });
  });

  it.each([[{ noRange: true }], [{ noLength: true }]])('copes with a server that has %j', async (how) => {
    server.files.set(URL_, { bytes: FILE, etag: '"1"', ...how });
    expect(sha256((await load(bare)).bytes)).toBe(WHOLE);
    expect((await load(bare)).traffic).toEqual({ fromCache: FILE.length, fromNetwork: 0 });
  });

  it('skips over what a server without ranges sends again', async () => {
    server.files.set(URL_, { bytes: FILE, etag: '"1"', cutAt: 6740 });
    await expect(load(bare)).rejects.toThrow();
    server.files.set(URL_, { bytes: FILE, etag: '"1"', noRange: true });
    expect(sha256((await load(bare)).bytes)).toBe(WHOLE);
  });
});

describe('a manifest', () => {
  const url = `${MODEL}manifest.json`;
  const parse = (bytes: Uint8Array) => JSON.parse(new TextDecoder().decode(bytes)) as { n: number };
  const serveJson = (text: string) => server.files.set(url, { bytes: new TextEncoder().encode(text) });
  const read = async () => {
    const model = await CachedModel.open(MODEL, 'auto');
    return { value: await model.revalidated(url, signal, parse), note: model.note };
  };

  it('is asked for each time, and kept for when there is nobody to ask', async () => {
    serveJson('{"n": 1}');
    expect(await read()).toEqual({ value: { n: 1 }, note: undefined });
    serveJson('{"n": 2}');
    expect((await read()).value).toEqual({ n: 2 });
    server.files.set(url, { bytes: new TextEncoder().encode('<html>log in</html>') });
    expect(await read()).toMatchObject({ value: { n: 2 }, note: matching(/kept copy/) });
    server.down = true;
    expect((await read()).value).toEqual({ n: 2 });
    disk.onLine = false;
    server.taken();
    expect((await read()).value).toEqual({ n: 2 });
    expect(server.taken()).toEqual([]);
  });

  it('fails as the network does where nothing was kept', async () => {
    await expect(read()).rejects.toMatchObject({ code: 'io_error', message: matching(/404/) });
  });
});

describe('two loads at once', () => {
  /** Web Locks, for one name. */
  function fakeLocks() {
    let last: Promise<unknown> = Promise.resolve();
    return {
      request: (_name: string, options: { signal: AbortSignal }, body: () => Promise<unknown>) => {
        const mine = last.then(() => (options.signal.aborted ? undefined : body()));
        last = mine.catch(() => undefined);
        return mine;
      },
    };
  }

  it('download once: the second waits and uses what the first has kept', async () => {
    disk.install(fakeLocks());
    const looks: number[] = [];
    const one = async () => {
      const { file, model, traffic } = await start(listed);
      if (!(await file.isCached(signal))) {
        await model.lock(signal, async () => {
          looks.push(await file.heldBytes());
          return looks.at(-1) as number;
        });
        file.forget();
      }
      const bytes = await file.bytes(signal);
      await new Promise((resolve) => setTimeout(resolve, 400));
      await file.finish(signal);
      model.unlock();
      expect(sha256(bytes)).toBe(WHOLE);
      return traffic.fromNetwork;
    };
    expect((await Promise.all([one(), one()])).sort()).toEqual([0, FILE.length]);
    expect(looks.length).toBeGreaterThan(0);
  });
});
