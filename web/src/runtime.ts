// The entry point: finds out what the browser can do, starts the worker, loads a model in it.
import { canUseThreads, capabilities, defaultThreads, wasmTier } from './capabilities.js';
import { cache } from './cache.js';
import { Channel, UNLOADED, type Port } from './channel.js';
import { check, checkFunction, checkOneOf, checkOptions, checkSignal, checkUrl, LOAD_OPTIONS } from './checks.js';
import { cancelled, DeviceLostError, makeError, NoAdapterError, throwIfAborted } from './errors.js';
import type { FromWorker, LoadRequest, Preparation } from './protocol.js';
import { Session } from './session.js';
import { startedWorker } from './started-worker.js';
import { adapterOf, sourceOf } from './sources.js';
import type { Capabilities, LoadOptions, SessionInfo, WasmTier } from './types.js';

type Build = WasmTier | `${WasmTier}-threads`;

// Written out, so that bundlers see each file and copy it.
const BUILDS: Record<Build, () => { module: URL; wasm: URL }> = {
  relaxed: () => ({
    module: new URL('./wasm/relaxed/etwgpu.mjs', import.meta.url),
    wasm: new URL('./wasm/relaxed/etwgpu.wasm', import.meta.url),
  }),
  simd128: () => ({
    module: new URL('./wasm/simd128/etwgpu.mjs', import.meta.url),
    wasm: new URL('./wasm/simd128/etwgpu.wasm', import.meta.url),
  }),
  'relaxed-threads': () => ({
    module: new URL('./wasm/relaxed-threads/etwgpu.mjs', import.meta.url),
    wasm: new URL('./wasm/relaxed-threads/etwgpu.wasm', import.meta.url),
  }),
  'simd128-threads': () => ({
    module: new URL('./wasm/simd128-threads/etwgpu.mjs', import.meta.url),
    wasm: new URL('./wasm/simd128-threads/etwgpu.wasm', import.meta.url),
  }),
};

function buildUrls(build: Build, base: string | URL | undefined): { module: URL; wasm: URL } {
  if (base === undefined) return BUILDS[build]();
  const folder = new URL(String(base).replace(/\/?$/, '/'), location.href);
  return { module: new URL(`${build}/etwgpu.mjs`, folder), wasm: new URL(`${build}/etwgpu.wasm`, folder) };
}

/** @throws WorkerDiedError where the browser refuses the script: it must be of the page's origin. */
function newWorker(url: string | URL | undefined): Worker {
  try {
    return url === undefined
      ? new Worker(new URL('./worker.js', import.meta.url), { type: 'module' })
      : new Worker(url, { type: 'module' });
  } catch (cause) {
    // not as above: bundlers would take it for one more file of theirs
    const script = String(url ?? import.meta.url.replace(/[^/]*$/, 'worker.js'));
    throw makeError('worker_died', `the worker ${script}: ${UNLOADED} (${String(cause)})`, { cause });
  }
}

/** The same engine on this thread, behind the same messages. */
async function startHere(): Promise<Port> {
  const { Engine } = await import('./worker/engine.js');
  const port: Port = {
    // later, as between threads: whoever calls has its promise before anything happens
    postMessage: (message) => queueMicrotask(() => engine.receive(message)),
    terminate: () => engine.close(),
    onmessage: null,
    onmessageerror: null,
    onerror: null,
  };
  const engine = new Engine((message: FromWorker) => {
    queueMicrotask(() => port.onmessage?.({ data: message } as MessageEvent));
  }, false);
  return port;
}

/** Each is a worker with a stack of its own. */
const THREADS_LIMIT = 64;

/** How many threads, and why only one. */
function threadCount(options: LoadOptions): { threads: number; singleThread: string } {
  const asked = options.threads;
  const possible = Number.isInteger(asked) && asked! > 0 && asked! <= THREADS_LIMIT;
  check(possible, 'threads', asked, `count between 1 and ${THREADS_LIMIT}`);
  const one = (singleThread: string) => ({ threads: 1, singleThread });
  if (options.worker === false) return one('one thread, since worker: false runs on the calling one');
  if (!canUseThreads()) return one('one thread, since the page is not cross-origin isolated (COOP and COEP headers)');
  const threads = asked ?? defaultThreads();
  return threads > 1 ? { threads, singleThread: '' } : one(asked ? 'one thread was asked for' : 'one processor');
}

function deviceOf(options: LoadOptions): Pick<LoadRequest, 'device' | 'gpuDevice'> {
  const { device = 'auto' } = options;
  if (typeof device === 'object' && device !== null) {
    check('createBuffer' in device, 'device', device, 'GPUDevice');
    if (options.worker === false) return { device: 'webgpu', gpuDevice: device };
    throw makeError('invalid_argument', 'device: a GPUDevice cannot be sent to a worker; add worker: false');
  }
  checkOneOf('device', device, ['auto', 'webgpu', 'wasm']);
  return { device };
}

