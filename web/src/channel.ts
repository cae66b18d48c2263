// The page's end of the protocol: calls by id, events, cancellation, and what happens when the worker dies.
import { checkSignal } from './checks.js';
import { fromWire, makeError, throwIfAborted, type ExecuTorchError } from './errors.js';
import type { CallName, Calls, FromWorker, ToWorker } from './protocol.js';

/** What the channel needs of a Worker; tests put something else in its place. */
export interface Port {
  postMessage(message: ToWorker, transfer?: Transferable[]): void;
  terminate(): void;
  onmessage: ((event: MessageEvent) => void) | null;
  onmessageerror: ((event: MessageEvent) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
  onEvent: ((event: unknown) => void) | undefined;
}

export interface ChannelOptions<K extends CallName> {
  onEvent?: (event: Calls[K]['event']) => void;
  /** Sends `abort`; the reply is still awaited, since the worker may have to finish a step. */
  signal?: AbortSignal | undefined;
  transfer?: Transferable[];
}

/** Also where the browser refuses a script of another origin: Chromium when the worker is made, Firefox by an event. */
export const UNLOADED =
  "its script could not be loaded: host the package on the page's origin, or pass workerUrl or worker: false";

/** The error of a worker's `error` event, which is then dealt with. */
export function workerFailed(event: ErrorEvent): ExecuTorchError {
  event.preventDefault?.();
  return makeError('worker_died', `the worker failed: ${event.message || UNLOADED}`);
}

export class Channel {
  private readonly pending = new Map<number, Pending>();
  private nextId = 1;
  private dead: ExecuTorchError | undefined;
  private readonly watch = new AbortController();

  constructor(private readonly port: Port) {
    port.onmessage = (event) => this.receive(event.data as FromWorker);
    port.onerror = (event) => {
      this.close(workerFailed(event));
    };
    port.onmessageerror = () => this.close(makeError('worker_died', 'a message of the worker could not be read'));
  }

  // async: what it throws is a rejection
  async call<K extends CallName>(
    name: K,
    params: Calls[K]['params'],
    options: ChannelOptions<K> = {},
  ): Promise<Calls[K]['result']> {
    if (this.dead) throw this.dead;
    const { signal, transfer = [] } = options;
    checkSignal(signal);
    throwIfAborted(signal);
    const id = this.nextId++;
    return new Promise<Calls[K]['result']>((resolve, reject) => {
      const abort = () => this.port.postMessage({ type: 'abort', id });
      const settle = () => {
        this.pending.delete(id);
        signal?.removeEventListener('abort', abort);
      };
      this.pending.set(id, {
        resolve: (value) => {
          settle();
          resolve(value);
        },
        reject: (error: Error) => {
          settle();
          reject(error);
        },
        onEvent: options.onEvent as ((event: unknown) => void) | undefined,
      });
      signal?.addEventListener('abort', abort);
      try {
        this.port.postMessage({ type: 'call', id, name, params } as ToWorker, transfer);
      } catch (error) {
        // something that cannot be cloned, such as a function among the inputs
        this.pending.get(id)?.reject(makeError('invalid_argument', String(error), { cause: error }));
      }
    });
  }

  /** Ends the worker; calls under way and later ones reject with `reason`. */
  close(reason: ExecuTorchError): void {
    if (this.dead) return;
    this.dead = reason;
    this.watch.abort();
    this.port.terminate();
    for (const call of [...this.pending.values()]) call.reject(reason);
  }

  /** A worker that the browser ends, for want of memory say, does so without a word: its lock is what tells. */
  private watchOver(lock: string): void {
    const gone = () =>
      this.close(makeError('worker_died', 'the browser ended the worker, most likely for want of memory'));
    navigator.locks.request(lock, { signal: this.watch.signal }, gone).catch(() => undefined);
  }

  private receive(message: FromWorker): void {
    if (message.type === 'started' || message.type === 'ready') return;
    if (message.type === 'alive') return this.watchOver(message.lock);
    const call = this.pending.get(message.id);
    if (!call) return;
    if (message.type === 'event') {
      try {
        call.onEvent?.(message.event);
      } catch (error) {
        // the caller's callback failed: that is no reason to lose the call
        queueMicrotask(() => {
          throw error;
        });
      }
    } else if (message.type === 'reply') {
      call.resolve(message.result);
    } else {
      call.reject(fromWire(message.error));
    }
  }
}
