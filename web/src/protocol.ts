// Every message between page and worker. A request has an id; it gets any number of events and exactly one reply.
import type { WireError } from './errors.js';
import type { GpuDevice } from './gpu.js';
import type { Input } from './image.js';
import type { GpuTensor, OutputPlace, Value } from './tensor.js';
import type {
  Counters,
  DebugOptions,
  DeviceName,
  GeneratedToken,
  GenerateOptions,
  GenerateResult,
  KernelTime,
  MemoryReport,
  Precision,
  Progress,
  Prompt,
  SessionInfo,
  WasmTier,
} from './types.js';

/** A model as it crosses to the worker: blobs and streams cross without a copy. */
export type SourceRef =
  | { kind: 'url'; url: string }
  | { kind: 'files'; files: { path: string; blob: Blob }[] }
  | { kind: 'stream'; stream: ReadableStream<Uint8Array> };

/** A LoRA adapter; the source's URL is that of adapter_model.safetensors. */
export interface AdapterRef {
  name: string;
  scale: number;
  source: Exclude<SourceRef, { kind: 'stream' }>;
}

export interface LoadRequest {
  source: SourceRef;
  adapters: AdapterRef[];
  /** Weights beside a bare `.pte`. */
  dataUrl?: string;
  variant?: string;
  cache: 'auto' | 'none';
  device: 'auto' | DeviceName;
  /** On the caller's own thread only. */
  gpuDevice?: GpuDevice;
  exact: boolean;
  precision: 'auto' | Precision;
  threads: number;
  /** Milliseconds; 0: what was measured before is used, nothing is measured; -1: nor that. */
  tuneMs: number;
  memoryCap: number;
  tier: WasmTier;
  threaded: boolean;
  /** Why there is one thread only; empty where there are more. */
  singleThread: string;
  moduleUrl: string;
  wasmUrl: string;
  /** Empty: none was given. */
  grammarUrl: string;
  debug: DebugOptions;
}

export type PlainGenerateOptions = Omit<GenerateOptions, 'signal' | 'onToken'>;

/** Requests with their parameters and results. */
export interface Calls {
  load: { params: LoadRequest; result: SessionInfo; event: Progress };
  run: {
    /** places: none, one, or one for each output. */
    params: { method: string; inputs: Input[]; places: OutputPlace[] };
    result: (Value | GpuTensor)[];
    event: never;
  };
  /** Another conversation: the calls below take its number, 0 is the session's own. */
  newSequence: { params: Record<string, never>; result: { sequence: number; stateBytes: number }; event: never };
  disposeSequence: { params: { sequence: number }; result: null; event: never };
  generate: {
    params: { sequence: number; prompt: Prompt; options: PlainGenerateOptions };
    result: GenerateResult;
    event: GeneratedToken;
  };
  tokenize: { params: { prompt: Prompt }; result: number[]; event: never };
  saveState: { params: { sequence: number }; result: Blob; event: never };
  restoreState: { params: { sequence: number; saved: Blob }; result: null; event: never };
  reset: { params: { sequence: number }; result: null; event: never };
  adapterScale: { params: { name: string; scale: number }; result: null; event: never };
  memory: { params: Record<string, never>; result: MemoryReport; event: never };
  inspect: { params: Record<string, never>; result: unknown; event: never };
  counters: { params: Record<string, never>; result: Counters; event: never };
  /** Times of the last generated step; the first call switches the timing on. */
  profile: { params: Record<string, never>; result: KernelTime[]; event: never };
  dispose: { params: Record<string, never>; result: null; event: never };
  /** For tests: the device goes away as after a driver reset. */
  loseDevice: { params: Record<string, never>; result: null; event: never };
}
export type CallName = keyof Calls;

/** The first message to a worker, which may not come back from what it does then: see worker/threads.ts. */
export interface Preparation {
  type: 'prepare';
  /** The script of threads. */
  moduleUrl: string;
  /** Threads beside the worker's own. */
  threads: number;
}

export type ToWorker =
  | { [K in CallName]: { type: 'call'; id: number; name: K; params: Calls[K]['params'] } }[CallName]
  | { type: 'abort'; id: number };

export type FromWorker =
  /** The first message: the worker runs, and waits for `prepare`. */
  | { type: 'started' }
  /** Calls may come. */
  | { type: 'ready' }
  /** Web Lock that the worker holds as long as it lives: whoever gets it knows that the worker is gone. */
  | { type: 'alive'; lock: string }
  | { type: 'reply'; id: number; result: unknown }
  | { type: 'error'; id: number; error: WireError }
  | { type: 'event'; id: number; event: unknown };
