// The worker's entry; the file beside index.js that `new Worker` loads.
import type { ToWorker } from './protocol.js';
import { Engine } from './worker/engine.js';

const engine = new Engine((message) => self.postMessage(message), true);
self.onmessage = (event: MessageEvent<ToWorker>) => engine.receive(event.data);
