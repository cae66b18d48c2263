// A loaded model in the worker: module, device, session, tokenizer.
import { ExecuTorchError, makeError } from '../errors.js';
import type { LoadRequest, PlainGenerateOptions } from '../protocol.js';
import type { Value } from '../tensor.js';
import type {
  Counters,
  DeviceName,
  GeneratedToken,
  GenerateResult,
  KernelTime,
  MemoryReport,
  Progress,
  Prompt,
  SessionInfo,
} from '../types.js';
import { locate, type Located, type LocatedFile } from './folder.js';
import { Conversation } from './generate.js';
import { WasmModule, type Adapter } from './module.js';
import { fetchOpener, StreamSource } from './source.js';
import { TextModel } from './tokenizer.js';
import { decodeValues, encodeValues } from './values.js';

declare const ETWGPU_BUILD_ID: string;

const DEVICE = { webgpu: 0, cpu: 1 };
const PRECISION = { f32: 0, f16: 1 };
const ACTIVATIONS = { automatic: 0, exact: 1 };
const TIERS = ['baseline', 'f16', 'subgroups', 'subgroup_matrix'] as const;
/** Tokens of a prompt between two looks at the signal: about 0.1 s on a CPU, and one full step on a GPU. */
const CHUNK = { webgpu: 512, wasm: 64 };

/** Files that the page gets to see; a tokenizer is large and of no use there. */
const SHOWN = ['labels.txt', 'preprocess.json'];

/** Adds up what is downloaded; what it reports never decreases. */
class Meter {
  private loaded = 0;
  /** Position and size by file. */
  private readonly files = new Map<string, { at: number; size: number }>();
  private phase: Progress['phase'] = 'runtime';
  constructor(private readonly report: (progress: Progress) => void) {}
  enter(phase: Progress['phase']): void {
    this.phase = phase;
    this.tell();
  }
  add(bytes: number): void {
    this.loaded += bytes;
    this.tell();
  }
  /** Of a streamed file, up to this position; `size` 0: not known yet. */
  reach(file: string, position: number, size: number): void {
    const { at, size: before } = this.files.get(file) ?? { at: 0, size: 0 };
    this.files.set(file, { at: Math.max(at, position), size: Math.max(before, size) });
    this.tell();
  }
  /** All streamed files are there as a whole. */
  complete(): boolean {
    return [...this.files.values()].every(({ at, size }) => size > 0 && at === size);
  }
  finish(): void {
    for (const file of this.files.values()) file.at = Math.max(file.at, file.size);
    this.enter('ready');
  }
  private tell(): void {
    const files = [...this.files.values()];
    const loaded = files.reduce((sum, { at }) => sum + at, this.loaded);
    const total = files.reduce((sum, { size }) => sum + size, this.loaded);
    const known = files.length > 0 && files.every(({ size }) => size > 0);
    this.report({ phase: this.phase, loaded, total: known ? Math.max(loaded, total) : 0 });
  }
}

export class Model {
  private constructor(
    private readonly module: WasmModule,
    private readonly session: number,
    private readonly device: DeviceName,
    private readonly text: TextModel | undefined,
    private readonly conversation: Conversation | undefined,
    readonly info: SessionInfo,
  ) {}

