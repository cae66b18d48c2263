// The worker's entry; the file beside index.js that `new Worker` loads.
import type { FromWorker, ToWorker } from './protocol.js';
import { Engine } from './worker/engine.js';

const post = (message: FromWorker) => self.postMessage(message);
const engine = new Engine(post, true);
self.onmessage = (event: MessageEvent<ToWorker>) => engine.receive(event.data);
post({ type: 'started' });

if (navigator.locks) {
  const lock = `executorch-webgpu worker ${crypto.randomUUID()}`;
  void navigator.locks.request(lock, () => {
    post({ type: 'alive', lock });
    return new Promise(() => undefined);
  });
}
