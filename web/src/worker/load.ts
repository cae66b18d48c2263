// From a load request to a session in the module: files, device, streams, and what is said about them.
import { ExecuTorchError } from '../errors.js';
import type { LoadRequest } from '../protocol.js';
import type { CacheInfo, DeviceName, Path, Precision, Progress, TuningInfo } from '../types.js';
import { openAdapters, type OpenedAdapter } from './adapters.js';
import { locate, type Located, type LocatedFile } from './folder.js';
import { Meter } from './meter.js';
import { WasmModule, type Adapter } from './module.js';
import { openPlace, type Place } from './place.js';
import { StreamSource } from './source.js';
import { takeThreads } from './threads.js';
import { SavedTuning } from './tuning.js';

declare const ETWGPU_BUILD_ID: string;

const DEVICE = { webgpu: 0, cpu: 1 };
const PRECISION = { f32: 0, f16: 1 };
const ACTIVATIONS = { automatic: 0, exact: 1 };
const TIERS = ['baseline', 'f16', 'subgroups', 'subgroup_matrix'] as const;

export interface Loaded {
  module: WasmModule;
  session: number;
  device: DeviceName;
  adapter: Adapter | undefined;
  precision: Precision;
  /** Why `auto` did not take the GPU. */
  fallback: string | undefined;
  located: Located;
  cache: CacheInfo;
  tuning: TuningInfo | undefined;
  meter: Meter;
}

/** No adapter: the CPU was asked for, or `auto` fell back for `reason`. */
interface Chosen {
  adapter?: Adapter;
  reason?: string;
}

/** Exported for tests. */
export async function chooseDevice(module: WasmModule, request: LoadRequest): Promise<Chosen> {
  if (request.device === 'wasm') return {};
  const tier = request.debug.maxTier;
  try {
    const adapter = await module.createDevice({
      ...(request.gpuDevice && { existing: request.gpuDevice }),
      defaultLimits: request.debug.defaultLimits ?? false,
      f16: tier !== 'baseline',
      subgroups: tier !== 'baseline' && tier !== 'f16',
    });
    if (request.device === 'auto' && adapter.software) {
      const name = adapter.description || adapter.architecture || adapter.vendor; // Firefox has none
      return { reason: `the GPU here is one in software${name && ` (${name})`}, and the CPU path is faster` };
    }
    return { adapter };
  } catch (error) {
    if (request.device === 'webgpu' || !(error instanceof ExecuTorchError) || error.code === 'internal') throw error;
    return { reason: error.message };
  }
}

function choosePrecision(request: LoadRequest, adapter: Adapter | undefined, located: Located): Precision {
  if (!adapter?.f16) return 'f32';
  if (request.precision !== 'auto') return request.precision;
  return located.variant?.variant.precisions?.includes('f16') ? 'f16' : 'f32';
}

/** Of a load on the GPU: the CPU may be able to run the model. */
const GPU_REFUSALS: readonly string[] = [
  'limit_exceeded',
  'out_of_memory',
  'unsupported_operator',
  'gpu_error',
  'device_lost',
];

async function streamIn(
  request: LoadRequest,
  module: WasmModule,
  device: DeviceName,
  precision: Precision,
  place: Place,
  located: Located,
  adapters: readonly OpenedAdapter[],
  signal: AbortSignal,
  meter: Meter,
  tuning: string,
): Promise<number> {
  const ids: number[] = [];
  const sources: StreamSource[] = [];
  const pending = new Set([located.program.path, ...(located.data ? [located.data.path] : [])]);
  const add = (file: LocatedFile): number => {
    const name = place.describe(file.path);
    const onPosition = (position: number, total: number) => {
      meter.reach(file.path, position, located.data ? 0 : total, false);
      if (position === total) pending.delete(file.path);
      if (pending.size === 0) meter.enter('compile');
    };
    const source = new StreamSource(name, file.open, signal, file.size, onPosition, () => module.uploaded());
    sources.push(source);
    ids.push(module.addSource(source));
    return ids.at(-1) as number;
  };
  const addAdapter = ({ name, scale, config, weights }: OpenedAdapter) => {
    const source = new StreamSource(weights.path, weights.open, signal, weights.size);
    sources.push(source);
    ids.push(module.addSource(source));
    return { name, scale, config, source: ids.at(-1) as number, size: weights.size };
  };
  try {
    return await module.loadSession({
      source: add(located.program),
      data: located.data ? add(located.data) : 0,
      name: place.describe(located.program.path),
      size: located.program.size,
      device: device === 'webgpu' ? DEVICE.webgpu : DEVICE.cpu,
      precision: PRECISION[precision],
      activations: request.exact ? ACTIVATIONS.exact : ACTIVATIONS.automatic,
      threads: request.threads,
      maxTier: TIERS.indexOf(request.debug.maxTier ?? 'subgroup_matrix'),
      memoryCap: request.memoryCap,
      checkValues: request.debug.checkValues === true,
      disabledPasses: request.debug.disabledPasses ?? '',
      tuning,
      adapters: adapters.map(addAdapter),
    });
  } catch (error) {
    throw sources.find((source) => source.failure !== undefined)?.failure ?? error;
  } finally {
    for (const id of ids) module.removeSource(id);
  }
}

