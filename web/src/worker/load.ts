// From a load request to a session in the module: files, device, streams, and what is said about them.
import { ExecuTorchError } from '../errors.js';
import type { LoadRequest } from '../protocol.js';
import type { CacheInfo, DeviceName, Path, Progress, TuningInfo } from '../types.js';
import { openAdapters, type OpenedAdapter } from './adapters.js';
import { locate, type Located, type LocatedFile } from './folder.js';
import { Meter } from './meter.js';
import { WasmModule, type Adapter } from './module.js';
import { openPlace, type Place } from './place.js';
import { StreamSource } from './source.js';
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
  /** Why `auto` did not take the GPU. */
  fallback: string | undefined;
  located: Located;
  cache: CacheInfo;
  tuning: TuningInfo | undefined;
  meter: Meter;
}

/** No adapter: the CPU was asked for, or `auto` fell back for `reason`. */
async function chooseDevice(module: WasmModule, request: LoadRequest): Promise<{ adapter?: Adapter; reason?: string }> {
  if (request.device === 'wasm') return {};
  const tier = request.debug.maxTier;
  try {
    const adapter = await module.createDevice({
      ...(request.gpuDevice && { existing: request.gpuDevice }),
      defaultLimits: request.debug.defaultLimits ?? false,
      f16: tier !== 'baseline',
      subgroups: tier !== 'baseline' && tier !== 'f16',
    });
    return { adapter };
  } catch (error) {
    if (request.device === 'webgpu' || !(error instanceof ExecuTorchError) || error.code === 'internal') throw error;
    return { reason: error.message };
  }
}

async function streamIn(
  request: LoadRequest,
  module: WasmModule,
  device: DeviceName,
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
      precision: request.f16 ? PRECISION.f16 : PRECISION.f32,
      activations: request.exact ? ACTIVATIONS.exact : ACTIVATIONS.automatic,
      threads: request.threads,
      maxTier: TIERS.indexOf(request.debug.maxTier ?? 'subgroup_matrix'),
      memoryCap: request.memoryCap,
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
  const pool = request.threaded ? request.threads - 1 : 0;
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
      WasmModule.create(request, pool, ETWGPU_BUILD_ID, (bytes) => meter.add(bytes)),
      locate(place, request, signal, {
        onBytes: (bytes) => meter.add(bytes),
        onLarge: (paths, bytes) => {
          for (const path of paths) large.add(path);
          meter.expect(bytes);
        },
        onWait: (bytes) => meter.wait(bytes),
      }),
    ]);
    const { adapter, reason } = await chooseDevice(module, request);
    const device: DeviceName = adapter ? 'webgpu' : 'wasm';
    meter.enter('download');
    const saved = await SavedTuning.open(request, adapter, located.program);
    adapters = await openAdapters(request.adapters, cache, signal);
    const session = await streamIn(request, module, device, place, located, adapters, signal, meter, saved.text);
    await place.finish(signal);
    for (const adapter of adapters) await adapter.place?.finish(signal);
    const tuning = await saved.complete(module, session);
    return { module, session, device, adapter, fallback: reason, located, cache: place.report(), tuning, meter };
  } catch (error) {
    await place.abandon();
    for (const adapter of adapters) await adapter.place?.abandon();
    throw error;
  }
}

/** What runs, and why nothing better. */
export function pathOf(
  request: LoadRequest,
  adapter: Adapter | undefined,
  fallback: string | undefined,
): { path: Path; reasons: string[] } {
  const reasons: string[] = [];
  if (adapter) {
    if (!adapter.f16) reasons.push('this GPU or browser has no shader-f16');
    if (!adapter.subgroups) reasons.push('this GPU or browser has no subgroups');
    const { f16, subgroups } = adapter;
    const path = f16 ? (subgroups ? 'f16-subgroups' : 'f16') : subgroups ? 'subgroups' : 'baseline';
    return { path: `webgpu-${path}`, reasons };
  }
  reasons.push(fallback ?? 'the CPU was asked for');
  if (request.threaded) return { path: 'wasm-threads', reasons };
  reasons.push(request.singleThread);
  return { path: 'wasm', reasons };
}
