import { afterEach, describe, expect, it, vi } from 'vitest';
import { locate, type LocatedFile } from '../src/worker/folder.js';
import { openPlace } from '../src/worker/place.js';

const signal = new AbortController().signal;
const BASE = 'https://models.test/llama/';

/** Answers requests below BASE; everything else is missing. */
function serve(files: Record<string, string>): void {
  vi.stubGlobal('fetch', (url: string) => {
    const text = files[url.slice(BASE.length)];
    return Promise.resolve(text === undefined ? new Response(null, { status: 404 }) : new Response(text));
  });
}
const manifest = (variant: object, ...names: string[]) =>
  JSON.stringify({
    format: 1,
    name: 'm',
    task: 't',
    files: names.map((path) => ({ path, size: 7 })),
    variants: [variant],
  });

const events = { onBytes: () => undefined, onLarge: () => undefined, onWait: () => undefined };
async function find(url = BASE) {
  const place = await openPlace({ kind: 'url', url }, { mode: 'none' }, () => undefined);
  return locate(place, { device: 'wasm' }, signal, events);
}
async function textOf(file: LocatedFile | undefined, from = 0): Promise<string> {
  const opened = await file?.open(from, signal);
  const text = await new Response(opened?.stream as ReadableStream<Uint8Array<ArrayBuffer>>).text();
  return text.slice(from - (opened?.start ?? 0));
}

afterEach(() => vi.unstubAllGlobals());

describe('locate', () => {
  it('finds the program, and the weights beside it where the variant names them', async () => {
    const text = manifest({ program: 'model.pte', data: 'weights.ptd' }, 'model.pte', 'weights.ptd');
    serve({ 'manifest.json': text, 'model.pte': 'program', 'weights.ptd': 'weights' });
    const located = await find();
    expect(located.program).toMatchObject({ path: 'model.pte', size: 7 });
    expect(located.data).toMatchObject({ path: 'weights.ptd', size: 7 });
    expect(await textOf(located.program)).toBe('program');
    expect(await textOf(located.data)).toBe('weights');
  });

  it('makes one file of its parts, from any position', async () => {
    const parts = ['a', 'b', 'c'].map((name) => ({ path: `model.${name}`, size: 3 }));
    const files = [{ path: 'model.pte', size: 9, parts }];
    const variants = [{ name: 'v', program: 'model.pte' }];
    serve({
      'manifest.json': JSON.stringify({ format: 1, name: 'm', task: 't', chunk_bytes: 2, files, variants }),
      ...{ 'model.a': '012', 'model.b': '345', 'model.c': '678' },
    });
    const { program } = await find();
    expect(program.size).toBe(9);
    for (let from = 0; from < 9; ++from) expect(await textOf(program, from)).toBe('012345678'.slice(from));
  });

  it('has no data file where the program holds its weights', async () => {
    serve({ 'manifest.json': manifest({ program: 'model.pte' }, 'model.pte') });
    expect((await find()).data).toBeUndefined();
  });

  it('refuses a variant whose weights are not among the files', async () => {
    serve({ 'manifest.json': manifest({ program: 'model.pte', data: 'weights.ptd' }, 'model.pte') });
    await expect(find()).rejects.toThrow(/does not list weights\.ptd/);
  });

  it('refuses a manifest without a variant', async () => {
    serve({ 'manifest.json': JSON.stringify({ format: 1, name: 'm', task: 't', files: [], variants: [] }) });
    await expect(find()).rejects.toThrow(/names no program/);
  });
});
