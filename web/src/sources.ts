// What callers pass as a model, in the form that crosses to the worker.
import { check, checkUrl } from './checks.js';
import { makeError } from './errors.js';
import type { AdapterRef, SourceRef } from './protocol.js';
import type { AdapterOptions, ModelSource } from './types.js';

type NamedFile = { path: string; blob: Blob };

const pathOf = (file: File) => file.webkitRelativePath || file.name;

/** The files of a directory and of those in it. */
async function filesOf(folder: FileSystemDirectoryHandle, prefix = ''): Promise<NamedFile[]> {
  const files: NamedFile[] = [];
  for await (const [name, handle] of folder.entries()) {
    if (handle.kind === 'directory') {
      files.push(...(await filesOf(handle, `${prefix}${name}/`)));
    } else {
      files.push({ path: prefix + name, blob: await handle.getFile() });
    }
  }
  return files;
}

/** A folder's URL ends with a slash, also where that of its manifest is given; a program's path ends with `.pte`. */
export function modelUrlOf(url: string | URL): string {
  checkUrl('model', url);
  const full = new URL(url, globalThis.location?.href);
  const file = full.protocol === 'blob:' || full.protocol === 'data:' || full.pathname.endsWith('.pte');
  if (!file) full.pathname = full.pathname.replace(/(\/manifest\.json)?\/?$/, '/');
  full.hash = '';
  return full.href;
}

let streamsCross: boolean | undefined;
/** Safari cannot send streams to a worker. */
function canSendStreams(): boolean {
  if (streamsCross === undefined) {
    const { port1, port2 } = new MessageChannel();
    const stream = new ReadableStream();
    try {
      port1.postMessage(stream, [stream]);
      streamsCross = true;
    } catch {
      streamsCross = false;
    }
    port1.close();
    port2.close();
  }
  return streamsCross;
}

const isNamed = (value: object, name: string) => Object.prototype.toString.call(value) === `[object ${name}]`;

/**
 * @param crossing: whether it goes to a worker.
 * @throws InvalidArgumentError for anything else.
 */
export async function sourceOf(model: ModelSource, crossing: boolean): Promise<SourceRef> {
  if (typeof model === 'string' || model instanceof URL) return { kind: 'url', url: modelUrlOf(model) };
  if (model instanceof Blob) {
    return { kind: 'files', files: [{ path: model instanceof File ? model.name : 'the Blob', blob: model }] };
  }
  if (typeof model === 'object' && model !== null) {
    if (isNamed(model, 'ReadableStream')) {
      const stream = model as ReadableStream<Uint8Array>;
      if (!crossing || canSendStreams()) return { kind: 'stream', stream };
      const blob = await new Response(stream as ReadableStream<Uint8Array<ArrayBuffer>>).blob();
      return { kind: 'files', files: [{ path: 'the stream', blob }] };
    }
    if (isNamed(model, 'FileSystemFileHandle')) {
      const file = await (model as FileSystemFileHandle).getFile();
      return { kind: 'files', files: [{ path: file.name, blob: file }] };
    }
    if (isNamed(model, 'FileSystemDirectoryHandle')) {
      return { kind: 'files', files: await filesOf(model as FileSystemDirectoryHandle) };
    }
    const files = Array.from(model as ArrayLike<File>);
    if (files.length > 0 && files.every((file) => file instanceof File)) {
      return { kind: 'files', files: files.map((file) => ({ path: pathOf(file), blob: file })) };
    }
  }
  throw makeError(
    'invalid_argument',
    'model: pass a URL, a File or Blob, a ReadableStream, a file or directory handle, or the files of a folder',
  );
}

/** The last folder of a path. */
const folderOf = (path: string) => path.split('/').slice(0, -1).at(-1) ?? '';

/** @throws InvalidArgumentError where neither a URL nor files are given, or the scale is no number. */
export async function adapterOf(adapter: AdapterOptions | null): Promise<AdapterRef> {
  const { url, files, name, scale = 1 } = adapter ?? {};
  check(Number.isFinite(scale), 'adapters: scale', scale, 'number');
  if (url !== undefined) {
    const weights = new URL('adapter_model.safetensors', modelUrlOf(url));
    return {
      name: name ?? decodeURIComponent(folderOf(weights.pathname)),
      scale,
      source: { kind: 'url', url: weights.href },
    };
  }
  const source = files === undefined ? undefined : await sourceOf(files, false);
  if (source?.kind !== 'files') throw makeError('invalid_argument', 'adapters: give each a url or files');
  const config = source.files.find(({ path }) => path.endsWith('adapter_config.json'));
  return { name: name ?? (folderOf(config?.path ?? '') || 'adapter'), scale, source };
}
