// Whether memory stays flat over many loads and many answers.
import { setTimeout as sleep } from 'node:timers/promises';
import { askInstrument } from '../../tools/browser/counts.mjs';
import { assert, browserBytes, PAGES, unwrap } from './runner.mjs';

/** Until the memory of what was ended is free. */
const SETTLE_MS = 300;
/** Of a browser's memory, in bytes, over a few cycles: half of what one load takes. */
const MOST_GROWTH = 48e6;
/**
 * Bytes a cycle, over many of them. What Chromium's own process and its services keep for the driver grows by some 0.1 MB; its
 * processes that run our code are watched by themselves.
 */
const MOST_GROWTH_OF_ONE = { chromium: 1e6, firefox: 0.5e6, 'firefox webgpu': 1.2e6 };
const MOST_GROWTH_OF_PAGES = 0.4e6;

/** `test`: of the runner. `llm`: the language model's folder. `full`: many cycles, under bounds of their own. */
export function memoryTests({ test, llm, full }) {
  async function cycles(s, label, loadOptions) {
    const count = full ? 30 : 3;
    const third = count / 3;
    await test(`${label}: memory is flat over ${count} times load, generate, dispose`, async () => {
      const seen = [];
      const browser = []; // bytes after each
      const pages = [];
      const workers = s.page.raw.workers().length;
      for (let i = 0; i < count; ++i) {
        await s.load('cycle', { modelUrl: llm, cache: 'auto', ...loadOptions });
        unwrap(await s.call('generate', { key: 'cycle', prompt: { tokenIds: [1, 504] }, options: { maxTokens: 2 } }));
        const report = unwrap(await s.call('memory', { key: 'cycle' }));
        seen.push(report.wasmHeap + report.weights + report.state + report.arena + report.other);
        unwrap(await s.call('dispose', { key: 'cycle' }));
        await sleep(SETTLE_MS);
        browser.push(browserBytes());
        pages.push(browserBytes(PAGES));
      }
      assert(new Set(seen).size === 1, `bytes: ${seen}`);
      // the first third pays for what is loaded once; garbage makes single figures jump
      const growth = (bytes) => Math.min(...bytes.slice(-third)) - Math.min(...bytes.slice(third, -third));
      const [megabytes, ofPages] = [browser, pages].map((all) => all.map((bytes) => Math.round(bytes / 1e6)).join(' '));
      const most = full ? third * (MOST_GROWTH_OF_ONE[label] ?? MOST_GROWTH_OF_ONE[s.name]) : MOST_GROWTH;
      assert(growth(browser) < most, `the browser's memory, in MB: ${megabytes}`);
      if (full) assert(growth(pages) < third * MOST_GROWTH_OF_PAGES, `memory of pages and GPU, in MB: ${ofPages}`);
      assert(s.page.raw.workers().length <= workers, `${s.page.raw.workers().length} workers, ${workers} before`);
      return `the browser has ${megabytes} MB${s.name === 'chromium' ? `, pages and GPU ${ofPages}` : ''}`;
    });
  }

  async function generations(s, label, loadOptions, maxTokens = 3) {
    const count = full ? 100 : 10;
    await test(`${label}: memory is flat over ${count} generations`, async () => {
      await s.load('llm', { modelUrl: llm, instrument: true, ...loadOptions });
      const seen = [];
      for (let i = 0; i < count; ++i) {
        const prompt = { tokenIds: [1, 504 + i, 253, 28] };
        unwrap(await s.call('generate', { key: 'llm', prompt, options: { maxTokens } }));
        const report = unwrap(await s.call('memory', { key: 'llm' }));
        const { gpuBytes } = await askInstrument(s.page);
        const gpu = Object.values(gpuBytes).reduce((a, b) => a + b);
        seen.push(`${report.wasmHeap + report.weights + report.state + report.arena + report.other}, GPU ${gpu}`);
      }
      assert(new Set(seen.slice(1)).size === 1, `bytes: ${[...new Set(seen)].join('; ')}`);
      return seen.at(-1);
    });
    await s.call('dispose', { key: 'llm' });
  }

  return { cycles, generations };
}
