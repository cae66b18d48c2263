// Finding the program and the files beside it.
import { makeError } from '../errors.js';
import type { Manifest } from '../types.js';

export interface LocatedFile {
  url: string;
  /** Bytes by the manifest; 0: unknown. */
  size: number;
}

export interface Located {
  program: LocatedFile;
  /** The `.ptd` with its weights, where it does not hold them itself. */
  data?: LocatedFile;
  manifest?: Manifest;
  /** Texts of the other files, by name. */
  files: Record<string, string>;
}

const FORMAT = 1;
/** Read along with the program; others, such as the model card, are not needed. */
const WANTED = [
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'generation_config.json',
  'labels.txt',
  'preprocess.json',
];

async function fetchBytes(url: string, signal: AbortSignal): Promise<Uint8Array<ArrayBuffer>> {
  let response: Response;
  try {
    response = await fetch(url, { signal });
    if (response.ok) return new Uint8Array(await response.arrayBuffer());
  } catch (error) {
    if (signal.aborted) throw makeError('cancelled', 'the download was cancelled');
    throw makeError('io_error', `${url} could not be fetched: ${String(error)}`);
  }
  throw makeError('io_error', `${url}: the server answered ${response.status} ${response.statusText}`.trimEnd());
}

function parseManifest(url: string, text: string): Manifest {
  let manifest: Manifest;
  try {
    manifest = JSON.parse(text) as Manifest;
  } catch {
    const what = /^\s*</.test(text)
      ? 'an HTML page'
      : text.startsWith('version https://git-lfs')
        ? 'a Git-LFS pointer'
        : 'no JSON';
    throw makeError('not_a_program', `${url} is ${what}, not the manifest of a model folder`);
  }
  if (
    typeof manifest !== 'object' ||
    manifest === null ||
    !Array.isArray(manifest.files) ||
    !Array.isArray(manifest.variants)
  ) {
    throw makeError('not_a_program', `${url} is not the manifest of a model folder`);
  }
  if (manifest.format > FORMAT) {
    throw makeError('unsupported_version', `${url} has format ${manifest.format}, this package reads up to ${FORMAT}`);
  }
  return manifest;
}

/** A small file of a folder, checked against its size and hash in the manifest. */
async function readFile(base: URL, entry: Manifest['files'][number], signal: AbortSignal): Promise<string> {
  const url = new URL(entry.path, base).href;
  const bytes = await fetchBytes(url, signal);
  if (bytes.length !== entry.size) {
    throw makeError('io_error', `${url} has ${bytes.length} bytes, its manifest says ${entry.size}`);
  }
  if (entry.sha256 && globalThis.crypto?.subtle) {
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    const hex = [...digest].map((b) => b.toString(16).padStart(2, '0')).join('');
    if (hex !== entry.sha256) throw makeError('io_error', `${url} differs from its hash in the manifest`);
  }
  return new TextDecoder().decode(bytes);
}

export async function locate(
  modelUrl: string,
  signal: AbortSignal,
  onBytes: (bytes: number) => void,
): Promise<Located> {
  const url = new URL(modelUrl);
  if (url.pathname.endsWith('.pte')) return { program: { url: url.href, size: 0 }, files: {} };
  if (!url.pathname.endsWith('/')) url.pathname += '/';
  const manifestUrl = new URL('manifest.json', url).href;
  const manifest = parseManifest(manifestUrl, new TextDecoder().decode(await fetchBytes(manifestUrl, signal)));
  const variant = manifest.variants[0];
  if (!variant) throw makeError('not_a_program', `${manifestUrl} names no program`);
  const locatedFile = (path: string): LocatedFile => {
    const entry = manifest.files.find((f) => f.path === path);
    if (!entry) throw makeError('not_a_program', `${manifestUrl} does not list its file ${path}`);
    return { url: new URL(path, url).href, size: entry.size };
  };
  const program = locatedFile(variant.program);
  const data = variant.data === undefined ? undefined : locatedFile(variant.data);
  const wanted = manifest.files.filter((f) => WANTED.includes(f.path));
  const files: Record<string, string> = {};
  await Promise.all(
    wanted.map(async (entry) => {
      files[entry.path] = await readFile(url, entry, signal);
      onBytes(entry.size);
    }),
  );
  return { program, ...(data && { data }), manifest, files };
}
