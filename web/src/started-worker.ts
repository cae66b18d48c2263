// Starting the worker: the first one that speaks serves.
import { workerFailed } from './channel.js';
import { cancelled, makeError } from './errors.js';

/** Silence after which another worker is started, and the time after which none is expected any more. */
const PATIENCE_MS = 10_000;
const TRIES = 3;
const LIMIT_MS = 120_000;

/**
 * A worker that runs. Firefox has been seen not to run the script of a new worker, without an error and for good, about
 * once in 450 loads; a server may leave the script's request unanswered. So after some silence another worker starts
 * beside the first.
 * @throws what `make` throws; WorkerDiedError if a worker's script fails, or none has started after two minutes;
 *   CancelledError if the signal fires.
 */
export function startedWorker(
  make: () => Worker,
  signal?: AbortSignal,
  patienceMs: number = PATIENCE_MS,
): Promise<Worker> {
  return new Promise<Worker>((resolve, reject) => {
    const workers: Worker[] = [];
    const settle = (chosen?: Worker) => {
      clearInterval(timer);
      clearTimeout(limit);
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
      let worker: Worker;
      try {
        worker = make();
      } catch (error) {
        fail(error as Error);
        return;
      }
      workers.push(worker);
      worker.onmessage = () => {
        settle(worker);
        resolve(worker);
      };
      worker.onerror = (event) => fail(workerFailed(event));
      if (workers.length === TRIES) clearInterval(timer);
    };
    const timer = setInterval(add, patienceMs);
    const limit = setTimeout(() => {
      fail(makeError('worker_died', `the worker has not started in ${LIMIT_MS / 1000} s (${workers.length} tries)`));
    }, LIMIT_MS);
    signal?.addEventListener('abort', abort);
    add();
  });
}
