// A loaded model in the worker: module, device, session, tokenizer.
import { parseObject } from '../checks.js';
import { makeError, type ExecuTorchError } from '../errors.js';
import { isImageInput, type Input } from '../image.js';
import type { LoadRequest, PlainGenerateOptions } from '../protocol.js';
import type { GpuTensor, OutputPlace, Value } from '../tensor.js';
import type {
  Counters,
  DeviceName,
  GeneratedToken,
  GenerateResult,
  KernelTime,
  Manifest,
  ManifestFile,
  MemoryReport,
  Progress,
  Prompt,
  SessionInfo,
} from '../types.js';
import type { Located } from './folder.js';
import { Conversation } from './generate.js';
import { Grammars } from './grammar.js';
import { load, pathOf } from './load.js';
import type { WasmModule } from './module.js';
import { toTensor } from './picture.js';
import { PictureStages } from './picture_gpu.js';
import { TextModel } from './tokenizer.js';
import { decodeValues, encodeValues } from './values.js';

/** Tokens of a prompt between two looks at the signal: about 0.1 s on a CPU; a GPU finds out. */
const CHUNK = { webgpu: 0, wasm: 64 };

/** What a conversation runs on: the session itself or another sequence of it. */
interface Place {
  session: number;
  conversation: Conversation;
}

/** Files that the page gets to see; a tokenizer is large and of no use there. */
const SHOWN = ['labels.txt', 'preprocess.json'];

export class Model {
  private constructor(
    private readonly module: WasmModule,
    private readonly session: number,
    private readonly device: DeviceName,
    private readonly text: TextModel | undefined,
    /** On the session `session`, for models that generate text. */
    private readonly converse: ((session: number) => Conversation) | undefined,
    readonly info: SessionInfo,
    /** Where pictures become tensors on the GPU. */
    private readonly pictures: PictureStages | undefined,
  ) {
    if (converse) this.places.set(0, { session, conversation: converse(session) });
  }

  /** By the number of the sequence; 0: the session's own. */
  private readonly places = new Map<number, Place>();
  private nextSequence = 1;

  static async load(
    request: LoadRequest,
    signal: AbortSignal,
    onProgress: (progress: Progress) => void,
  ): Promise<Model> {
    const began = performance.now();
    const loaded = await load(request, signal, onProgress);
    const { module, session, device, adapter, fallback, located } = loaded;
    const methods = module.methods(session);
    const text = textModel(located);
    const generator =
      text && methods.some((m) => m.name === 'forward' && !m.constant)
        ? await module.createGenerator(session, 'forward')
        : undefined;
    const info: SessionInfo = {
      device,
      ...pathOf(request, loaded),
      ...(fallback !== undefined && { fallbackReason: fallback }),
      cache: loaded.cache,
      ...(located.variant && { variant: { name: located.variant.variant.name, reason: located.variant.reason } }),
      wasmTier: request.tier,
      threads: request.threads,
      ...(adapter && { adapter }),
      methods,
      ...(located.manifest && { manifest: withoutHashes(located.manifest) }),
      files: Object.fromEntries(Object.entries(located.files).filter(([name]) => SHOWN.includes(name))),
      canGenerate: generator !== undefined,
      ...(generator && { contextLength: generator.capacity }),
      ...(loaded.tuning && { tuning: loaded.tuning }),
      loadMs: 0,
    };
    const ends = endIds(located, methods);
    const grammars =
      generator &&
      new Grammars(request.grammarUrl, located.files['tokenizer.json'] ?? '{}', generator.vocabulary, [...ends]);
    const converse =
      generator &&
      text &&
      ((handle: number) =>
        new Conversation(
          {
            generate: (...args) => module.generate(handle, ...args),
            abort: () => module.abort(handle),
          },
          text,
          ends,
          CHUNK[device],
          grammars,
        ));
    loaded.meter.finish();
    info.loadMs = performance.now() - began;
    // tensors of 16-bit floats are made by the runtime
    const pictures = adapter && loaded.precision === 'f32' ? new PictureStages(module.gpuDevice()) : undefined;
    return new Model(module, session, device, text, converse, info, pictures);
  }

