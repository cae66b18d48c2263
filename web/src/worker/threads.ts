// The workers that become the module's threads. In Firefox a worker that makes a worker waits for the main thread to register
// it, and sometimes for ever: the news wakes one of two that wait on the same condition, which may be the new worker. So
// they are made before this worker says that it is ready; one that does not come back is replaced (started-worker.ts).
import type { Preparation } from '../protocol.js';

let made: Worker[] = [];
let problem: unknown;

/** What goes wrong is said when they are wanted. */
export function makeThreads({ moduleUrl, threads }: Preparation): void {
  try {
    // by this name Emscripten's script knows that it is one
    while (made.length < threads) made.push(new Worker(moduleUrl, { type: 'module', name: 'em-pthread' }));
  } catch (error) {
    problem = error;
  }
}

/** Those that were made; nobody else gets them. */
export function takeThreads(): Worker[] {
  if (problem) throw problem as Error;
  const taken = made;
  made = [];
  return taken;
}
