// Crashes of Chromium's GPU process, real ones.
import { setTimeout as sleep } from 'node:timers/promises';
import { assert, gpuProcess, unwrap } from './runner.mjs';

/** Until what was begun is under way. */
const SETTLE_MS = 300;

/**
 * In Chromium, on WebGPU: kills the process of the GPU while the model `key` answers `ask()`, which then works again after
 * a reload out of the cache. Resolves to its answer.
 */
async function crashAndReload(s, key, ask) {
  const crashed = await gpuProcess(s.page.raw);
  const pending = ask();
  await sleep(SETTLE_MS); // it computes by now
  process.kill(crashed, 'SIGKILL');
  for (const result of [await pending, await ask()]) {
    assert(result.error?.class === 'DeviceLostError', JSON.stringify(result));
  }
  const { cache } = unwrap(await s.call('reload', { key }));
  assert(cache.state === 'hit', `downloaded again: ${JSON.stringify(cache)}`);
  assert((await gpuProcess(s.page.raw)) !== crashed, 'the GPU process is still the same');
  return unwrap(await ask());
}

/** `test`: of the runner. `llm` and `classifier`: the models' folders. */
export function crashTests({ test, llm, classifier }) {
  async function gpuCrash(s, label, expected) {
    await test(`${label}: after a crash of the GPU process the session says so, and can be reloaded`, async () => {
      await s.call('dispose', { key: 'cnn' });
      await s.load('cnn', { modelUrl: classifier, device: 'webgpu', cache: 'auto' });
      const again = await crashAndReload(s, 'cnn', () => s.call('classify', { key: 'cnn', batch: 1 }));
      assert(again.top[0] === expected.classify.top[0], `classes ${again.top}`);
    });
  }

  /** Of a browser of its own: after a second crash it would give no adapter for a while. */
  async function gpuCrashInAnswer(s, label, expected) {
    await test(`${label}: so too in the middle of an answer, whose prompt is then answered as before`, async () => {
      const [{ promptIds, ids }] = expected.generate;
      await s.load('llm', { modelUrl: llm, device: 'webgpu', cache: 'auto' });
      const call = { key: 'llm', prompt: { tokenIds: promptIds }, options: { maxTokens: 3 } };
      const again = await crashAndReload(s, 'llm', () => s.call('generate', call));
      assert(JSON.stringify(again.tokenIds) === JSON.stringify(ids.slice(0, 3)), `then ${again.tokenIds}`);
    });
  }

  return { gpuCrash, gpuCrashInAnswer };
}
