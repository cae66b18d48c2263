// Errors by code. The codes up to `internal` are the runtime's own (runtime/core/status.h), in the same order.

export const RUNTIME_CODES = [
  'ok',
  'invalid_argument',
  'invalid_program',
  'not_a_program',
  'unsupported_version',
  'unsupported_operator',
  'data_missing',
  'out_of_memory',
  'limit_exceeded',
  'no_adapter',
  'device_lost',
  'gpu_error',
  'io_error',
  'cancelled',
  'saved_state',
  'non_finite',
  'internal',
] as const;

export type ErrorCode =
  | Exclude<(typeof RUNTIME_CODES)[number], 'ok'>
  | 'integrity'
  | 'package_missing'
  | 'unsupported_browser'
  | 'build_mismatch'
  | 'worker_died'
  | 'disposed';

/** What every rejection of this package is. `code` is stable; the message is for people. */
export class ExecuTorchError extends Error {
  readonly code: ErrorCode;
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
    this.name = code === 'cancelled' ? 'AbortError' : nameOf(code);
  }
}

/** The caller passed something that the method or the model does not accept. */
export class InvalidArgumentError extends ExecuTorchError {}
/** The file is damaged or cut off. */
export class InvalidProgramError extends ExecuTorchError {}
/** The file is something else: an HTML page, a Git-LFS pointer, an archive. */
export class NotAProgramError extends ExecuTorchError {}
/** The file was written by a newer exporter. */
export class UnsupportedVersionError extends ExecuTorchError {}
/** No kernel serves an operator of the program; the message names all of them. */
export class UnsupportedOperatorError extends ExecuTorchError {}
/** A weight is not in the program, and no `.ptd` with it was given. */
export class DataMissingError extends ExecuTorchError {}
export class OutOfMemoryError extends ExecuTorchError {}
/** A limit of the device, of the model's context, or a configured cap. */
export class LimitExceededError extends ExecuTorchError {}
/** There is no usable WebGPU here. With `device: 'auto'` the model runs on the CPU instead. */
export class NoAdapterError extends ExecuTorchError {}
/** The GPU device went away (driver reset, sleep). Load the model again. */
export class DeviceLostError extends ExecuTorchError {}
export class GpuError extends ExecuTorchError {}
/** A download failed or ended early. */
export class DownloadError extends ExecuTorchError {}
/** A file's bytes do not match their hash in the manifest, not even after another download. */
export class IntegrityError extends ExecuTorchError {}
/** An AbortSignal fired. Its name is AbortError, as everywhere on the platform. */
export class CancelledError extends ExecuTorchError {}
/** A saved state that is damaged or belongs to another model; nothing was changed. */
export class SavedStateError extends ExecuTorchError {}
/** With `debug: { checkValues: true }`: an operator gave a NaN or an infinity; the message names it. */
export class NonFiniteError extends ExecuTorchError {}
export class InternalError extends ExecuTorchError {}
/** The JavaScript and the WebAssembly come from different builds; the message has both ids. */
export class BuildMismatchError extends ExecuTorchError {}
/** An optional package that was asked for is not there. */
export class PackageMissingError extends ExecuTorchError {}
/** The browser is too old: it has no WebAssembly SIMD, which the CPU path and the GPU path need alike. */
export class UnsupportedBrowserError extends ExecuTorchError {}
/** The worker ended unexpectedly; every call that was under way gets this. */
export class WorkerDiedError extends ExecuTorchError {}
/** The session was disposed of. */
export class DisposedError extends ExecuTorchError {}

/** Written out: minifiers rename classes. */
function nameOf(code: ErrorCode): string {
  const words = code === 'io_error' ? 'download' : code.replace(/_error$/, '');
  return words.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase()) + 'Error';
}

const CLASSES: Record<ErrorCode, new (code: ErrorCode, message: string, options?: ErrorOptions) => ExecuTorchError> = {
  invalid_argument: InvalidArgumentError,
  invalid_program: InvalidProgramError,
  not_a_program: NotAProgramError,
  unsupported_version: UnsupportedVersionError,
  unsupported_operator: UnsupportedOperatorError,
  data_missing: DataMissingError,
  out_of_memory: OutOfMemoryError,
  limit_exceeded: LimitExceededError,
  no_adapter: NoAdapterError,
  device_lost: DeviceLostError,
  gpu_error: GpuError,
  io_error: DownloadError,
  cancelled: CancelledError,
  saved_state: SavedStateError,
  non_finite: NonFiniteError,
  internal: InternalError,
  integrity: IntegrityError,
  package_missing: PackageMissingError,
  unsupported_browser: UnsupportedBrowserError,
  build_mismatch: BuildMismatchError,
  worker_died: WorkerDiedError,
  disposed: DisposedError,
};

/** The error of a code, as its own class. */
export function makeError(code: ErrorCode, message: string, options?: ErrorOptions): ExecuTorchError {
  return new CLASSES[code](code, message, options);
}

/** An error on its way through postMessage, which would keep neither class nor fields. */
export interface WireError {
  code: ErrorCode;
  message: string;
}

export function toWire(error: unknown): WireError {
  if (error instanceof ExecuTorchError) return { code: error.code, message: error.message };
  if (error instanceof Error) {
    if (error.name === 'AbortError') return { code: 'cancelled', message: error.message };
    if (error instanceof RangeError && /memory|allocation/i.test(error.message)) {
      return { code: 'out_of_memory', message: error.message };
    }
    return { code: 'internal', message: `${error.name}: ${error.message}` };
  }
  return { code: 'internal', message: String(error) };
}

export function fromWire(error: WireError): ExecuTorchError {
  return makeError(error.code, error.message);
}

/** Throws CancelledError if the signal has fired. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelled(signal);
}

export function cancelled(signal?: AbortSignal): ExecuTorchError {
  const reason: unknown = signal?.reason;
  return makeError('cancelled', 'the operation was cancelled', reason === undefined ? undefined : { cause: reason });
}
