// The entry point: finds out what the browser can do, starts the worker, loads a model in it.
import { canUseThreads, capabilities, defaultThreads, wasmTier } from './capabilities.js';
import { Channel } from './channel.js';
import { cancelled, makeError, throwIfAborted } from './errors.js';
import type { LoadRequest } from './protocol.js';
import { Session } from './session.js';
import type { Capabilities, LoadOptions, WasmTier } from './types.js';

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

function startWorker(url: string | URL | undefined): Worker {
  return url === undefined
    ? new Worker(new URL('./worker.js', import.meta.url), { type: 'module' })
    : new Worker(url, { type: 'module' });
}

function threadCount(asked: number | undefined): number {
  if (asked === undefined) return defaultThreads();
  if (!Number.isInteger(asked) || asked < 1) throw makeError('invalid_argument', `threads: ${asked} is no count`);
  return canUseThreads() ? asked : 1;
}

function loadRequest(options: LoadOptions): LoadRequest {
  const tier = options.debug?.wasmTier ?? wasmTier();
  if (!tier) throw makeError('internal', 'this browser has no WebAssembly SIMD');
  const device = options.device ?? 'auto';
  if (!['auto', 'webgpu', 'wasm'].includes(device))
    throw makeError('invalid_argument', `no device '${String(device)}'`);
  const threads = threadCount(options.threads);
  const threaded = threads > 1;
  const urls = buildUrls(threaded ? `${tier}-threads` : tier, options.wasmUrl);
  return {
    modelUrl: new URL(options.modelUrl, location.href).href,
    device,
    exact: options.activations === 'exact',
    f16: options.precision === 'f16',
    threads,
    memoryCap: options.memoryCap ?? 0,
    tier,
    threaded,
    moduleUrl: urls.module.href,
    wasmUrl: urls.wasm.href,
    debug: options.debug ?? {},
  };
}

export const ExecuTorchRuntime = {
  /** What this browser offers; loads nothing. */
  capabilities(): Promise<Capabilities> {
    return capabilities();
  },

  /**
   * Loads a model into a worker of its own.
   * @throws ExecuTorchError of a class by its code; CancelledError if the signal fires.
   */
  async loadModel(options: LoadOptions): Promise<Session> {
    const { signal, onProgress } = options;
    throwIfAborted(signal);
    const request = loadRequest(options);
    const channel = new Channel(startWorker(options.workerUrl));
    // Nothing of a half-loaded model is worth keeping: ending the worker stops the network and frees all memory at once.
    const abort = () => channel.close(cancelled(signal));
    signal?.addEventListener('abort', abort);
    try {
      const info = await channel.call('load', request, { ...(onProgress && { onEvent: onProgress }) });
      return new Session(channel, info);
    } catch (error) {
      channel.close(makeError('disposed', 'the model could not be loaded'));
      throw error;
    } finally {
      signal?.removeEventListener('abort', abort);
    }
  },
} as const;
