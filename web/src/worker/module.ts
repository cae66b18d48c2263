// The WebAssembly module behind promises: requests by id, data sources, strings, failures.
import { isSoftware } from '../capabilities.js';
import { RUNTIME_CODES, makeError, type ErrorCode, type ExecuTorchError } from '../errors.js';
import type { KernelTime, MethodInfo, SpeculationCounts, TuningInfo } from '../types.js';
import type { Exports, ModuleOptions } from './exports.js';
import { encodeJson } from './json.js';
import { StreamSource, WordWriter, type ReadTarget } from './source.js';

export interface ModuleUrls {
  moduleUrl: string;
  wasmUrl: string;
}

export interface Adapter {
  vendor: string;
  architecture: string;
  description: string;
  /** A program on the CPU plays the GPU. */
  software: boolean;
  f16: boolean;
  subgroups: boolean;
  subgroupMatrix: boolean;
  handle: number;
}

export interface Sampling {
  temperature: number;
  topK: number;
  topP: number;
  minP: number;
  repetitionPenalty: number;
  seed: number;
}
export interface GenerateRequest extends Sampling {
  maxTokens: number;
  stopTokens: readonly number[];
  /** Compute the logarithm of each token's probability (NaN otherwise). */
  logprobs: boolean;
  /** Tokens of the prompt between two looks at the signal; 0: as the device is fast. */
  chunk: number;
  /** The end of the context is none; see Overflow of runtime/llm/generator.h. */
  sliding?: { sinks: number; keep: number };
  /** Drafts, see GenerateOptions of runtime/llm/generator.h. */
  speculation?: { tokens: number; ngram: number };
}
/** Of a generation: tokens of the prompt that were in the cache, why it ended, and what became of drafts. */
export interface Ended extends SpeculationCounts {
  reused: number;
  reason: FinishReason;
}
/** '': it goes on. */
export type FinishReason = '' | 'stop' | 'length' | 'aborted';
const FINISH_REASONS = ['', 'stop', 'length', 'aborted'] as const; // FinishReason of runtime/llm/generator.h
/** A token and whether it is the last one; returning false ends the generation. Called from inside the module. */
export type OnToken = (id: number, reason: FinishReason, logprob: number) => boolean;

/** What the next token may be: a bit for each of the vocabulary. */
export type Allowed = () => Promise<Int32Array>;

const DOUBLES_PER_REQUEST = 5;
/** From a failure to the news that the device was lost. */
const LOST_MS = 300;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Downloads all of it, then compiles: whatever type the server says it has, and in one look at its size. */
async function compile(url: string, onBytes: (bytes: number) => void): Promise<WebAssembly.Module> {
  let response: Response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw makeError('io_error', `${url} could not be fetched: ${String(error)}`);
  }
  if (!response.ok) throw makeError('io_error', `${url}: the server answered ${response.status}`);
  const bytes = await response.arrayBuffer();
  onBytes(bytes.byteLength);
  try {
    return await WebAssembly.compile(bytes);
  } catch (error) {
    throw makeError('io_error', `${url} is not the WebAssembly module of this package: ${String(error)}`);
  }
}

export class WasmModule {
  private exports!: Exports;
  private bytes = new Uint8Array(0);
  private readonly pending = new Map<number, { resolve(payload: Uint8Array): void; reject(error: unknown): void }>();
  private readonly sources = new Map<number, StreamSource>();
  private readonly onToken = new Map<number, OnToken>();
  private readonly allowed = new Map<number, Allowed>();
  private readonly onPiece = new Map<number, (piece: Uint8Array<ArrayBuffer>) => void>();
  private pauses: MessageChannel | undefined;
  private nextId = 1;
  private broken: ExecuTorchError | undefined;
  readonly log: string[] = [];

  /** `threads`: workers that become threads beside this one. @throws BuildMismatchError, DownloadError */
  static async create(
    urls: ModuleUrls,
    threads: Worker[],
    buildId: string,
    onBytes: (bytes: number) => void,
  ): Promise<WasmModule> {
    const self = new WasmModule();
    const [compiled, factory] = await Promise.all([compile(urls.wasmUrl, onBytes), self.importFactory(urls.moduleUrl)]);
    const failed = new Promise<never>((_, reject) => (self.onInstantiationError = reject));
    self.exports = await Promise.race([factory(self.options(urls, compiled)), failed]);
    // nothing waits for them: one that starts late, or never, leaves its work to the others
    for (const thread of threads) {
      self.exports.PThread.unusedWorkers.push(thread);
      void self.exports.PThread.loadWasmModuleToWorker(thread);
    }
    const id = self.string(self.exports._etwgpu_build_id());
    if (id !== buildId) {
      throw makeError(
        'build_mismatch',
        `this JavaScript belongs to ${buildId}, the WebAssembly module is ${id}: serve both from one build`,
      );
    }
    return self;
  }

