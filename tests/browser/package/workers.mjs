// The engine's worker and its threads: ends, starts, policies, and what is left to the page's own thread.
import { serve } from '../../../tools/serve.mjs';
import { assert } from '../runner.mjs';
import { countWork } from '../work_counts.mjs';
import { FOLDER, LLM, MOUNTS, test, url, wasm } from './setting.mjs';

export async function failingWorkers({ page }, label) {
  /** Twenty answers under way, and what `deed` makes of them. */
  const during = async (key, deed) => {
    const calls = Promise.allSettled(Array.from({ length: 20 }, () => page.do('checksum', { key })));
    await page.do('sabotage', { deed });
    return (await calls).filter((c) => c.status === 'rejected').map((c) => c.reason);
  };
  for (const modelUrl of [FOLDER, LLM]) {
    const load = { modelUrl, device: 'wasm', debug: { instrument: url(page, '/saboteur.js') } };
    const where = `${label}, ${modelUrl.split('/').at(-2)}`;
    await test(`${where}: a worker that the browser ends fails all calls, and the session can be reloaded`, async () => {
      await page.do('open', { key: 'dying', ...load });
      const answer = await page.do('checksum', { key: 'dying' });
      const failed = await during('dying', 'close');
      assert(failed.length > 0 && failed.every((e) => e.class === 'WorkerDiedError'), failed);
      assert((await page.fails('checksum', { key: 'dying' })).class === 'WorkerDiedError', 'a later call');
      assert((await page.do('reload', { key: 'dying' })).cache.state === 'hit', 'downloaded again');
      assert((await page.do('checksum', { key: 'dying' })) === answer, 'answers as before');
      await page.do('close', { key: 'dying' });
    });
    await test(`${where}: an error that nobody catches in the worker fails all calls`, async () => {
      await page.do('open', { key: 'broken', ...load });
      const failed = await during('broken', 'throw');
      assert(failed.length > 0 && failed.every((e) => e.class === 'WorkerDiedError' && /boom/.test(e.message)), failed);
    });
  }
}

export async function starting({ page }, label) {
  await test(`${label}: a worker that never starts is replaced`, async () => {
    const { checksum } = await page.do('once', wasm);
    const late = { workerUrl: url(page, '/silent_worker.js'), debug: { workerPatienceMs: 200 } };
    assert((await page.do('once', { ...wasm, ...late })).checksum === checksum, 'another answer');
  });
  await test(`${label}: scripts and WebAssembly of two builds are told apart`, async () => {
    const error = await page.fails('once', { ...wasm, wasmUrl: '/stale/' });
    assert(error.class === 'BuildMismatchError', error);
    return error.message;
  });
}

const CSP = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";

/** A host that forbids `eval`, inline scripts and everything of elsewhere, and isolates its pages. */
export async function strictPolicy({ open }, label, loads) {
  await test(`${label}: under a strict policy, isolated, with threads, also where these do not start`, async () => {
    const strict = await serve({ mounts: MOUNTS, isolation: true, headers: { 'Content-Security-Policy': CSP } });
    const page = await open({}, strict.url);
    try {
      assert((await page.do('evaluates')) === 'EvalError', 'the policy is not in force');
      const { info } = await page.do('once', { ...wasm, threads: 2 });
      assert(info.path === 'wasm-threads' && info.reasons.length === 1, info);
      for (const load of loads) await page.do('once', load);
      const { checksum } = await page.do('once', { ...wasm, threads: 3 });
      for (const script of ['/silent_thread.js', '/silent_worker.js?threads']) {
        const hung = { workerUrl: url(page, script), debug: { workerPatienceMs: 1000 } };
        assert((await page.do('once', { ...wasm, threads: 3, ...hung })).checksum === checksum, script);
      }
      const violations = await page.do('violations');
      assert(violations.join() === 'script-src', violations); // that of the first line
    } finally {
      await page.close();
      await strict.close();
    }
  });
}

export async function quietThread({ open }, label) {
  await test(`${label}: the page's own thread compiles, parses, hashes and tokenises nothing`, async () => {
    const page = await open();
    await page.raw.addInitScript(countWork);
    for (const [device, load] of [
      ['wasm', { modelUrl: LLM }],
      ['webgpu', { modelUrl: FOLDER }],
    ]) {
      await page.raw.reload();
      await page.raw.waitForFunction('window.packageReady', { timeout: 30_000 });
      const info = await page.do('open', { key: 'quiet', ...load, device });
      assert(info.device === device, info);
      if (info.canGenerate) await page.do('chat', { key: 'quiet' });
      const work = await page.raw.evaluate('window.work');
      const { compiled, hashed, gpuObjects, fetched, parsed, decoded } = work;
      assert(compiled + hashed + gpuObjects === 0 && fetched.length === 0, work);
      // what the driver of this test says itself is short
      assert(parsed < 10_000 && decoded === 0, work);
      assert(JSON.stringify(info).length < 100_000, 'the tokenizer was sent to the page');
      await page.do('close', { key: 'quiet' });
    }
    // the counters see what happens here when it does
    await page.do('once', { ...wasm, worker: false });
    const { compiled, hashed } = await page.raw.evaluate('window.work');
    assert(compiled > 0 && hashed > 0, { compiled, hashed });
    await page.close();
  });
}
