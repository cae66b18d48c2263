// The types of the public API.
import type { ExecuTorchError } from './errors.js';
import type { GpuDevice } from './gpu.js';

export type DeviceName = 'webgpu' | 'wasm';
/** Each with those before it. */
export type GpuTier = 'baseline' | 'f16' | 'subgroups' | 'subgroup_matrix';
export type WasmTier = 'relaxed' | 'simd128';

export interface Progress {
  /** In this order, `waiting` (for another tab that downloads the same model) only where it comes to that; `ready` is the last call. */
  phase: 'runtime' | 'waiting' | 'download' | 'compile' | 'ready';
  /** Bytes so far; never decreases. */
  loaded: number;
  /** Bytes in all, 0 while unknown. */
  total: number;
  /** Bytes of `loaded` that came from the cache. */
  cached: number;
  /** While downloading, as soon as it can be told. */
  secondsLeft?: number;
}

/**
 * A model: URL of a folder (with `manifest.json`) or of a `.pte`, or either of them at hand. Files of a picked or dropped
 * folder are found by their `webkitRelativePath`.
 */
export type ModelSource =
  | string
  | URL
  | Blob
  | ReadableStream<Uint8Array>
  | FileSystemFileHandle
  | FileSystemDirectoryHandle
  | FileList
  | readonly File[];

/** A LoRA adapter as peft saves it: adapter_config.json and adapter_model.safetensors. */
export interface AdapterOptions {
  /** URL of the folder. Relative URLs are relative to the page. */
  url?: string | URL;
  /** Instead of `url`: the two files, or the folder, at hand. */
  files?: FileList | readonly File[] | FileSystemDirectoryHandle;
  /** By which its scale is set. Default: the name of the folder. */
  name?: string;
  /** 1 (default): as trained; 0: off. */
  scale?: number;
}

export interface LoadOptions {
  /** A model folder (or its `manifest.json`) or a `.pte`. Relative URLs are relative to the page. */
  modelUrl?: string | URL;
  /** Instead of `modelUrl`: a model that is at hand. */
  model?: ModelSource;
  /** URL of a `.ptd` with the weights of a bare `.pte`. */
  dataUrl?: string | URL;
  /** Up to four LoRA adapters, applied as the model runs: its weights stay as they are. */
  adapters?: readonly AdapterOptions[];
  /** A variant of a model folder by name. Default: the first that suits this device; `session.info.variant` says why. */
  variant?: string;
  /** `auto` keeps downloads for the next visit, as far as the browser has room; `none` keeps nothing. */
  cache?: 'auto' | 'none';
  /**
   * `auto`: WebGPU where there is a GPU that can run the model, else the CPU; `session.fallbackReason` then says why. A
   * GPUDevice of yours needs `worker: false`, since devices cannot be sent to a worker.
   */
  device?: 'auto' | DeviceName | GpuDevice;
  /** `false` runs the same engine on the calling thread, e.g. in a worker of yours; without CPU threads. */
  worker?: boolean;
  /** `exact`: the CPU multiplies in f32, not with 16-bit activations, and its caches are f32, not f16. */
  activations?: 'auto' | 'exact';
  /**
   * Of intermediates and KV cache on the GPU. `f16` is half the bytes, on GPUs that can; `auto` takes it for model folders
   * whose manifest lists it.
   */
  precision?: 'auto' | Precision;
  /** Threads of the CPU path; more than 1 needs a cross-origin isolated page. Default: as many as help, at most 4. */
  threads?: number;
  onProgress?: (progress: Progress) => void;
  /** Stops the download at once and frees everything. */
  signal?: AbortSignal;
  /** Folder with the WebAssembly builds, if it is not beside this script. */
  wasmUrl?: string | URL;
  /** The worker script, if it is not beside this script. */
  workerUrl?: string | URL;
  /**
   * The script `lib/index.js` of the package @mlc-ai/web-xgrammar, which `responseFormat` needs; loaded when it is first
   * asked for.
   */
  grammarUrl?: string | URL;
  /**
   * Tries the GPU kernels that a language model could run with, once, when it is first loaded on this device: for up to 15
   * seconds, or `budgetMs` milliseconds. What was found is kept (IndexedDB) and used from then on, also without this
   * option; not with `false`.
   */
  tune?: boolean | { budgetMs: number };
  /** Refuse programs that need more bytes than this (default 4 GiB). */
  memoryCap?: number;
  /** For tests and bug reports. */
  debug?: DebugOptions;
}