  private onInstantiationError: (error: unknown) => void = () => undefined;

  private async importFactory(url: string): Promise<(options: ModuleOptions) => Promise<Exports>> {
    try {
      const module = (await import(/* @vite-ignore */ /* webpackIgnore: true */ url)) as {
        default: (options: ModuleOptions) => Promise<Exports>;
      };
      return module.default;
    } catch (error) {
      throw makeError('io_error', `${url} could not be loaded: ${String(error)}`);
    }
  }

  private options(urls: ModuleUrls, compiled: WebAssembly.Module): ModuleOptions {
    const keep = (text: string) => {
      this.log.push(text);
      if (this.log.length > 50) this.log.shift();
    };
    return {
      etwgpuHost: {
        complete: (...args) => this.complete(...args),
        readSource: (...args) => this.readSource(...args),
        token: (...args) => this.deliver(...args),
        mask: (...args) => this.mask(...args),
        pause: (token) => this.pause(token),
        piece: (request, bytes, length) => this.onPiece.get(request)?.(this.copyOut(bytes, length)),
        parseJson: (text, length) => {
          const encoded = encodeJson(decoder.decode(this.copyOut(text, length)));
          return encoded ? this.copyIn(encoded) : 0;
        },
        isSoftware,
      },
      mainScriptUrlOrBlob: urls.moduleUrl,
      instantiateWasm: (imports, receive) => {
        WebAssembly.instantiate(compiled, imports).then(
          (instance) => receive(instance, compiled),
          (error: unknown) =>
            this.onInstantiationError(makeError('out_of_memory', `the module could not be started: ${String(error)}`)),
        );
        return {};
      },
      print: keep,
      printErr: keep,
      onAbort: (reason) =>
        this.fail(makeError('internal', `the module aborted: ${String(reason)}; ${this.log.slice(-3).join('; ')}`)),
    };
  }

  // ---- memory

  /** Views of a memory that grew are stale: ask anew after every call into the module. */
  heap(): Uint8Array {
    const buffer = this.exports.wasmMemory.buffer;
    if (this.bytes.buffer !== buffer || this.bytes.length !== buffer.byteLength) this.bytes = new Uint8Array(buffer);
    return this.bytes;
  }
  heapBytes(): number {
    return this.exports.wasmMemory.buffer.byteLength;
  }

  private copyOut(pointer: number, length: number): Uint8Array<ArrayBuffer> {
    return this.heap().slice(pointer >>> 0, (pointer >>> 0) + length);
  }
  private text(pointer: number, length: number): string {
    return decoder.decode(this.copyOut(pointer, length));
  }
  private string(pointer: number): string {
    if (pointer === 0) throw makeError('internal', 'the module knows no such session');
    const heap = this.heap();
    return this.text(pointer, heap.indexOf(0, pointer >>> 0) - (pointer >>> 0));
  }
  /** Memory that the caller frees, or hands to a function that takes it over. */
  private copyIn(bytes: Uint8Array): number {
    const pointer = this.exports._malloc(Math.max(1, bytes.length));
    if (pointer === 0) throw makeError('out_of_memory', `no memory for ${bytes.length} bytes of input`);
    this.heap().set(bytes, pointer >>> 0);
    return pointer;
  }
  private withBytes<T>(bytes: Uint8Array, use: (pointer: number, length: number) => T): T {
    const pointer = this.copyIn(bytes);
    try {
      return use(pointer, bytes.length);
    } finally {
      this.exports._free(pointer);
    }
  }
  private withText<T>(text: string, use: (pointer: number, length: number) => T): T {
    return this.withBytes(encoder.encode(text), use);
  }

  // ---- requests

  /** Rejects everything that is under way; the module is not used any more. */
  fail(error: ExecuTorchError): void {
    this.broken ??= error;
    for (const call of [...this.pending.values()]) call.reject(this.broken);
    this.pending.clear();
  }

