// The types of the public API.
import type { ExecuTorchError } from './errors.js';

export type DeviceName = 'webgpu' | 'wasm';
export type WasmTier = 'relaxed' | 'simd128';

export interface Progress {
  /** In this order; `ready` is the last call. */
  phase: 'runtime' | 'download' | 'compile' | 'ready';
  /** Bytes so far; never decreases. */
  loaded: number;
  /** Bytes in all, 0 while unknown. */
  total: number;
}

export interface LoadOptions {
  /** A model folder (with `manifest.json`) or a `.pte`. Relative URLs are relative to the page. */
  modelUrl: string | URL;
  /** `auto`: WebGPU where there is an adapter, else the CPU; `session.fallbackReason` then says why. */
  device?: 'auto' | DeviceName;
  /** `exact`: the CPU multiplies in f32 instead of with 8 or 16 bit activations. No effect on the GPU. */
  activations?: 'auto' | 'exact';
  /** `f16`: intermediates and KV cache in half precision on GPUs that can. */
  precision?: 'f32' | 'f16';
  /** Threads of the CPU path; more than 1 needs a cross-origin isolated page. Default: as many as help, at most 4. */
  threads?: number;
  onProgress?: (progress: Progress) => void;
  /** Stops the download at once and frees everything. */
  signal?: AbortSignal;
  /** Folder with the WebAssembly builds, if it is not beside this script. */
  wasmUrl?: string | URL;
  /** The worker script, if it is not beside this script. */
  workerUrl?: string | URL;
  /** Refuse programs that need more bytes than this (default 4 GiB). */
  memoryCap?: number;
  /** For tests and bug reports. */
  debug?: DebugOptions;
}

export interface DebugOptions {
  /** Passes that are not run; see docs/passes.md. */
  disabledPasses?: string;
  maxTier?: 'baseline' | 'f16' | 'subgroups' | 'subgroup_matrix';
  /** WebGPU's default limits, whatever the adapter offers. */
  defaultLimits?: boolean;
  wasmTier?: WasmTier;
  /** Module that the worker imports before anything else, e.g. to count calls of the browser's WebGPU objects. */
  instrument?: string;
}

export interface Capabilities {
  webgpu: {
    available: boolean;
    /** Why not, in words. */
    reason?: string;
    adapter?: { vendor: string; architecture: string; description: string };
    features: string[];
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

export interface ChatMessage {
  role: string;
  content: string;
}

/** Text is continued as it is; messages go through the model's chat template; ids are run unchanged. */
export type Prompt = string | ChatMessage[] | { tokenIds: readonly number[] };

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
  /** Generation ends before the first of these; they are not part of the text. */
  stop?: string | string[];
  /** Ends generation after the step under way; the result then has finishReason `aborted`. */
  signal?: AbortSignal;
  onToken?: (token: GeneratedToken) => void;
}

export interface GeneratedToken {
  id: number;
  /** What became certain with this token; may be empty while a character or a stop string is incomplete. */
  text: string;
}

export interface GenerateResult {
  text: string;
  /** With the end-of-text token, if that came. */
  tokenIds: number[];
  /** `length`: maxTokens or the end of the context. */
  finishReason: 'stop' | 'length' | 'aborted';
  timings: {
    promptTokens: number;
    /** Of these, found in the cache. */
    reusedTokens: number;
    prefillMs: number;
    decodeTokens: number;
    decodeMs: number;
  };
}

export interface MemoryReport {
  weights: number;
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

/** `manifest.json` of a model folder, as far as this package reads it. */
export interface Manifest {
  format: number;
  name: string;
  task: string;
  files: { path: string; size: number; sha256?: string }[];
  /** `data`: the `.ptd` with the program's weights, where they are not inside the program. */
  variants: { name: string; program: string; data?: string; metadata?: Record<string, unknown> }[];
}

export interface SessionInfo {
  device: DeviceName;
  /** Why `auto` did not take the GPU. */
  fallbackReason?: string;
  wasmTier: WasmTier;
  threads: number;
  adapter?: {
    vendor: string;
    architecture: string;
    description: string;
    f16: boolean;
    subgroups: boolean;
    subgroupMatrix: boolean;
  };
  methods: { name: string; constant: boolean; values: number[] }[];
  /** Of a model folder. */
  manifest?: Manifest;
  /** Files beside the program, by name: `labels.txt`, `preprocess.json`. */
  files: Record<string, string>;
  /** A tokenizer is there. */
  canGenerate: boolean;
  contextLength?: number;
  loadMs: number;
}

export type { ExecuTorchError };
