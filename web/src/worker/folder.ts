// Finding the program and the files beside it.
import { capabilities } from '../capabilities.js';
import { digestOf, hex } from '../cache/block.js';
import { makeError } from '../errors.js';
import type { Manifest, ManifestFile } from '../types.js';
import type { Place } from './place.js';
import type { FileSpec } from './remote.js';
import { impostor } from './impostor.js';
import type { Open, Opened } from './source.js';
import { chooseVariant, type Chosen } from './variants.js';

export interface LocatedFile {
  path: string;
  open: Open;
  /** 0: unknown. */
  size: number;
}
export interface Located {
  program: LocatedFile;
  /** Weights beside the program. */
  data?: LocatedFile;
  manifest?: Manifest;
  variant?: Chosen;
  /** Texts of the other files, by name. */
  files: Record<string, string>;
}
export interface Wanted {
  variant?: string;
  /** Weights of a bare program. */
  dataUrl?: string;
  device: 'auto' | 'webgpu' | 'wasm';
}
export interface LocateEvents {
  /** A small file has come. */
  onBytes(bytes: number): void;
  /** The program and its weights: their files, and their bytes in all (0: unknown). */
  onLarge(paths: readonly string[], bytes: number): void;
  onWait(bytes: number): void;
}

const FORMAT = 1;
const DEFAULT_CHUNK = 1 << 20;
/** Read along with the program; others, such as the model card, are not needed. */
const SIDE_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'generation_config.json',
  'labels.txt',
  'preprocess.json',
];

