// The package in browsers where the model does not matter: loading, the cache, failures, the API on both sides of a
// worker. Prints a line per test; the last line is {"passed": n, "failed": m}.
//
//   node tests/browser/package.mjs [--only REGEX]       ETWGPU_TEST_FULL=1: the cache with a language model, in Firefox, too
import { bareProgram, caching, chromiumLimit, FIREFOX_QUOTA, fullDisk, shards } from './package/caching.mjs';
import { choosing, onGpu, sources, variants, withoutGpu } from './package/choosing.mjs';
import { hosts } from './package/hosts.mjs';
import { kernels } from './package/kernels.mjs';
import { FOLDER, LLM, PROGRAM, runner, sameAs, sizeOf, wasm, withPage } from './package/setting.mjs';
import { buffers, checking, images, likePillow } from './package/tensors.mjs';
import { adapting, talking } from './package/text.mjs';
import { failingWorkers, quietThread, starting, strictPolicy } from './package/workers.mjs';

const FULL = process.env.ETWGPU_TEST_FULL === '1';

await (async () => {
  await withPage('chromium', {}, async (s) => {
    const helpers = await caching(s, 'chromium');
    await bareProgram(s, 'chromium', helpers);
    await hosts({ s, label: 'chromium', wasm, program: PROGRAM, size: sizeOf(PROGRAM), ...helpers });
    await fullDisk(s, 'chromium', helpers, await chromiumLimit(s), false); // its estimate does not tell
    await shards(s, 'chromium', helpers);
    await sources(s, 'chromium', helpers);
    await failingWorkers(s, 'chromium');
    await choosing(s, 'chromium');
    await variants(s, 'chromium');
    await starting(s, 'chromium');
    await strictPolicy(s, 'chromium', [{ modelUrl: LLM, device: 'wasm' }]);
    await images(s, 'chromium');
    await likePillow(s, 'chromium', 5);
    await talking(s, 'chromium');
    await adapting(s, 'chromium');
    await checking(s, 'chromium', 'wasm');
    await quietThread(s, 'chromium');
  });
  await withPage('firefox', {}, async (s) => {
    await onGpu(s, 'firefox webgpu');
    if (FULL) await kernels(s, 'firefox webgpu');
    await buffers(s, 'firefox webgpu');
    await likePillow(s, 'firefox webgpu', 0);
    await checking(s, 'firefox', 'webgpu');
    await failingWorkers(s, 'firefox');
    await strictPolicy(s, 'firefox', [{ modelUrl: FOLDER, device: 'webgpu' }]);
  });
  if (!FULL) return;
  await withPage('firefox', FIREFOX_QUOTA, async (s) => {
    const clear = () => s.page.do('cacheClear');
    const helpers = { same: await sameAs(s.page, wasm), clear };
    for (const foretold of [true, false]) await fullDisk(s, 'firefox', helpers, () => undefined, foretold);
    helpers.same = await sameAs(s.page, { ...wasm, modelUrl: LLM });
    await fullDisk(s, 'firefox, SmolLM2', helpers, () => undefined, false, LLM);
  });
  await withPage('chromium', {}, async (s) => {
    await buffers(s, 'chromium webgpu');
    await likePillow(s, 'chromium webgpu', 0);
  });
  await withPage('chromium', { gpu: false }, (s) => withoutGpu(s, 'chromium'));
  await withPage('firefox', { prefs: { 'dom.webgpu.enabled': false } }, (s) => withoutGpu(s, 'firefox'));
  for (const browserName of ['chromium', 'firefox']) {
    await withPage(browserName, {}, async (s) => {
      const helpers = await caching(s, `${browserName}, SmolLM2`, LLM);
      if (browserName === 'chromium') {
        await fullDisk(s, 'chromium, SmolLM2', helpers, await chromiumLimit(s), false, LLM);
      } else {
        await bareProgram(s, 'firefox', helpers);
        await shards(s, 'firefox', { ...helpers, same: await sameAs(s.page, wasm) });
        await talking(s, 'firefox');
        await sources(s, 'firefox', { ...helpers, same: await sameAs(s.page, wasm) });
      }
    });
  }
})();
runner.end();
