// What both pages share: theme, choice of model, loading with progress, errors in plain words.
import { ExecuTorchRuntime, ExecuTorchError, type Progress, type Session } from 'executorch-webgpu';

export function element<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

const MOON = 'M20 14.5A8 8 0 0 1 9.5 4a8 8 0 1 0 10.5 10.5Z';
const SUN =
  'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM12 2v2M12 20v2M2 12h2M20 12h2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4';

/** Follows the system until the button is used; then remembers. */
export function setUpTheme(): void {
  const button = element('theme');
  const system = matchMedia('(prefers-color-scheme: dark)');
  const apply = () => {
    const dark = (localStorage.getItem('theme') ?? (system.matches ? 'dark' : 'light')) === 'dark';
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    button.innerHTML = `<svg viewBox="0 0 24 24" aria-hidden="true"><path d="${dark ? SUN : MOON}"/></svg>`;
    button.setAttribute('aria-pressed', String(dark));
  };
  button.addEventListener('click', () => {
    localStorage.setItem('theme', document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
    apply();
  });
  system.addEventListener('change', apply);
  apply();
}

/** Tells whoever watches the page, such as tools/demo.mjs. */
export function announce(what: 'token' | 'progress' | 'answer' | 'error', detail: unknown): void {
  dispatchEvent(new CustomEvent(`playground:${what}`, { detail }));
}

export const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;

export interface ModelEntry {
  name: string;
  url: string;
  task: string;
}

/** models/index.json beside the page, filtered by task; `?model=URL` puts one more in front. */
export async function listModels(task: string): Promise<ModelEntry[]> {
  const asked = new URLSearchParams(location.search).get('model');
  const models: ModelEntry[] = asked ? [{ name: asked, url: asked, task }] : [];
  try {
    const response = await fetch('./models/index.json');
    if (response.ok) models.push(...((await response.json()) as ModelEntry[]));
  } catch {
    // no list is no error: a model can still be given in the address
  }
  return models.filter((m) => m.task === task);
}

/** What happened and what to do, for people. */
export function explain(error: unknown): string {
  if (!(error instanceof ExecuTorchError)) return 'Something unexpected went wrong.';
  switch (error.code) {
    case 'no_adapter':
      return 'This browser offers no usable GPU. Choose “CPU” and load again.';
    case 'device_lost':
      return 'The GPU was reset or went to sleep. Load the model again; the conversation is kept.';
    case 'out_of_memory':
    case 'limit_exceeded':
      return 'This needs more memory or a longer context than there is. Close other tabs, start a new chat, or choose another device.';
    case 'io_error':
      return 'The download failed or ended early. Check the connection and load again.';
    case 'not_a_program':
    case 'invalid_program':
    case 'data_missing':
      return 'The file at this address is not a complete model.';
    case 'unsupported_version':
    case 'unsupported_operator':
      return 'This model needs a newer version of the page.';
    case 'build_mismatch':
      return 'The page is half updated. Reload it without the browser’s cache.';
    case 'cancelled':
      return 'Cancelled.';
    default:
      return 'Something unexpected went wrong. Load the model again.';
  }
}

const PHASES: Record<Progress['phase'], string> = {
  runtime: 'Starting',
  download: 'Downloading the model',
  compile: 'Preparing',
  ready: 'Ready',
};

/** The model picker, the device picker, the progress bar and the status line of a page. */
export class Loader {
  readonly model = element<HTMLSelectElement>('model');
  readonly device = element<HTMLSelectElement>('device');
  private readonly progress = element('progress');
  private readonly track = this.progress.querySelector<HTMLElement>('.track') as HTMLElement;
  private readonly text = this.progress.querySelector('.progress-text') as HTMLElement;
  private readonly status = element('status');
  private controller: AbortController | undefined;
  session: Session | undefined;

  constructor() {
    this.progress.querySelector('.cancel')?.addEventListener('click', () => this.controller?.abort());
    const device = new URLSearchParams(location.search).get('device');
    if (device) this.device.value = device;
  }

  async fill(task: string): Promise<boolean> {
    const models = await listModels(task);
    for (const m of models) this.model.add(new Option(m.name, m.url));
    if (models.length === 0) {
      this.model.add(new Option('no model found', ''));
      this.model.disabled = true;
      this.say('There is no model beside this page. Add ?model=ADDRESS of a model folder to the address.', true);
    }
    return models.length > 0;
  }

  say(text: string, bad = false, detail?: string): void {
    this.status.className = bad ? 'status bad' : 'status';
    this.status.textContent = text;
    if (detail) {
      const details = document.createElement('details');
      const summary = document.createElement('summary');
      summary.textContent = 'Details';
      details.append(summary, detail);
      this.status.append(details);
    }
  }

  fail(error: unknown): void {
    const cancelled = error instanceof ExecuTorchError && error.code === 'cancelled';
    this.say(explain(error), !cancelled, cancelled ? undefined : String(error));
    announce('error', String(error));
  }

  /** Loads the chosen model in place of the current one; undefined if that failed or was cancelled, which the page then says. */
  async load(): Promise<Session | undefined> {
    this.controller?.abort();
    const controller = (this.controller = new AbortController());
    // a module for the worker that counts what it does; see tools/browser/instrument.js
    const instrument = new URLSearchParams(location.search).get('instrument');
    await this.session?.dispose();
    this.session = undefined;
    this.say('');
    this.progress.hidden = false;
    try {
      const session = await ExecuTorchRuntime.loadModel({
        modelUrl: new URL(this.model.value, location.href),
        device: this.device.value as 'auto' | 'webgpu' | 'wasm',
        signal: controller.signal,
        ...(instrument && { debug: { instrument: new URL(instrument, location.href).href } }),
        onProgress: (p) => this.show(p),
      });
      this.session = session;
      const seconds = (session.info.loadMs / 1000).toFixed(1);
      this.say(
        `${this.where(session)}, loaded in ${seconds} s.${session.fallbackReason ? ` No GPU: ${session.fallbackReason}.` : ''}`,
      );
      return session;
    } catch (error) {
      if (this.controller === controller) this.fail(error);
      return undefined;
    } finally {
      if (this.controller === controller) this.progress.hidden = true;
    }
  }

  private where(session: Session): string {
    const { adapter, wasmTier, threads } = session.info;
    if (session.device === 'webgpu') {
      const name = [adapter?.vendor, adapter?.architecture].filter(Boolean).join(' ') || adapter?.description;
      return `Runs on the GPU${name ? ` (${name})` : ''}`;
    }
    return `Runs on the CPU (${wasmTier === 'relaxed' ? 'relaxed SIMD' : 'SIMD'}, ${threads} thread${threads > 1 ? 's' : ''})`;
  }

  private show({ phase, loaded, total }: Progress): void {
    announce('progress', { phase, loaded, total });
    const percent = total ? Math.min(100, (100 * loaded) / total) : 0;
    const busy = phase === 'compile' || !total;
    this.track.classList.toggle('busy', busy);
    (this.track.firstElementChild as HTMLElement).style.width = busy ? '' : `${percent}%`;
    if (busy) this.track.removeAttribute('aria-valuenow');
    else this.track.setAttribute('aria-valuenow', percent.toFixed(0));
    const bytes = total ? ` · ${megabytes(loaded)} of ${megabytes(total)}` : '';
    this.text.textContent = `${PHASES[phase]}${phase === 'compile' ? '' : bytes}`;
  }
}

/** "GPU 130 MB · page 20 MB" of a session. */
export async function memoryText(session: Session): Promise<string> {
  const m = await session.memoryReport();
  const device = m.weights + m.state + m.arena + m.other;
  return session.device === 'webgpu' ? `${megabytes(device)} on the GPU` : `${megabytes(m.wasmHeap)} of memory`;
}