  async run(method: string, inputs: Input[], places: OutputPlace[]): Promise<(Value | GpuTensor)[]> {
    const { module } = this;
    const onGpu = this.info.methods.some((m) => m.name === method && m.gpuBuffers) ? this.pictures : undefined;
    const values = await Promise.all(
      inputs.map((input, i) => (isImageInput(input) ? toTensor(input, i, onGpu) : Promise.resolve(input))),
    );
    const handles: number[] = [];
    try {
      const call = encodeValues(values, places, (buffer) => {
        const handle = module.importBuffer(buffer);
        handles.push(handle);
        return handle;
      });
      return decodeValues(await module.run(this.session, method, call), (handle) => module.bufferOf(handle));
    } finally {
      for (const handle of handles) module.releaseBuffer(handle);
    }
  }

  private place(sequence: number): Place {
    const place = this.places.get(sequence);
    if (place) return place;
    if (sequence === 0) throw makeError('invalid_argument', 'this model does not generate text');
    throw makeError('disposed', 'the sequence was disposed of');
  }

  /** Another conversation with states of its own. */
  async newSequence(): Promise<{ sequence: number; stateBytes: number }> {
    const { session, stateBytes } = await this.module.createSequence(this.place(0).session);
    const sequence = this.nextSequence++;
    this.places.set(sequence, { session, conversation: this.converse!(session) });
    return { sequence, stateBytes };
  }
  disposeSequence(sequence: number): void {
    this.module.freeSession(this.place(sequence).session);
    this.places.delete(sequence);
  }

  generate(
    sequence: number,
    prompt: Prompt,
    options: PlainGenerateOptions,
    signal: AbortSignal,
    onToken: (token: GeneratedToken) => void,
  ): Promise<GenerateResult> {
    return this.place(sequence).conversation.generate(prompt, options, signal, onToken);
  }

  // async: what place() throws is a rejection
  async saveState(sequence: number): Promise<Blob> {
    return this.module.saveState(this.place(sequence).session);
  }
  async restoreState(sequence: number, saved: Blob): Promise<void> {
    await this.module.restoreState(this.place(sequence).session, saved);
  }

  tokenize(prompt: Prompt): number[] {
    if (!this.text) throw makeError('invalid_argument', 'this model has no tokenizer');
    return this.text.encode(prompt);
  }

  async reset(sequence: number): Promise<void> {
    await this.module.reset(sequence ? this.place(sequence).session : this.session);
  }

  setAdapterScale(name: string, scale: number): Promise<void> {
    return this.module.setAdapterScale(this.session, name, scale);
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
  /** The cause of an error, where it is known by now. */
  explain(error: unknown): Promise<unknown> {
    return this.module.explain(error);
  }
  fail(error: ExecuTorchError): void {
    this.module.fail(error);
  }

  dispose(): void {
    for (const sequence of [...this.places.keys()]) if (sequence) this.disposeSequence(sequence);
    this.module.freeSession(this.session);
    this.pictures?.dispose();
    if (this.device === 'webgpu') this.module.freeDevice();
  }
}

/** A page has no use for them, and large models have thousands. */
function withoutHashes(manifest: Manifest): Manifest {
  const plain = ({ path, size, parts }: ManifestFile): ManifestFile => ({
    path,
    size,
    ...(parts && { parts: parts.map(plain) }),
  });
  return { ...manifest, files: manifest.files.map(plain) };
}

function textModel(located: Located): TextModel | undefined {
  const tokenizer = located.files['tokenizer.json'];
  return tokenizer === undefined
    ? undefined
    : new TextModel(tokenizer, located.files['tokenizer_config.json'], located.files['chat_template.jinja']);
}

/** Tokens that end an answer, by the program and by generation_config.json. */
export function endIds({ files }: Pick<Located, 'files'>, methods: SessionInfo['methods']): Set<number> {
  const file = 'generation_config.json';
  const config = parseObject(file, files[file] ?? '{}') as { eos_token_id?: number | number[] };
  const more = [config.eos_token_id ?? []].flat();
  if (more.every(Number.isInteger)) {
    return new Set([...(methods.find((m) => m.name === 'get_eos_ids')?.values ?? []), ...more]);
  }
  throw makeError('invalid_program', `${file}: eos_token_id is ${JSON.stringify(more)}, which are no token ids`);
}
