const worker = new Worker(new URL('./recipe-worker.ts', import.meta.url), { type: 'module' });
worker.onerror = (event) => (document.title = `failed: ${event.message}`);
worker.onmessage = ({ data }) => (document.title = data);
worker.postMessage('The capital of France is');
