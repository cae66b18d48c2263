// Tasks of the page's own thread that take over 50 ms, while a model loads and while it generates: `?device=webgpu`,
// `?model=URL`, `?worker=false` (the other end of the scale). The report is the page's text and `window.report`.
import { ExecuTorchRuntime } from '/web/index.js';

const query = new URLSearchParams(location.search);
const tasks = [];
const note = (list) => tasks.push(...list.getEntries().map(({ startTime, duration }) => ({ startTime, duration })));
const observer = new PerformanceObserver(note);
observer.observe({ type: 'longtask' });

/** What happened during `action`, whose end the observer hears of a moment later. */
async function watch(name, action) {
  const began = performance.now();
  const result = await action();
  await new Promise((resolve) => setTimeout(resolve, 200));
  note({ getEntries: () => observer.takeRecords() });
  const during = tasks.filter(({ startTime }) => startTime >= began).map(({ duration }) => Math.round(duration));
  return { result, phase: { name, seconds: (performance.now() - began) / 1000, longTasks: during } };
}

const messages = [{ role: 'user', content: 'Tell me a story about a whale.' }];
const { result: session, phase: loading } = await watch('loading', () =>
  ExecuTorchRuntime.loadModel({
    modelUrl: query.get('model') ?? '/models/smollm2-135m-instruct/',
    device: query.get('device') ?? 'auto',
    worker: query.get('worker') !== 'false',
    cache: 'none',
  }),
);
const { phase: generating } = await watch('generating', async () => {
  let text = '';
  const tokens = Number(query.get('tokens') ?? 64);
  // as a page does: every piece is shown
  for await (const piece of session.generate(messages, { maxTokens: tokens })) {
    document.getElementById('text').textContent = text += piece;
  }
});
window.report = { path: session.info.path, phases: [loading, generating] };
document.getElementById('text').textContent = JSON.stringify(window.report, null, 1);
await session.dispose();
