// The worker's entry; the file beside index.js that `new Worker` loads.
import './worker/worker.js';
