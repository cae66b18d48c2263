// The worker's entry; the file beside index.js that `new Worker` loads.
import type { FromWorker, Preparation, ToWorker } from './protocol.js';
import { Engine } from './worker/engine.js';
import { makeThreads } from './worker/threads.js';

const post = (message: FromWorker) => self.postMessage(message);
const engine = new Engine(post, true);
self.onmessage = ({ data }: MessageEvent<Preparation | ToWorker>) => {
  if (data.type !== 'prepare') return engine.receive(data);
  makeThreads(data);
  post({ type: 'ready' });
  if (!navigator.locks) return;
  const lock = `executorch-webgpu worker ${crypto.randomUUID()}`;
  void navigator.locks.request(lock, () => {
    post({ type: 'alive', lock });
    return new Promise(() => undefined);
  });
};
post({ type: 'started' });
