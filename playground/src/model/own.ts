// The reader's own models: folders that were picked or dropped, copied into the page's private file system.
import { own, TASKS, type ModelEntry, type Task } from './catalog.js';
import { bytes } from './format.js';

const FOLDER = 'own-models';

export interface PickedFile {
  /** Below the folder that was picked. */
  path: string;
  file: File;
}

interface Manifest {
  name?: unknown;
  task?: unknown;
  files?: unknown;
}

/** Tells what is wrong with a folder, for people. */
export class ImportError extends Error {}

async function root(): Promise<FileSystemDirectoryHandle> {
  const storage = await navigator.storage.getDirectory();
  return storage.getDirectoryHandle(FOLDER, { create: true });
}

async function entryOf(folder: FileSystemDirectoryHandle): Promise<ModelEntry | undefined> {
  try {
    const file = await (await folder.getFileHandle('manifest.json')).getFile();
    const { title, task, size } = describe(await file.text());
    return { title, task, size, name: `own/${folder.name}`, url: `own:${folder.name}`, own: true };
  } catch {
    return undefined; // a copy that was interrupted has no manifest yet
  }
}

/** @throws ImportError */
function describe(
  text: string,
): Pick<ModelEntry, 'title' | 'task'> & { size: number; files: { path: string; size: number }[] } {
  let manifest: Manifest;
  try {
    manifest = JSON.parse(text) as Manifest;
  } catch {
    throw new ImportError('manifest.json is damaged.');
  }
  const { name, task } = manifest;
  if (typeof task !== 'string' || !(task in TASKS)) {
    throw new ImportError(`This page has no place for a model of the task “${String(task)}”.`);
  }
  const files = (Array.isArray(manifest.files) ? manifest.files : []) as { path: string; size: number }[];
  const size = files.reduce((sum, file) => sum + file.size, 0);
  return { title: typeof name === 'string' ? name : 'Own model', task: task as Task, size, files };
}

export async function loadOwn(): Promise<void> {
  try {
    const found: ModelEntry[] = [];
    for await (const handle of (await root()).values()) {
      const entry = handle.kind === 'directory' ? await entryOf(handle) : undefined;
      if (entry) found.push(entry);
    }
    own.value = found;
  } catch {
    own.value = []; // no private file system here
  }
}

/** The folder of an own model, for `loadModel`. */
export async function ownFolder(model: ModelEntry): Promise<FileSystemDirectoryHandle> {
  return (await root()).getDirectoryHandle(model.url.slice('own:'.length));
}

/** Paths relative to where manifest.json lies; what lies elsewhere is left out. */
function belowManifest(files: PickedFile[]): PickedFile[] {
  const manifest = files.find(({ path }) => /(^|\/)manifest\.json$/.test(path));
  if (!manifest) throw new ImportError('There is no manifest.json: choose the folder that the exporter wrote.');
  const base = manifest.path.slice(0, -'manifest.json'.length);
  return files
    .filter(({ path }) => path.startsWith(base))
    .map(({ path, file }) => ({ path: path.slice(base.length), file }));
}

async function copy(folder: FileSystemDirectoryHandle, { path, file }: PickedFile): Promise<void> {
  const parts = path.split('/');
  const name = parts.pop() ?? '';
  let place = folder;
  for (const part of parts) place = await place.getDirectoryHandle(part, { create: true });
  const handle = await place.getFileHandle(name, { create: true });
  await file.stream().pipeTo(await handle.createWritable());
}

/**
 * Copies a model folder; the manifest comes last and makes it valid.
 * @throws ImportError where files are missing or it does something that this page has no place for.
 */
export async function importModel(picked: PickedFile[], onProgress: (text: string) => void): Promise<ModelEntry> {
  const files = belowManifest(picked);
  const manifest = files.find(({ path }) => path === 'manifest.json') as PickedFile;
  const { title, size, files: listed } = describe(await manifest.file.text());
  for (const { path, size } of listed) {
    const found = files.find((file) => file.path === path);
    if (!found) throw new ImportError(`${path} is missing in the folder.`);
    if (found.file.size !== size) throw new ImportError(`${path} is not whole: the manifest says ${bytes(size)}.`);
  }
  const parent = await root();
  const name = `${title.replace(/[^\w.-]+/g, '-')}-${Date.now().toString(36)}`;
  const folder = await parent.getDirectoryHandle(name, { create: true });
  try {
    let done = 0;
    for (const file of [...files.filter((f) => f !== manifest), manifest]) {
      onProgress(`Copying · ${bytes(done)} of ${bytes(size)}`);
      await copy(folder, file);
      done += file.file.size;
    }
  } catch (error) {
    await parent.removeEntry(name, { recursive: true }).catch(() => undefined);
    const full = error instanceof DOMException && error.name === 'QuotaExceededError';
    throw full ? new ImportError(`The browser has no room for ${bytes(size)}.`) : error;
  }
  await loadOwn();
  return own.value.find((model) => model.url === `own:${name}`) as ModelEntry;
}

export async function removeOwn(model: ModelEntry): Promise<void> {
  await (await root()).removeEntry(model.url.slice('own:'.length), { recursive: true });
  await loadOwn();
}

/** Of `<input webkitdirectory>`. */
export function filesOfInput(list: FileList | null): PickedFile[] {
  return Array.from(list ?? [], (file) => ({ path: file.webkitRelativePath || file.name, file }));
}

async function filesOfEntry(entry: FileSystemEntry, prefix: string): Promise<PickedFile[]> {
  const path = prefix + entry.name;
  if (entry.isFile) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
    return [{ path, file }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const files: PickedFile[] = [];
  for (;;) {
    // a browser hands out a hundred or so at a time
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) return files;
    for (const each of some) files.push(...(await filesOfEntry(each, `${path}/`)));
  }
}

/** Of a drop; to be called while the event is handled. */
export function filesOfDrop(transfer: DataTransfer | null): Promise<PickedFile[]> {
  const entries = Array.from(transfer?.items ?? [], (item) => item.webkitGetAsEntry()).filter(
    (entry) => entry !== null,
  );
  return Promise.all(entries.map((entry) => filesOfEntry(entry, ''))).then((lists) => lists.flat());
}
