// What happened and what to do, for people.
import { ExecuTorchError, type ErrorCode } from 'executorch-webgpu';

export interface Problem {
  what: string;
  /** What to do now. */
  remedy: string;
  /** The error as the package tells it. */
  detail: string;
  code: ErrorCode;
}

type Words = [what: string, remedy: string];
const DAMAGED: Words = [
  'This is not a complete model.',
  'Load it again. If that does not help, its address or its files are wrong.',
];
const NEWER: Words = ['This model needs a newer version of this page.', 'Reload the page, then load the model again.'];

const BROKEN: Words = ['Something unexpected went wrong.', 'Load the model again.'];

/** Every code has its words: without, this does not compile. */
const WORDS: Record<ErrorCode, Words> = {
  invalid_argument: [
    'The model cannot work with what it was given.',
    'Try other words or another picture, the default settings, or another model.',
  ],
  no_adapter: ['This browser offers no usable GPU.', 'Choose “CPU”, then load the model again.'],
  device_lost: [
    'The GPU was reset or went to sleep.',
    'Load the model again: nothing is downloaded twice, and the conversation is kept.',
  ],
  gpu_error: ['The GPU refused a step.', 'Load the model again, or choose “CPU”.'],
  out_of_memory: ['There is not enough memory for this model.', 'Close other tabs or choose a smaller model.'],
  limit_exceeded: ['This does not fit into what the model can hold.', 'Start a new chat, or edit an earlier message.'],
  integrity: [
    'What the server sends is not the model that it announces.',
    'Load it again later. If that does not help, its files there are damaged.',
  ],
  io_error: ['The download failed or ended early.', 'Check the connection, then load again.'],
  not_a_program: DAMAGED,
  invalid_program: DAMAGED,
  data_missing: DAMAGED,
  unsupported_version: NEWER,
  unsupported_operator: NEWER,
  unsupported_browser: ['This browser is too old: it has no WebAssembly SIMD.', 'Update it, or use another browser.'],
  build_mismatch: ['This page is half updated.', 'Reload the page.'],
  worker_died: ['The model’s process ended.', 'Load the model again. If it ends again, choose a smaller model.'],
  disposed: ['The model is no longer loaded.', 'Load it again.'],
  cancelled: ['This was stopped before it was done.', 'Start it again.'],
  // of parts that this page does not use
  saved_state: BROKEN,
  non_finite: BROKEN,
  package_missing: BROKEN,
  internal: BROKEN,
};

const MISSING: Words = [
  'The server does not have this model’s files.',
  'Choose another model, or tell whoever runs this site.',
];
/** How the package says that a server answered, and has no such file. */
const NOT_THERE = /the server answered (404|410)\b/;

/** Where a code means something else while a model is loaded. */
const LOAD_WORDS: Partial<Record<ErrorCode, Words>> = {
  invalid_argument: ['This page cannot use this model.', 'Choose another model.'],
  limit_exceeded: [
    'This model is larger than this device or browser can hold.',
    'Choose “CPU” if the GPU is the limit, or a smaller model.',
  ],
};

/** `loading`: the error of a load, not of a call on a loaded model. */
export function explain(error: unknown, loading = false): Problem {
  const code = error instanceof ExecuTorchError ? error.code : 'internal';
  const missing = code === 'io_error' && error instanceof Error && NOT_THERE.test(error.message);
  const [what, remedy] = (missing && MISSING) || (loading && LOAD_WORDS[code]) || WORDS[code];
  return { what, remedy, detail: error instanceof Error ? `${error.name}: ${error.message}` : String(error), code };
}

export const isCancelled = (error: unknown): boolean => error instanceof ExecuTorchError && error.code === 'cancelled';
