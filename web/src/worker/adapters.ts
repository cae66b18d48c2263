// LoRA adapters of a load: where their two files come from.
import { makeError } from '../errors.js';
import type { AdapterRef } from '../protocol.js';
import type { LocatedFile } from './folder.js';
import { openPlace, type CacheOptions, type Place } from './place.js';

const CONFIG = 'adapter_config.json';
const WEIGHTS = 'adapter_model.safetensors';
const CHUNK = 1 << 20;

export interface OpenedAdapter {
  name: string;
  scale: number;
  /** The text of adapter_config.json. */
  config: string;
  weights: LocatedFile;
  /** To be finished or abandoned with the load; undefined for files at hand. */
  place?: Place;
}

const decode = (bytes: Uint8Array) => new TextDecoder().decode(bytes);

async function fromFiles(ref: AdapterRef, files: readonly { path: string; blob: Blob }[]): Promise<OpenedAdapter> {
  const find = (name: string): Blob => {
    const found = files.find(({ path }) => path === name || path.endsWith(`/${name}`));
    if (!found) throw makeError('invalid_argument', `adapter '${ref.name}': ${name} is not among its files`);
    return found.blob;
  };
  const blob = find(WEIGHTS);
  return {
    ...ref,
    config: await find(CONFIG).text(),
    weights: {
      path: `adapter '${ref.name}'`,
      size: blob.size,
      open: (offset) => Promise.resolve({ stream: blob.slice(offset).stream(), start: offset, total: blob.size }),
    },
  };
}

async function fromUrl(ref: AdapterRef, url: string, cache: CacheOptions, signal: AbortSignal): Promise<OpenedAdapter> {
  const place = await openPlace({ kind: 'url', url }, cache, () => undefined);
  const [weights, config] = [WEIGHTS, CONFIG].map((path) => ({ path, size: 0, chunkBytes: CHUNK })) as [
    { path: string; size: number; chunkBytes: number },
    { path: string; size: number; chunkBytes: number },
  ];
  try {
    await place.begin([weights, config], signal, () => undefined);
    return {
      ...ref,
      config: decode(await place.bytes(config, signal)),
      weights: { path: `adapter '${ref.name}'`, size: 0, open: place.open(weights) },
      place,
    };
  } catch (error) {
    await place.abandon();
    throw error;
  }
}

/** @throws InvalidArgumentError where a file is missing at hand, DownloadError at a URL. */
export async function openAdapters(
  refs: readonly AdapterRef[],
  cache: CacheOptions,
  signal: AbortSignal,
): Promise<OpenedAdapter[]> {
  const opened: OpenedAdapter[] = [];
  try {
    for (const ref of refs) {
      const { source } = ref;
      opened.push(
        source.kind === 'url' ? await fromUrl(ref, source.url, cache, signal) : await fromFiles(ref, source.files),
      );
    }
    return opened;
  } catch (error) {
    for (const { place } of opened) await place?.abandon();
    throw error;
  }
}
