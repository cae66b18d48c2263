// One thread beside two, by wall-clock, in Chromium: SmolLM2 on the CPU, rounds alternating. Needs a quiet machine.
//
//   node benchmarks/peers/threads.mjs [--rounds 6] [--prompt 512] [--tokens 64]       after `. tools/env.sh`
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';

const ROOT = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));
const number = (value) => ({ type: 'string', default: String(value) });
const { values } = parseArgs({ options: { rounds: number(6), prompt: number(512), tokens: number(64) } });
const [rounds, prompt, tokens] = [values.rounds, values.prompt, values.tokens].map(Number);
/** The first ones pay for compiling. */
const WARM_UPS = 2;
const THREADS = [1, 2];

const server = await serve({
  mounts: {
    '/': path.join(ROOT, 'tests/browser'),
    '/web/': path.join(ROOT, 'web/dist'),
    '/models/': path.join(process.env.ETWGPU_CACHE ?? '', 'models'),
  },
});
const browser = await launch('chromium');
const rates = new Map(THREADS.map((threads) => [threads, { prefill: [], decode: [] }]));
try {
  const page = await browser.open(`${server.url}harness.html`);
  await page.raw.waitForFunction('window.harnessReady');
  const call = async (name, argument) => {
    const { ok, error } = await page.evaluate(([what, options]) => window.harness[what](options), [name, argument]);
    if (error) throw new Error(error.message);
    return ok;
  };
  for (const threads of THREADS) {
    const load = { modelUrl: '/models/smollm2-135m-instruct/', device: 'wasm', threads };
    const { info } = await call('load', { key: String(threads), ...load });
    if (info.threads !== threads) throw new Error(`${info.threads} threads: ${info.reasons.join('; ')}`);
  }
  for (let round = 0; round < WARM_UPS + rounds; ++round) {
    for (const threads of THREADS) {
      // another text each time: nothing of it is in the cache
      const tokenIds = Array.from({ length: prompt }, (_, i) => 100 + ((i * 7919 + round * 104729) % 40000));
      const argument = { key: String(threads), prompt: { tokenIds }, options: { maxTokens: tokens } };
      const { timings } = await call('generate', argument);
      if (round < WARM_UPS) continue;
      rates.get(threads).prefill.push((1000 * timings.promptTokens) / timings.prefillMs);
      rates.get(threads).decode.push((1000 * timings.decodeTokens) / timings.decodeMs);
    }
  }
} finally {
  await browser.close();
  await server.close();
}

const median = (all) => all.toSorted((a, b) => a - b)[all.length >> 1];
for (const phase of ['prefill', 'decode']) {
  const [one, two] = THREADS.map((threads) => rates.get(threads)[phase]);
  const shown = [one, two].map((all) => `${median(all).toFixed(0)} (${all.map((x) => x.toFixed(0)).join(' ')})`);
  console.log(`${phase}: ${shown.join(', two threads ')} tokens/s: ${(median(two) / median(one)).toFixed(2)} x`);
}