/** @throws InvalidArgumentError that names the option. */
function checkLoadOptions(options: LoadOptions): void {
  checkOptions('loadModel', options, LOAD_OPTIONS);
  checkOneOf('precision', options.precision, ['auto', 'f32', 'f16']);
  checkOneOf('activations', options.activations, ['auto', 'exact']);
  checkOneOf('cache', options.cache, ['auto', 'none']);
  checkOneOf('debug.wasmTier', options.debug?.wasmTier, ['relaxed', 'simd128']);
  checkOneOf('debug.maxTier', options.debug?.maxTier, ['baseline', 'f16', 'subgroups', 'subgroup_matrix']);
  checkFunction('onProgress', options.onProgress);
  checkSignal(options.signal);
  for (const name of ['modelUrl', 'dataUrl', 'wasmUrl', 'workerUrl', 'grammarUrl'] as const) {
    if (options[name] !== undefined) checkUrl(name, options[name]);
  }
  const { memoryCap, adapters } = options;
  check(typeof memoryCap === 'number' && memoryCap > 0, 'memoryCap', memoryCap, 'number of bytes');
  check(Array.isArray(adapters), 'adapters', adapters, 'list');
}

function tuneMs(tune: LoadOptions['tune']): number {
  if (tune === false) return -1;
  if (tune === undefined) return 0;
  const ms = tune === true ? 15_000 : (tune as { budgetMs?: number } | null)?.budgetMs;
  check(typeof ms === 'number' && ms > 0, 'tune', ms ?? null, 'number of milliseconds');
  return ms as number;
}

async function loadRequest(options: LoadOptions): Promise<LoadRequest> {
  const tier = options.debug?.wasmTier ?? wasmTier();
  if (!tier) throw makeError('unsupported_browser', 'this browser has no WebAssembly SIMD');
  const model = options.model ?? options.modelUrl;
  if (model === undefined) throw makeError('invalid_argument', 'modelUrl: which model?');
  if (options.model !== undefined && options.modelUrl !== undefined) {
    throw makeError('invalid_argument', 'model and modelUrl: which of them?');
  }
  const device = deviceOf(options);
  const { threads, singleThread } = threadCount(options);
  const threaded = threads > 1;
  const urls = buildUrls(threaded ? `${tier}-threads` : tier, options.wasmUrl);
  return {
    source: await sourceOf(model, options.worker !== false),
    adapters: await Promise.all((options.adapters ?? []).map(adapterOf)),
    ...(options.dataUrl !== undefined && { dataUrl: new URL(options.dataUrl, globalThis.location?.href).href }),
    ...(options.variant !== undefined && { variant: options.variant }),
    cache: options.cache ?? 'auto',
    ...device,
    exact: options.activations === 'exact',
    precision: options.precision ?? 'auto',
    threads,
    tuneMs: tuneMs(options.tune),
    memoryCap: options.memoryCap ?? 0,
    tier,
    threaded,
    singleThread,
    moduleUrl: urls.module.href,
    wasmUrl: urls.wasm.href,
    grammarUrl: options.grammarUrl === undefined ? '' : new URL(options.grammarUrl, globalThis.location?.href).href,
    debug: options.debug ?? {},
  };
}

export const ExecuTorchRuntime = {
  /** What this browser offers; loads nothing. */
  capabilities(): Promise<Capabilities> {
    return capabilities();
  },

  /** Models that are kept for the next visit. */
  cache,

  /**
   * Loads a model into a worker of its own (or, with `worker: false`, on this thread).
   * @throws ExecuTorchError of a class by its code; CancelledError if the signal fires.
   */
  async loadModel(options: LoadOptions): Promise<Session> {
    const { channel, info } = await start(options, options?.signal);
    const { device } = info;
    const own = typeof options.device === 'object';
    return new Session(
      channel,
      info,
      (signal) => (device === 'webgpu' && !own ? onGpuAgain(options, signal) : start(options, signal)),
      own,
    );
  },
} as const;

async function start(
  options: LoadOptions,
  signal: AbortSignal | undefined,
): Promise<{ channel: Channel; info: SessionInfo }> {
  checkLoadOptions(options);
  const { onProgress } = options;
  throwIfAborted(signal);
  const request = await loadRequest(options);
  throwIfAborted(signal); // events that came meanwhile are gone
  const preparation: Preparation = { type: 'prepare', moduleUrl: request.moduleUrl, threads: request.threads - 1 };
  const worker = () =>
    startedWorker(() => newWorker(options.workerUrl), preparation, signal, options.debug?.workerPatienceMs);
  const channel = new Channel(options.worker === false ? await startHere() : await worker());
  const transfer = request.source.kind === 'stream' ? [request.source.stream as unknown as Transferable] : [];
  // Nothing of a half-loaded model is worth keeping: ending the worker stops the network and frees all memory at once.
  const abort = () => channel.close(cancelled(signal));
  signal?.addEventListener('abort', abort);
  if (signal?.aborted) abort();
  try {
    const info = await channel.call('load', request, { ...(onProgress && { onEvent: onProgress }), transfer });
    return { channel, info };
  } catch (error) {
    channel.close(makeError('disposed', 'the model could not be loaded'));
    throw error;
  } finally {
    signal?.removeEventListener('abort', abort);
  }
}

/** After a GPU process has crashed it takes some 0.2 s until there are adapters again. */
const PATIENCE = { times: 6, ms: 300 };

/** A model that ran on the GPU; the CPU, where the options allow it, only after some patience. */
async function onGpuAgain(options: LoadOptions, signal: AbortSignal | undefined) {
  for (let i = 0; i < PATIENCE.times; ++i) {
    try {
      return await start({ ...options, device: 'webgpu' }, signal);
    } catch (error) {
      if (!(error instanceof NoAdapterError || error instanceof DeviceLostError)) throw error;
      await new Promise((resolve) => setTimeout(resolve, PATIENCE.ms));
    }
  }
  return start(options, signal);
}