export interface DebugOptions {
  /** Passes that are not run; see docs/passes.md. */
  disabledPasses?: string;
  /**
   * Calls and generations end with NonFiniteError at the first operator that gives a NaN or an infinity, which is named.
   * Slow: on the GPU each operator is waited for and what it wrote is read back.
   */
  checkValues?: boolean;
  maxTier?: GpuTier;
  /** WebGPU's default limits, whatever the adapter offers. */
  defaultLimits?: boolean;
  wasmTier?: WasmTier;
  /** Keep files in CacheStorage, as where OPFS is missing. */
  cacheStorage?: boolean;
  /** Silence of a new worker after which another one is started beside it. */
  workerPatienceMs?: number;
  /** Module that the worker imports before anything else, e.g. to count calls of the browser's WebGPU objects. */
  instrument?: string;
}

export interface Capabilities {
  webgpu: {
    available: boolean;
    /** Why not, in words. */
    reason?: string;
    /** `software`: a program on the CPU plays the GPU, which is slower than the CPU path. */
    adapter?: { vendor: string; architecture: string; description: string; software: boolean };
    features: string[];
    /** Of the kernels that models would run with. */
    tier?: GpuTier;
    limits: Record<string, number>;
  };
  wasm: {
    /** Undefined: this browser is too old for the CPU path and the GPU path alike. */
    tier?: WasmTier;
    crossOriginIsolated: boolean;
    /** That loadModel would use by default. */
    threads: number;
  };
}

/** A message of a prompt. */
export interface PromptMessage {
  role: string;
  /** Parts of text, as in OpenAI's API, are joined. May be missing beside `tool_calls`. */
  content?: string | readonly { type: string; text?: string }[] | null;
  /** What else a template knows, such as `tool_calls` of an answer or the `name` of a tool. */
  [field: string]: unknown;
}

export interface ChatMessage extends PromptMessage {
  content: string;
}

/** The form of an answer. JSON has no whitespace but a blank after `:` and `,`; a grammar is EBNF as llama.cpp has it (GBNF). */
export type ResponseFormat =
  | { type: 'text' }
  | { type: 'json_object' }
  | { type: 'json_schema'; schema: object }
  | { type: 'grammar'; grammar: string };

/** Text is continued as it is; messages go through the model's chat template; ids are run unchanged. */
export type Prompt = string | PromptMessage[] | { tokenIds: readonly number[] };

export interface GenerateOptions {
  /** Default: up to the end of the context. */
  maxTokens?: number;
  /** 0 (default): greedy. */
  temperature?: number;
  topP?: number;
  topK?: number;
  minP?: number;
  repetitionPenalty?: number;
  /** Same seed, same tokens. Default: 0. */
  seed?: number;
  /** With every token the natural logarithm of the probability that the model gave it, before any filter. */
  logprobs?: boolean;
  /** Generation ends before the first of these; they are not part of the text. */
  stop?: string | string[];
  /**
   * Only tokens that lead to a text of this form are chosen; needs `grammarUrl` (LoadOptions). It is complete unless
   * `finishReason` is `length` or `aborted`.
   */
  responseFormat?: ResponseFormat;
  /**
   * At the end of the context: `stop` (default) ends the generation with `length`. `sliding` goes on as if the text were
   * its first 4 tokens and so many of its last that half of the context is full; those are computed again. A prompt that
   * is too long is shortened in the same way. The object has other numbers of tokens that are kept.
   */
  overflow?: 'stop' | 'sliding' | { sinks?: number; keep?: number };
  /**
   * Speculative decoding by prompt lookup: where the last `ngram` tokens (default 3, or fewer down to 2) came before, up to
   * `tokens` (default 8, at most 15) of those that followed are checked in one call instead of being computed one by one.
   * The tokens are the same; generations that sample, or have `logprobs` or a `responseFormat`, go without. For answers that
   * repeat much of their prompt.
   */
  speculation?: boolean | { tokens?: number; ngram?: number };
  /** JSON schemas of functions, for chat templates that know tools. */
  tools?: readonly object[];
  /** Further variables of the chat template, such as `{ enable_thinking: false }` of Qwen3. */
  templateOptions?: Readonly<Record<string, unknown>>;
  /**
   * Ends generation; the result then has finishReason `aborted`. Tokens whose steps were in flight when the signal came
   * (four at most) may still be delivered: text and ids of the result are exactly what `onToken` has got.
   */
  signal?: AbortSignal;
  onToken?: (token: GeneratedToken) => void;
}

export interface CallOptions {
  /** A call that waits for its turn is dropped and rejects with CancelledError, whose name is AbortError; one under way ends first. */
  signal?: AbortSignal;
}

export interface GeneratedToken {
  id: number;
  /** What became certain with this token; may be empty while a character or a stop string is incomplete. */
  text: string;
  /** With `logprobs`. */
  logprob?: number;
}

export interface GenerateResult {
  text: string;
  /** With the end-of-text token, if that came. */
  tokenIds: number[];
  /** Of tokenIds, with `logprobs`. */
  logprobs?: number[];
  /** `length`: maxTokens or the end of the context. */
  finishReason: 'stop' | 'length' | 'aborted';
  /** With `speculation`. */
  speculation?: SpeculationCounts;
  timings: {
    promptTokens: number;
    /** Of these, found in the cache. */
    reusedTokens: number;
    prefillMs: number;
    decodeTokens: number;
    decodeMs: number;
  };
}

