// Which models there are: models/index.json beside the page, `?model=ADDRESS`, and the reader's own.
import { computed, signal } from '@preact/signals';

export type Task = 'text-generation' | 'image-classification';
export const TASKS: Record<Task, { words: string; page: string; open: string }> = {
  'text-generation': { words: 'Answers questions and writes text', page: '#/', open: 'Chat' },
  'image-classification': { words: 'Says what is in a picture', page: '#/pictures', open: 'Try a picture' },
};

export interface ModelEntry {
  /** Unique: the folder's name, or an address. */
  name: string;
  /** For people. */
  title: string;
  /** Absolute address of the model folder. */
  url: string;
  task: Task;
  /** Bytes of the download, as far as the list says. */
  size?: number;
  licence?: string;
  /** Whose weights these are. */
  source?: string;
  /** Put here by the reader. */
  own?: boolean;
}

const listed = signal<ModelEntry[]>([]);
export const own = signal<ModelEntry[]>([]);
export const models = computed(() => [...own.value, ...listed.value]);
/** What to tell where there is no list. */
export const catalogProblem = signal<string | undefined>(undefined);
export const catalogReady = signal(false);

export function modelsFor(task: Task): ModelEntry[] {
  return models.value.filter((model) => model.task === task);
}

const isTask = (task: unknown): task is Task => typeof task === 'string' && task in TASKS;

/** An entry of the list as it is on the server; nothing of it is taken for granted. */
function entry(raw: Partial<ModelEntry>, base: string): ModelEntry | undefined {
  if (!isTask(raw.task) || typeof raw.url !== 'string') return undefined;
  const name = String(raw.name ?? raw.url);
  return { ...raw, name, title: String(raw.title ?? name), url: new URL(raw.url, base).href, task: raw.task };
}

/** `?model=ADDRESS` of a model folder, whose manifest says what it does. */
async function asked(): Promise<ModelEntry[]> {
  const address = new URLSearchParams(location.search).get('model');
  if (!address) return [];
  let url = address;
  try {
    url = new URL(address.replace(/\/?$/, '/'), location.href).href;
    const manifest = (await (await fetch(`${url}manifest.json`)).json()) as {
      name: string;
      task: string;
      files: { size: number }[];
    };
    const size = manifest.files.reduce((sum, file) => sum + file.size, 0);
    const found = entry({ name: url, title: manifest.name, url, task: manifest.task as Task, size }, url);
    return found ? [found] : [];
  } catch {
    catalogProblem.value = `There is no model folder at ${url}.`;
    return [];
  }
}

async function fetchList(): Promise<ModelEntry[]> {
  const url = new URL('./models/index.json', location.href).href;
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(String(response.status));
    const list = (await response.json()) as Partial<ModelEntry>[];
    return list.map((raw) => entry(raw, location.href)).filter((model) => model !== undefined);
  } catch {
    catalogProblem.value ??= 'This site offers no models. Import one of your own on the page “Models”.';
    return [];
  }
}

let loading: Promise<void> | undefined;
/** Fetched once; whoever needs a model waits for the same list. */
export function loadCatalog(): Promise<void> {
  return (loading ??= fetchCatalog());
}

async function fetchCatalog(): Promise<void> {
  const [first, rest] = await Promise.all([asked(), fetchList()]);
  listed.value = [...first, ...rest];
  catalogReady.value = true;
}