  static async load(
    request: LoadRequest,
    signal: AbortSignal,
    onProgress: (progress: Progress) => void,
  ): Promise<Model> {
    const began = performance.now();
    const meter = new Meter(onProgress);
    meter.enter('runtime');
    const pool = request.threaded ? request.threads - 1 : 0;
    const [module, located] = await Promise.all([
      WasmModule.create(request, pool, ETWGPU_BUILD_ID, (bytes) => meter.add(bytes)),
      locate(request.modelUrl, signal, (bytes) => meter.add(bytes)),
    ]);
    const { adapter, reason } = await chooseDevice(module, request);
    const device: DeviceName = adapter ? 'webgpu' : 'wasm';

    meter.enter('download');
    const streamed = [located.program, ...(located.data ? [located.data] : [])];
    for (const { url, size } of streamed) meter.reach(url, 0, size);
    const open = ({ url, size }: LocatedFile): number =>
      module.addSource(
        new StreamSource(
          url,
          fetchOpener(url),
          signal,
          size,
          (position, total) => {
            meter.reach(url, position, total);
            if (meter.complete()) meter.enter('compile');
          },
          () => module.uploaded(),
        ),
      );
    const sources = streamed.map(open);
    let session: number;
    try {
      session = await module.loadSession({
        source: sources[0] as number,
        data: sources[1] ?? 0,
        name: located.program.url,
        size: located.program.size,
        device: adapter ? DEVICE.webgpu : DEVICE.cpu,
        precision: request.f16 ? PRECISION.f16 : PRECISION.f32,
        activations: request.exact ? ACTIVATIONS.exact : ACTIVATIONS.automatic,
        threads: request.threads,
        maxTier: TIERS.indexOf(request.debug.maxTier ?? 'subgroup_matrix'),
        memoryCap: request.memoryCap,
        disabledPasses: request.debug.disabledPasses ?? '',
      });
    } finally {
      for (const source of sources) module.removeSource(source);
    }
    const methods = module.methods(session);
    const text = textModel(located);
    const generator =
      text && methods.some((m) => m.name === 'forward' && !m.constant)
        ? await module.createGenerator(session, 'forward')
        : undefined;
    const info: SessionInfo = {
      device,
      ...(reason !== undefined && { fallbackReason: reason }),
      wasmTier: request.tier,
      threads: request.threads,
      ...(adapter && { adapter }),
      methods,
      ...(located.manifest && { manifest: located.manifest }),
      files: Object.fromEntries(Object.entries(located.files).filter(([name]) => SHOWN.includes(name))),
      canGenerate: generator !== undefined,
      ...(generator && { contextLength: generator.capacity }),
      loadMs: 0,
    };
    const conversation =
      generator &&
      text &&
      new Conversation(
        {
          capacity: generator.capacity,
          append: (ids) => module.append(session, ids, CHUNK[device]),
          rollback: (position) => module.rollback(session, position),
          setSampling: (options) => module.setSampling(session, options),
        },
        text,
        endIds(located, methods),
        CHUNK[device],
      );
    meter.finish();
    info.loadMs = performance.now() - began;
    return new Model(module, session, device, text, conversation, info);
  }

  async run(method: string, inputs: Value[]): Promise<Value[]> {
    return decodeValues(await this.module.run(this.session, method, encodeValues(inputs)));
  }

  generate(
    prompt: Prompt,
    options: PlainGenerateOptions,
    signal: AbortSignal,
    onToken: (token: GeneratedToken) => void,
  ): Promise<GenerateResult> {
    if (!this.conversation) throw makeError('invalid_argument', 'this model does not generate text');
    return this.conversation.generate(prompt, options, signal, onToken);
  }

  tokenize(prompt: Prompt): number[] {
    if (!this.text) throw makeError('invalid_argument', 'this model has no tokenizer');
    return this.text.encode(prompt);
  }

  async reset(): Promise<void> {
    await this.module.reset(this.session);
    if (this.info.canGenerate) this.module.rollback(this.session, 0);
    this.conversation?.forget();
  }

  memory(): MemoryReport {
    return { ...this.module.memory(this.session), wasmHeap: this.module.heapBytes() } as unknown as MemoryReport;
  }
  inspect(): unknown {
    return this.module.inspect(this.session);
  }
  counters(): Counters {
    return this.module.stats(this.session) as unknown as Counters;
  }
  profile(): KernelTime[] {
    this.module.setProfile(this.session, true);
    return this.module.profile(this.session);
  }
  loseDevice(): void {
    this.module.destroyDevice();
  }
  fail(error: ExecuTorchError): void {
    this.module.fail(error);
  }

  dispose(): void {
    this.module.freeSession(this.session);
    if (this.device === 'webgpu') this.module.freeDevice();
  }
}

/** No adapter: the CPU was asked for, or `auto` fell back for `reason`. */
async function chooseDevice(module: WasmModule, request: LoadRequest): Promise<{ adapter?: Adapter; reason?: string }> {
  if (request.device === 'wasm') return {};
  const tier = request.debug.maxTier;
  try {
    const adapter = await module.createDevice({
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

function textModel(located: Located): TextModel | undefined {
  const tokenizer = located.files['tokenizer.json'];
  return tokenizer === undefined
    ? undefined
    : new TextModel(tokenizer, located.files['tokenizer_config.json'], located.files['chat_template.jinja']);
}

/** Tokens that end an answer, by the program and by generation_config.json. */
function endIds(located: Located, methods: SessionInfo['methods']): Set<number> {
  const ids = new Set(methods.find((m) => m.name === 'get_eos_ids')?.values ?? []);
  const config = JSON.parse(located.files['generation_config.json'] ?? '{}') as { eos_token_id?: number | number[] };
  for (const id of [config.eos_token_id ?? []].flat()) ids.add(id);
  return ids;
}
