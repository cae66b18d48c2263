import { afterEach, describe, expect, it, vi } from 'vitest';
import { locate } from '../src/worker/folder.js';

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

afterEach(() => vi.unstubAllGlobals());

describe('locate', () => {
  it('finds the program, and the weights beside it where the variant names them', async () => {
    serve({ 'manifest.json': manifest({ program: 'model.pte', data: 'weights.ptd' }, 'model.pte', 'weights.ptd') });
    const located = await locate(BASE, signal, () => undefined);
    expect(located.program).toEqual({ url: `${BASE}model.pte`, size: 7 });
    expect(located.data).toEqual({ url: `${BASE}weights.ptd`, size: 7 });
  });

  it('has no data file where the program holds its weights', async () => {
    serve({ 'manifest.json': manifest({ program: 'model.pte' }, 'model.pte') });
    expect((await locate(BASE, signal, () => undefined)).data).toBeUndefined();
  });

  it('refuses a variant whose weights are not among the files', async () => {
    serve({ 'manifest.json': manifest({ program: 'model.pte', data: 'weights.ptd' }, 'model.pte') });
    await expect(locate(BASE, signal, () => undefined)).rejects.toThrow(/does not list its file weights\.ptd/);
  });

  it('refuses a manifest without a variant', async () => {
    serve({ 'manifest.json': JSON.stringify({ format: 1, name: 'm', task: 't', files: [], variants: [] }) });
    await expect(locate(BASE, signal, () => undefined)).rejects.toThrow(/names no program/);
  });
});
