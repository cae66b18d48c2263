// Which kernels were fastest on this device, kept between visits.
import { createStore, get, set } from 'idb-keyval';
import { ExecuTorchError } from '../errors.js';
import type { LoadRequest } from '../protocol.js';
import type { Precision, TuningInfo } from '../types.js';
import type { LocatedFile } from './folder.js';
import type { Adapter, WasmModule } from './module.js';

declare const ETWGPU_BUILD_ID: string;

type Found = Omit<TuningInfo, 'from'>;

const store = () => createStore('executorch-webgpu', 'tuning');

/** Other kernels, another device or another model: nothing is known. */
function keyOf(request: LoadRequest, adapter: Adapter, program: LocatedFile, precision: Precision): string {
  const { vendor, architecture, description } = adapter;
  const { maxTier, defaultLimits } = request.debug;
  return JSON.stringify([
    ETWGPU_BUILD_ID,
    [vendor, architecture, description],
    [program.path, program.size],
    [precision, maxTier, defaultLimits],
  ]);
}

export class SavedTuning {
  private constructor(
    private readonly key: string,
    private readonly ms: number,
    private found: TuningInfo | undefined,
  ) {}

  /** Where the browser keeps nothing, nothing is known. */
  static async open(
    request: LoadRequest,
    adapter: Adapter | undefined,
    program: LocatedFile,
    precision: Precision,
  ): Promise<SavedTuning> {
    const key = adapter && request.tuneMs >= 0 ? keyOf(request, adapter, program, precision) : '';
    const found = key === '' ? undefined : await get<Found>(key, store()).catch(() => undefined);
    return new SavedTuning(key, request.tuneMs, found && { ...found, from: 'saved' });
  }

  /** As the module takes it; empty: the defaults. */
  get text(): string {
    return this.found?.tuning ?? '';
  }

  /** Measures, if that was asked for and nothing is known. Undefined: the defaults run. */
  async complete(module: WasmModule, session: number): Promise<TuningInfo | undefined> {
    if (this.found || this.key === '' || this.ms <= 0) return this.found;
    try {
      const found = await module.tune(session, 'forward', this.ms);
      this.found = { ...found, from: 'measured' };
      await set(this.key, found, store()).catch(() => undefined);
    } catch (error) {
      // not a language model
      if (!(error instanceof ExecuTorchError && ['unsupported_operator', 'invalid_argument'].includes(error.code)))
        throw error;
    }
    return this.found;
  }
}