  private request(start: (id: number) => void): Promise<Uint8Array> {
    if (this.broken) return Promise.reject(this.broken);
    const id = this.nextId++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.guard(() => start(id));
    });
  }
  /** A trap leaves the module's memory in an unknown state. */
  private guard(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.fail(makeError('internal', `the module failed: ${String(error)}`, { cause: error }));
    }
  }
  private async json<T>(start: (id: number) => void): Promise<T> {
    return JSON.parse(decoder.decode(await this.request(start))) as T;
  }
  private check(code: number, what: string): void {
    if (code !== 0) throw makeError(codeOf(code), `${what}: ${RUNTIME_CODES[code] ?? code}`);
  }

  private complete(
    id: number,
    code: number,
    message: number,
    messageLength: number,
    payload: number,
    payloadLength: number,
  ): void {
    const call = this.pending.get(id);
    if (!call) return;
    this.pending.delete(id);
    if (code === 0) call.resolve(this.copyOut(payload, payloadLength));
    else call.reject(makeError(codeOf(code), this.text(message, messageLength)));
  }

  /** What the callback throws must not unwind the module, which goes on; the request rejects with it. */
  private deliver(request: number, token: number, reason: number, logprob: number): boolean {
    try {
      return this.onToken.get(request)?.(token, FINISH_REASONS[reason] ?? '', logprob) ?? false;
    } catch (error) {
      this.pending.get(request)?.reject(error);
      return false;
    }
  }
  /** Where there is no mask the words stay zero, which the module refuses; the request rejects with the cause. */
  private mask(request: number, words: number, count: number, token: number): void {
    const fill = async () => {
      const mask = await this.allowed.get(request)?.();
      if (mask) new Int32Array(this.heap().buffer, words >>> 0, count).set(mask.subarray(0, count));
    };
    void fill()
      .catch((error: unknown) => this.pending.get(request)?.reject(error))
      .then(() => this.guard(() => this.exports._etwgpu_resume(token)));
  }
  /** Messages to this worker, such as an abort, are handled before the module resumes. */
  private pause(token: number): void {
    if (!this.pauses) {
      this.pauses = new MessageChannel();
      this.pauses.port2.onmessage = ({ data }) => this.guard(() => this.exports._etwgpu_resume(data as number));
    }
    this.pauses.port1.postMessage(token);
  }

  // ---- data sources

  addSource(source: StreamSource): number {
    const id = this.nextId++;
    this.sources.set(id, source);
    return id;
  }
  removeSource(id: number): void {
    this.sources.get(id)?.close();
    this.sources.delete(id);
  }

  private readSource(id: number, requests: number, count: number, token: number): void {
    const numbers = new Float64Array(this.copyOut(requests, count * DOUBLES_PER_REQUEST * 8).buffer);
    const targets: ReadTarget[] = [];
    for (let i = 0; i < count; ++i) {
      const [offset, size, host, gpu, gpuOffset] = numbers.subarray(i * DOUBLES_PER_REQUEST) as unknown as [
        number,
        number,
        number,
        number,
        number,
      ];
      targets.push(gpu ? this.gpuTarget(offset, size, gpu, gpuOffset) : this.hostTarget(offset, size, host));
    }
    const source = this.sources.get(id);
    const served = source ? source.read(targets) : Promise.reject(makeError('internal', `no data source ${id}`));
    served.then(
      () => this.guard(() => this.exports._etwgpu_source_done(token, 0, 0, 0)),
      (error: unknown) => {
        const { code, message } = error as ExecuTorchError;
        const number = Math.max(RUNTIME_CODES.indexOf(code as never), 0) || RUNTIME_CODES.indexOf('internal');
        this.guard(() =>
          this.withText(message ?? String(error), (p, n) => this.exports._etwgpu_source_done(token, number, p, n)),
        );
      },
    );
  }
  private hostTarget(offset: number, size: number, pointer: number): ReadTarget {
    let at = pointer;
    return {
      offset,
      size,
      write: (bytes) => {
        this.heap().set(bytes, at);
        at += bytes.length;
      },
    };
  }
  private gpuTarget(offset: number, size: number, handle: number, gpuOffset: number): ReadTarget {
    const buffer = this.exports.etwgpuBuffer(handle);
    const words = new WordWriter((at, bytes) =>
      this.queue().writeBuffer(buffer, gpuOffset + at, bytes as Uint8Array<ArrayBuffer>),
    );
    return { offset, size, write: (bytes) => words.write(bytes), end: () => words.end() };
  }

  // ---- the API

  private device = 0;
  gpuDevice(): GPUDevice {
    return this.exports.etwgpuBuffer(this.device) as unknown as GPUDevice;
  }
  private queue(): GPUQueue {
    return this.gpuDevice().queue;
  }
  /** A handle to be released. */
  importBuffer(buffer: GPUBuffer): number {
    return this.exports.etwgpuImportBuffer(buffer);
  }
  bufferOf(handle: number): GPUBuffer {
    return this.exports.etwgpuBuffer(handle);
  }
  releaseBuffer(handle: number): void {
    this.exports.etwgpuRelease(handle);
  }
  /** Resolves when the GPU has taken what was uploaded so far. */
  async uploaded(): Promise<void> {
    if (this.device) await this.queue().onSubmittedWorkDone();
  }

  /** @throws NoAdapterError and whatever else keeps the device from being made. */
  async createDevice(options: {
    /** A device of the caller's, instead of a new one. */
    existing?: GPUDevice;
    defaultLimits: boolean;
    f16: boolean;
    subgroups: boolean;
  }): Promise<Adapter> {
    const existing = options.existing ? this.exports.etwgpuImportDevice(options.existing) : 0;
    const adapter = await this.json<Adapter>((id) =>
      this.exports._etwgpu_device_create(id, existing, +options.defaultLimits, +!options.f16, +!options.subgroups),
    );
    this.device = adapter.handle;
    return adapter;
  }
  /** Some browsers fail what is under way before they tell that the device is gone. */
  async explain(error: unknown): Promise<unknown> {
    if ((error as ExecuTorchError).code !== 'gpu_error' || !this.device) return error;
    const device = this.gpuDevice();
    const patience = new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), LOST_MS));
    const lost = await Promise.race([device.lost, patience]);
    return lost ? makeError('device_lost', `the GPU device is gone: ${lost.message || lost.reason}`) : error;
  }
  destroyDevice(): void {
    this.exports._etwgpu_device_destroy();
  }
  freeDevice(): void {
    this.device = 0;
    this.check(this.exports._etwgpu_device_free(), 'freeing the device');
  }

  async loadSession(options: {
    source: number;
    /** Of the `.ptd`; 0: none. */
    data: number;
    name: string;
    size: number;
    device: number;
    precision: number;
    activations: number;
    threads: number;
    maxTier: number;
    memoryCap: number;
    checkValues: boolean;
    disabledPasses: string;
    tuning: string;
    adapters: readonly { name: string; config: string; source: number; size: number; scale: number }[];
  }): Promise<number> {
    for (const { name, config, source, size, scale } of options.adapters) {
      this.withText(name, (n, nameLength) =>
        this.withText(config, (c, configLength) =>
          this.exports._etwgpu_adapter_add(n, nameLength, source, size, c, configLength, scale),
        ),
      );
    }
    const { session } = await this.json<{ session: number }>((id) =>
      this.withText(options.name, (name, nameLength) =>
        this.withText(options.disabledPasses, (passes, passesLength) =>
          this.withText(options.tuning, (tuning, tuningLength) =>
            this.exports._etwgpu_session_load(
              id,
              options.source,
              name,
              nameLength,
              options.size,
              options.data,
              options.device,
              options.precision,
              options.activations,
              options.threads,
              options.maxTier,
              options.memoryCap,
              Number(options.checkValues),
              passes,
              passesLength,
              tuning,
              tuningLength,
            ),
          ),
        ),
      ),
    );
    return session;
  }
  /** Before there is a generator. */
  tune(session: number, method: string, budgetMs: number): Promise<Omit<TuningInfo, 'from'>> {
    return this.json((id) =>
      this.withText(method, (name, length) => this.exports._etwgpu_session_tune(id, session, name, length, budgetMs)),
    );
  }
  freeSession(session: number): void {
    this.check(this.exports._etwgpu_session_free(session), 'freeing the session');
  }
  run(session: number, method: string, inputs: Uint8Array): Promise<Uint8Array> {
    return this.request((id) => {
      const pointer = this.copyIn(inputs); // taken over by the call
      this.withText(method, (name, nameLength) =>
        this.exports._etwgpu_session_run(id, session, name, nameLength, pointer, inputs.length),
      );
    });
  }
  async reset(session: number): Promise<void> {
    await this.request((id) => this.exports._etwgpu_session_reset(id, session));
  }
  async setAdapterScale(session: number, name: string, scale: number): Promise<void> {
    await this.request((id) =>
      this.withText(name, (p, n) => this.exports._etwgpu_session_set_adapter_scale(id, session, p, n, scale)),
    );
  }
  inspect(session: number): unknown {
    return JSON.parse(this.string(this.exports._etwgpu_session_inspect(session)));
  }
  methods(session: number): MethodInfo[] {
    return JSON.parse(this.string(this.exports._etwgpu_session_methods(session))) as MethodInfo[];
  }
  memory(session: number): Record<string, number> {
    return JSON.parse(this.string(this.exports._etwgpu_session_memory(session))) as Record<string, number>;
  }
  stats(session: number): Record<string, number> {
    return JSON.parse(this.string(this.exports._etwgpu_session_stats(session))) as Record<string, number>;
  }

  setProfile(session: number, on: boolean): void {
    this.check(this.exports._etwgpu_session_set_profile(session, +on), 'profiling');
  }
  profile(session: number): KernelTime[] {
    return JSON.parse(this.string(this.exports._etwgpu_session_profile(session))) as KernelTime[];
  }

  createGenerator(session: number, method: string): Promise<{ capacity: number; vocabulary: number }> {
    return this.json((id) => this.withText(method, (p, n) => this.exports._etwgpu_generator_create(id, session, p, n)));
  }
  /** Another conversation on a session with a generator; `session` is its handle. */
  createSequence(session: number): Promise<{ session: number; stateBytes: number }> {
    return this.json((id) => this.exports._etwgpu_sequence_create(id, session));
  }
  /** Generates; tokens come as they are read from the device. `allowed`: asked before each token. */
  async generate(
    session: number,
    ids: readonly number[],
    o: GenerateRequest,
    onToken: OnToken,
    allowed?: Allowed,
  ): Promise<Ended> {
    const words = (list: readonly number[]) => new Uint8Array(Int32Array.from(list).buffer);
    let request = 0;
    try {
      const ended = await this.json<Omit<Ended, 'reason'> & { reason: number }>((id) => {
        request = id;
        this.onToken.set(id, onToken);
        if (allowed) this.allowed.set(id, allowed);
        this.withBytes(words(ids), (p) =>
          this.withBytes(words(o.stopTokens), (stops) =>
            this.exports._etwgpu_generator_generate(
              id,
              session,
              p,
              ids.length,
              stops,
              o.stopTokens.length,
              o.maxTokens,
              o.temperature,
              o.topK,
              o.topP,
              o.minP,
              o.repetitionPenalty,
              o.seed,
              +o.logprobs,
              o.chunk,
              +(allowed !== undefined),
              +(o.sliding !== undefined),
              o.sliding?.sinks ?? 0,
              o.sliding?.keep ?? 0,
              o.speculation?.tokens ?? 0,
              o.speculation?.ngram ?? 1,
            ),
          ),
        );
      });
      return { ...ended, reason: FINISH_REASONS[ended.reason] ?? '' };
    } finally {
      this.onToken.delete(request);
      this.allowed.delete(request);
    }
  }
  /** From anywhere: the generation under way ends after what is running. */
  abort(session: number): void {
    this.exports._etwgpu_generator_abort(session);
  }
  /** The tokens in the cache and the states that they fill. */
  async saveState(session: number): Promise<Blob> {
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    let request = 0;
    try {
      await this.request((id) => {
        request = id;
        this.onPiece.set(id, (piece) => pieces.push(piece));
        this.exports._etwgpu_generator_save(id, session);
      });
    } finally {
      this.onPiece.delete(request);
    }
    return new Blob(pieces);
  }
  /** @throws SavedStateError, with nothing changed, for what saveState of this model did not give. */
  async restoreState(session: number, saved: Blob): Promise<void> {
    const open = (start: number) => Promise.resolve({ stream: saved.slice(start).stream(), start, total: saved.size });
    const source = new StreamSource('the saved state', open, new AbortController().signal);
    const handle = this.addSource(source);
    try {
      await this.request((id) => this.exports._etwgpu_generator_restore(id, session, handle, saved.size));
    } catch (error) {
      throw source.failure ?? error;
    } finally {
      this.removeSource(handle);
    }
  }
  position(session: number): number {
    return this.exports._etwgpu_generator_position(session);
  }
}

function codeOf(number: number): ErrorCode {
  const name = RUNTIME_CODES[number];
  return name === undefined || name === 'ok' ? 'internal' : name;
}
