import { afterEach, describe, expect, it, vi } from 'vitest';
import { adapterOf, sourceOf } from '../src/sources.js';
import { openAdapters } from '../src/worker/adapters.js';

const signal = new AbortController().signal;
const FOLDER = 'https://models.test/adapters/pirate';

function serve(files: Record<string, string>): void {
  vi.stubGlobal('fetch', (url: string) => {
    const text = files[url.slice(FOLDER.length + 1)];
    return Promise.resolve(text === undefined ? new Response(null, { status: 404 }) : new Response(text));
  });
}
const file = (name: string, text: string, folder = '') =>
  Object.defineProperty(new File([text], name), 'webkitRelativePath', { value: folder && `${folder}/${name}` });
const FILES = [
  file('adapter_config.json', '{}', 'mine/pirate'),
  file('adapter_model.safetensors', 'tensors', 'mine/pirate'),
];

async function open(options: Parameters<typeof adapterOf>[0]) {
  const [adapter] = await openAdapters([await adapterOf(options)], { mode: 'none' }, signal);
  const stream = (await adapter?.weights.open(3, signal))?.stream as ReadableStream<Uint8Array<ArrayBuffer>>;
  return { ...adapter, bytes: await new Response(stream).text() };
}

afterEach(() => vi.unstubAllGlobals());

describe('the URL of a model', () => {
  it.each([
    ['m', 'm/'],
    ['m/', 'm/'],
    ['m/manifest.json', 'm/'],
    ['m/manifest.json?key=1', 'm/?key=1'],
    ['m/?key=1#a', 'm/?key=1'],
    ['manifest.json', ''],
    ['my-manifest.json', 'my-manifest.json/'],
    ['manifest.json/model.pte', 'manifest.json/model.pte'],
  ])('%s is %s', async (given, url) => {
    const base = 'https://models.test/';
    expect(await sourceOf(base + given, true)).toEqual({ kind: 'url', url: base + url });
  });
});

describe('adapters', () => {
  it('come from a folder at a URL, whose name is theirs', async () => {
    serve({ 'adapter_config.json': '{"r": 8}', 'adapter_model.safetensors': 'tensors' });
    expect(await open({ url: FOLDER, scale: 0.5 })).toMatchObject({ name: 'pirate', scale: 0.5, config: '{"r": 8}' });
  });

  it('come from files at hand', async () => {
    const adapter = await open({ files: FILES });
    expect(adapter).toMatchObject({ name: 'pirate', scale: 1, config: '{}', bytes: 'sors' });
    expect(await open({ files: FILES, name: 'x' })).toMatchObject({ name: 'x' });
  });

  it('say what is missing', async () => {
    serve({ 'adapter_config.json': '{}' });
    await expect(adapterOf({})).rejects.toThrow('give each a url or files');
    await expect(adapterOf({ url: FOLDER, scale: NaN })).rejects.toThrow('adapters: scale: NaN is no number');
    await expect(open({ files: FILES.slice(0, 1) })).rejects.toThrow(
      'adapter_model.safetensors is not among its files',
    );
    await expect(open({ url: FOLDER })).rejects.toThrow('404');
  });
});