export interface SpeculationCounts {
  /** Tokens that were drafted. */
  proposed: number;
  /** Of these, what the model would have chosen itself. */
  accepted: number;
  /** Of the model, after the prompt; one a token without speculation. */
  calls: number;
}

export interface MemoryReport {
  weights: number;
  /** Of all sequences. */
  state: number;
  arena: number;
  other: number;
  /** What the arenas would take without reuse. */
  arenaWithoutReuse: number;
  /** Size of the WebAssembly memory; it only grows, so this is its peak. */
  wasmHeap: number;
}

export interface Counters {
  dispatches: number;
  submits: number;
  readBackBytes: number;
  uploadBytes: number;
}

/** How long a dispatch (GPU) or a node (CPU) took, in microseconds. */
export interface KernelTime {
  kernel: string;
  node: string;
  us: number;
  /** What it had to read and write at least; 0 on the CPU. */
  bytes: number;
  /** Of its products, 2 a multiply-add; 0 on the CPU. */
  flops: number;
}

/** An entry of `manifest.json`. */
export interface ManifestFile {
  path: string;
  size: number;
  sha256?: string;
  /** SHA-256 of each `chunk_bytes`. */
  chunks?: string[];
  /** Files whose concatenation this file is; it does not exist by itself then. */
  parts?: ManifestFile[];
}
export interface ManifestVariant {
  name: string;
  program: string;
  /** Weights beside the program. */
  data?: string;
  /** `f16`: only for GPUs that can. */
  dtype?: string;
  /** In which its results are as good as those of `dtype`. */
  precisions?: string[];
  weights?: { bits: number };
  /** WebGPU limits that it needs. */
  limits?: Record<string, number>;
  metadata?: Record<string, unknown>;
}
/** `manifest.json` of a model folder, as far as this package reads it. */
export interface Manifest {
  format: number;
  name: string;
  task: string;
  chunk_bytes?: number;
  files: ManifestFile[];
  /** Best first. */
  variants: ManifestVariant[];
}

/** Where the bytes of a model came from and whether the next load finds them. */
export interface CacheInfo {
  /** `hit`: nothing was downloaded. `stored`: the next load will be a hit. `off`: nothing is kept; `reason` says why. */
  state: 'hit' | 'stored' | 'off';
  reason?: string;
  storage?: 'opfs' | 'cachestorage';
  bytesFromCache: number;
  bytesFromNetwork: number;
}

/** From the best to the plainest; the same file and the same results on each. */
export type Path =
  'webgpu-f16-subgroups' | 'webgpu-f16' | 'webgpu-subgroups' | 'webgpu-baseline' | 'wasm-threads' | 'wasm';

/** Of intermediates and KV cache on the GPU; sums are f32, but for runs of at most 32 products of f16. */
export type Precision = 'f32' | 'f16';

/** The kernels that were chosen by measuring: `tune` of LoadOptions. */
export interface TuningInfo {
  from: 'saved' | 'measured';
  /** A line for each choice that differs from the defaults. */
  tuning: string;
  /** Milliseconds of a token and of a chunk of a prompt, with the defaults and with `tuning`. */
  tokenMsBefore: number;
  tokenMs: number;
  chunkMsBefore: number;
  chunkMs: number;
  /** How many were tried. */
  candidates: number;
}

export interface MethodInfo {
  name: string;
  constant: boolean;
  /** All of it runs on the GPU, so that its tensors may be there. */
  gpuBuffers: boolean;
  /** Of a constant method. */
  values: number[];
}

export interface SessionInfo {
  device: DeviceName;
  path: Path;
  precision: Precision;
  /** Why `path` is not the best one, a sentence for each step down. */
  reasons: string[];
  /** Why `auto` did not take the GPU. */
  fallbackReason?: string;
  cache: CacheInfo;
  /** Of a model folder: which of its variants runs, and why this one. */
  variant?: { name: string; reason: string };
  wasmTier: WasmTier;
  threads: number;
  adapter?: {
    vendor: string;
    architecture: string;
    description: string;
    /** A program on the CPU plays the GPU. */
    software: boolean;
    f16: boolean;
    subgroups: boolean;
    subgroupMatrix: boolean;
  };
  methods: MethodInfo[];
  /** Of a model folder, without the hashes. */
  manifest?: Manifest;
  /** Files beside the program, by name: `labels.txt`, `preprocess.json`. */
  files: Record<string, string>;
  /** A tokenizer is there. */
  canGenerate: boolean;
  contextLength?: number;
  tuning?: TuningInfo;
  loadMs: number;
}

export type { ExecuTorchError };
