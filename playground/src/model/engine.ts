// One loaded model a task: choice, loading with progress, failures. It stays loaded when the page changes.
import { computed, signal, type Signal } from '@preact/signals';
import { ExecuTorchRuntime, type Capabilities, type LoadOptions, type Progress, type Session } from 'executorch-webgpu';
import { controlled } from '../shell/offline.js';
import { remembered } from '../shell/remember.js';
import { loadCatalog, modelsFor, type ModelEntry, type Task } from './catalog.js';
import { refreshKept } from './cache.js';
import { ownFolder } from './own.js';
import { explain, isCancelled, type Problem } from './problem.js';

export type DeviceChoice = 'auto' | 'webgpu' | 'wasm';

export type EngineState =
  | { kind: 'idle' }
  | { kind: 'loading'; model: ModelEntry; progress: Progress }
  | { kind: 'ready'; model: ModelEntry; session: Session }
  | { kind: 'failed'; problem: Problem };

const query = new URLSearchParams(location.search);
/** `?instrument=`: a module for the worker that counts what it does; see tools/browser/instrument.js. */
const instrument = query.get('instrument');

const stored = remembered<string>('device', 'auto');
const DEVICES: readonly string[] = ['auto', 'webgpu', 'wasm'];
const askedDevice = query.get('device') ?? '';
const firstDevice = [askedDevice, stored.value].find((name) => DEVICES.includes(name)) ?? 'auto';
export const device = signal(firstDevice as DeviceChoice);
export function chooseDevice(choice: DeviceChoice): void {
  device.value = stored.value = choice;
  for (const engine of Object.values(engines)) void engine.unload();
}

export const capabilities = signal<Capabilities | undefined>(undefined);
let asking: Promise<Capabilities> | undefined;
export function askCapabilities(): Promise<Capabilities> {
  asking ??= ExecuTorchRuntime.capabilities().then((found) => (capabilities.value = found));
  return asking;
}

/** What to tell where threads are missing. */
export const isolationNote =
  'This page is not isolated from other sites, so the processor works with one thread. Reloading the page may help.';

/** Tells whoever watches the page, such as tools/demo.mjs. */
export function announce(what: 'token' | 'progress' | 'answer' | 'error', detail: unknown): void {
  dispatchEvent(new CustomEvent(`playground:${what}`, { detail }));
}

/** What one load may choose for itself. */
export type RunOptions = Pick<LoadOptions, 'device' | 'activations'>;

/** What every load of this page has in common. */
export async function loadOptions(model: ModelEntry): Promise<LoadOptions> {
  return {
    ...(model.own ? { model: await ownFolder(model) } : { modelUrl: model.url }),
    ...(instrument && { debug: { instrument: new URL(instrument, location.href).href } }),
  };
}

export class Engine {
  readonly state = signal<EngineState>({ kind: 'idle' });
  private readonly chosen: Signal<string>;
  private controller: AbortController | undefined;
  private loading: Promise<Session | undefined> | undefined;

  constructor(readonly task: Task) {
    this.chosen = remembered(`model ${task}`, '');
  }

  readonly models = computed(() => modelsFor(this.task));
  /** The chosen model: what was asked for in the address, what was chosen last, else the first. */
  readonly model = computed(() => {
    const models = this.models.value;
    const first = query.has('model') ? models[0] : models.find((m) => m.name === this.chosen.value);
    return first ?? models[0];
  });

  get session(): Session | undefined {
    const state = this.state.value;
    return state.kind === 'ready' ? state.session : undefined;
  }

  choose(model: ModelEntry): void {
    if (model.name === this.model.value?.name) return;
    this.chosen.value = model.name;
    void this.unload();
  }

  /** The loaded model, loading it first if need be; undefined if that fails or is cancelled, which `state` then says. */
  ready(): Promise<Session | undefined> {
    if (this.session) return Promise.resolve(this.session);
    if (this.loading) return this.loading;
    const loading = this.load().finally(() => {
      if (this.loading === loading) this.loading = undefined;
    });
    return (this.loading = loading);
  }

  cancel(): void {
    this.controller?.abort();
  }

  async unload(): Promise<void> {
    this.controller?.abort();
    this.loading = undefined;
    const session = this.session;
    this.state.value = { kind: 'idle' };
    await session?.dispose();
  }

  /** A call on the session failed: says so; the model is to be loaded again where its device or worker is gone. */
  fail(error: unknown): Problem {
    const problem = explain(error);
    announce('error', problem.detail);
    if (['device_lost', 'worker_died', 'disposed', 'internal', 'gpu_error'].includes(problem.code)) {
      const session = this.session;
      this.state.value = { kind: 'failed', problem };
      void session?.dispose();
    }
    return problem;
  }

  private async load(): Promise<Session | undefined> {
    await loadCatalog();
    const model = this.model.value;
    if (!model) return undefined;
    const controller = (this.controller = new AbortController());
    const show = (progress: Progress) => {
      if (controller.signal.aborted) return;
      announce('progress', progress);
      this.state.value = { kind: 'loading', model, progress };
    };
    show({ phase: 'runtime', loaded: 0, total: 0, cached: 0 });
    await controlled();
    try {
      const session = await ExecuTorchRuntime.loadModel({
        ...(await loadOptions(model)),
        device: device.value,
        signal: controller.signal,
        onProgress: show,
      });
      this.state.value = { kind: 'ready', model, session };
      void refreshKept();
      return session;
    } catch (error) {
      if (this.controller !== controller) return undefined;
      this.state.value = isCancelled(error) ? { kind: 'idle' } : { kind: 'failed', problem: explain(error, true) };
      if (!isCancelled(error)) announce('error', String(error));
      return undefined;
    }
  }
}

export const engines: Record<Task, Engine> = {
  'text-generation': new Engine('text-generation'),
  'image-classification': new Engine('image-classification'),
};

/** Where a model runs, in words. */
export function where(session: Session): string {
  const { adapter, threads } = session.info;
  if (session.device === 'webgpu') {
    const name = adapter?.description || [adapter?.vendor, adapter?.architecture].filter(Boolean).join(' ');
    return name ? `on the GPU (${name})` : 'on the GPU';
  }
  return `on the CPU (${threads} thread${threads > 1 ? 's' : ''})`;
}
