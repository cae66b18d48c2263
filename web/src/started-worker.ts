// Starting the worker: the first one that is ready serves.
import { workerFailed } from './channel.js';
import { cancelled, makeError } from './errors.js';
import type { FromWorker, Preparation } from './protocol.js';

/** Silence after which another worker is started, and the time after which none is expected any more. */
const PATIENCE_MS = 10_000;
/** To make threads is a matter of milliseconds. */
const PREPARATION_MS = 1000;
const TRIES = 5;
const LIMIT_MS = 120_000;

/**
 * A worker that runs and is prepared. In Firefox it may hang over its threads (worker/threads.ts): once in hundreds of
 * loads, on a busy machine in 3 of 100; a server may leave the script's request unanswered. So after some silence another
 * worker starts beside the first.
 * @throws what `make` throws; WorkerDiedError if a worker's script fails, or none has started after two minutes;
 *   CancelledError if the signal fires.
 */
export function startedWorker(
  make: () => Worker,
  preparation: Preparation,
  signal?: AbortSignal,
  patienceMs: number = PATIENCE_MS,
): Promise<Worker> {
  return new Promise<Worker>((resolve, reject) => {
    const workers: Worker[] = [];
    const settle = (chosen?: Worker) => {
      clearInterval(timer);
      for (const timeout of timeouts) clearTimeout(timeout);
      signal?.removeEventListener('abort', abort);
      for (const worker of workers) {
        worker.onmessage = worker.onerror = null;
        if (worker !== chosen) worker.terminate();
      }
    };
    const fail = (error: Error) => {
      settle();
      reject(error);
    };
    const abort = () => fail(cancelled(signal));
    const add = () => {
      if (workers.length === TRIES) return;
      let worker: Worker;
      try {
        worker = make();
      } catch (error) {
        fail(error as Error);
        return;
      }
      workers.push(worker);
      worker.onmessage = ({ data }: MessageEvent<FromWorker>) => {
        if (data.type === 'started') {
          worker.postMessage(preparation);
          timeouts.push(setTimeout(add, Math.min(PREPARATION_MS, patienceMs)));
        }
        if (data.type !== 'ready') return;
        settle(worker);
        resolve(worker);
      };
      worker.onerror = (event) => fail(workerFailed(event));
    };
    const timer = setInterval(add, patienceMs);
    const timeouts = [
      setTimeout(() => {
        fail(makeError('worker_died', `the worker has not started in ${LIMIT_MS / 1000} s (${workers.length} tries)`));
      }, LIMIT_MS),
    ];
    signal?.addEventListener('abort', abort);
    add();
  });
}