export async function load(
  request: LoadRequest,
  signal: AbortSignal,
  onProgress: (progress: Progress) => void,
): Promise<Loaded> {
  const meter = new Meter(onProgress);
  meter.enter('runtime');
  const cache = {
    mode: request.cache,
    ...(request.debug.cacheStorage === true && { storage: 'cachestorage' as const }),
  };
  // small files are counted as a whole when they are there
  const large = new Set<string>();
  const place = await openPlace(request.source, cache, (path, position, total, cached) => {
    if (large.has(path)) meter.reach(path, position, total, cached);
  });
  let adapters: OpenedAdapter[] = [];
  try {
    const [module, located] = await Promise.all([
      WasmModule.create(request, takeThreads(), ETWGPU_BUILD_ID, (bytes) => meter.add(bytes)),
      locate(place, request, signal, {
        onBytes: (bytes) => meter.add(bytes),
        onLarge: (paths, bytes) => {
          for (const path of paths) large.add(path);
          meter.expect(bytes);
        },
        onWait: (bytes) => meter.wait(bytes),
      }),
    ]);
    adapters = await openAdapters(request.adapters, cache, signal);
    const run = async ({ adapter, reason: fallback }: Chosen) => {
      const device: DeviceName = adapter ? 'webgpu' : 'wasm';
      const precision = choosePrecision(request, adapter, located);
      meter.enter('download');
      const saved = await SavedTuning.open(request, adapter, located.program, precision);
      const session = await streamIn(
        request,
        module,
        device,
        precision,
        place,
        located,
        adapters,
        signal,
        meter,
        saved.text,
      );
      return { session, device, adapter, precision, fallback, saved };
    };
    const chosen = await chooseDevice(module, request);
    const { saved, ...running } = await run(chosen).catch((error: unknown) => {
      const refused = error instanceof ExecuTorchError && GPU_REFUSALS.includes(error.code);
      // a stream is read by now
      if (!chosen.adapter || !refused || request.device !== 'auto' || request.source.kind === 'stream') throw error;
      const [first] = error.message.split('\n'); // what the browser adds is for whoever wrote the kernel
      return run({ reason: `the GPU cannot run this model: ${first}` });
    });
    await place.finish(signal);
    for (const adapter of adapters) await adapter.place?.finish(signal);
    const tuning = await saved.complete(module, running.session);
    return { module, ...running, located, cache: place.report(), tuning, meter };
  } catch (error) {
    await place.abandon();
    for (const adapter of adapters) await adapter.place?.abandon();
    throw error;
  }
}

/** What runs, and why nothing better. */
export function pathOf(
  request: LoadRequest,
  { adapter, precision, fallback }: Pick<Loaded, 'adapter' | 'precision' | 'fallback'>,
): { path: Path; precision: Precision; reasons: string[] } {
  const reasons: string[] = [];
  if (adapter) {
    const { subgroups } = adapter;
    if (!adapter.f16) reasons.push('this GPU or browser has no shader-f16');
    else if (precision === 'f32') {
      reasons.push(
        request.precision === 'f32' ? 'f32 was asked for' : 'the model does not list f16 among its precisions',
      );
    }
    if (!subgroups) reasons.push('this GPU or browser has no subgroups');
    const path = precision === 'f16' ? (subgroups ? 'f16-subgroups' : 'f16') : subgroups ? 'subgroups' : 'baseline';
    return { path: `webgpu-${path}`, precision, reasons };
  }
  reasons.push(fallback ?? 'the CPU was asked for');
  if (request.threaded) return { path: 'wasm-threads', precision, reasons };
  reasons.push(request.singleThread);
  return { path: 'wasm', precision, reasons };
}