function parseManifest(url: string, bytes: Uint8Array): Manifest {
  const text = new TextDecoder().decode(bytes);
  let manifest: Manifest;
  try {
    manifest = JSON.parse(text) as Manifest;
  } catch {
    throw makeError('not_a_program', `${url} is ${impostor(bytes) ?? 'no JSON'}, not the manifest of a model folder`);
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

/** The files that make up a file of the manifest: itself, or its parts in order. */
function specsOf(file: ManifestFile, manifest: Manifest): FileSpec[] {
  const spec = ({ path, size, sha256, chunks }: ManifestFile): FileSpec => ({
    path,
    size,
    chunkBytes: manifest.chunk_bytes ?? DEFAULT_CHUNK,
    ...(sha256 && { sha256 }),
    ...(chunks && { chunks }),
  });
  return (file.parts ?? [file]).map(spec);
}

/** One file out of its parts. */
function openParts(place: Place, parts: readonly FileSpec[]): Open {
  const [only] = parts;
  if (only && parts.length === 1) return place.open(only);
  return async (offset, signal) => {
    let start = 0;
    let next = 0;
    for (; next < parts.length - 1; ++next) {
      const end = start + (parts[next] as FileSpec).size;
      if (offset < end) break;
      start = end;
    }
    const total = parts.reduce((sum, p) => sum + p.size, 0);
    const openNext = (at: number): Promise<Opened> => place.open(parts[next++] as FileSpec)(at, signal);
    const first = await openNext(offset - start);
    let reader = first.stream.getReader();
    const stream = new ReadableStream<Uint8Array>({
      async pull(controller) {
        for (;;) {
          const { value, done } = await reader.read();
          if (!done) return controller.enqueue(value);
          if (next >= parts.length) return controller.close();
          reader = (await openNext(0)).stream.getReader();
        }
      },
      cancel: () => reader.cancel(),
    });
    return { stream, start: start + first.start, total };
  };
}

function locatedFile(place: Place, path: string, specs: readonly FileSpec[]): LocatedFile {
  return { path, open: openParts(place, specs), size: specs.reduce((sum, s) => sum + s.size, 0) };
}

/** A small file, checked against its hash in the manifest. */
async function readText(place: Place, spec: FileSpec, signal: AbortSignal): Promise<string> {
  const bytes = await place.bytes(spec, signal);
  if (spec.size && bytes.length !== spec.size) {
    const url = place.describe(spec.path);
    throw makeError('io_error', `${url} has ${bytes.length} bytes, its manifest says ${spec.size}`);
  }
  if (spec.sha256 && !spec.chunks && globalThis.crypto?.subtle) {
    if (hex(await digestOf(bytes as Uint8Array<ArrayBuffer>)) !== spec.sha256) {
      throw makeError('integrity', `${place.describe(spec.path)} does not match its hash in the manifest`);
    }
  }
  return new TextDecoder().decode(bytes);
}

async function readTexts(place: Place, specs: FileSpec[], signal: AbortSignal, events: LocateEvents) {
  const files: Record<string, string> = {};
  await Promise.all(
    specs.map(async (spec) => {
      files[spec.path] = await readText(place, spec, signal);
      events.onBytes(spec.size);
    }),
  );
  return files;
}

async function locateFolder(
  place: Place,
  manifest: Manifest,
  wanted: Wanted,
  signal: AbortSignal,
  events: LocateEvents,
): Promise<Located> {
  const find = (path: string | undefined) => manifest.files.find((f) => f.path === path);
  // asking for the adapter takes time: only where there is a choice
  const variant = await chooseVariant(manifest, wanted, () => capabilities());
  const program = find(variant?.variant.program);
  if (!variant || !program) throw makeError('not_a_program', `${place.describe('manifest.json')} names no program`);
  const data = find(variant.variant.data);
  if (variant.variant.data && !data) {
    throw makeError('not_a_program', `${place.describe('manifest.json')} does not list ${variant.variant.data}`);
  }
  const programSpecs = specsOf(program, manifest);
  const dataSpecs = data ? specsOf(data, manifest) : [];
  const texts = manifest.files.filter((f) => SIDE_FILES.includes(f.path)).flatMap((f) => specsOf(f, manifest));
  const large = [...programSpecs, ...dataSpecs];
  const bytes = large.reduce((sum, s) => sum + s.size, 0);
  events.onLarge(
    large.map((s) => s.path),
    bytes,
  );
  await place.begin([...texts, ...large], signal, (bytes) => events.onWait(bytes));
  return {
    program: locatedFile(place, program.path, programSpecs),
    ...(data && { data: locatedFile(place, data.path, dataSpecs) }),
    manifest,
    variant,
    files: await readTexts(place, texts, signal, events),
  };
}

/** A program by itself, or with the files that lie beside it. */
async function locateBare(place: Place, wanted: Wanted, signal: AbortSignal, events: LocateEvents): Promise<Located> {
  const spec = (path: string): FileSpec => ({ path, size: 0, chunkBytes: DEFAULT_CHUNK });
  const program = spec(place.paths[0] as string);
  const texts = place.paths.filter((path) => SIDE_FILES.includes(path)).map(spec);
  const dataPath = wanted.dataUrl ?? place.paths.find((path) => path.endsWith('.ptd'));
  const weights = dataPath === undefined ? undefined : spec(dataPath);
  events.onLarge([program.path, ...(weights ? [weights.path] : [])], 0);
  await place.begin([program, ...texts, ...(weights ? [weights] : [])], signal, (bytes) => events.onWait(bytes));
  return {
    program: locatedFile(place, program.path, [program]),
    ...(weights && { data: locatedFile(place, weights.path, [weights]) }),
    files: await readTexts(place, texts, signal, events),
  };
}

/** @throws NotAProgramError, UnsupportedVersionError, DownloadError, IntegrityError, InvalidArgumentError (variant). */
export async function locate(
  place: Place,
  wanted: Wanted,
  signal: AbortSignal,
  events: LocateEvents,
): Promise<Located> {
  const manifest = place.folder ? await place.manifest(signal, parseManifest) : undefined;
  return manifest ? locateFolder(place, manifest, wanted, signal, events) : locateBare(place, wanted, signal, events);
}
