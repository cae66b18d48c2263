// Ours beside other in-browser runtimes on the CPU, one thread, in headless Chromium.
//
//   node benchmarks/peers/bench.mjs [--rounds 1] [--repetitions 1] [--tokens 64] [--only REGEX] [--dist web/dist]
//        [--data $ETWGPU_CACHE/bench] [--model $ETWGPU_CACHE/models/smollm2-135m-instruct] [--out build/bench/peers.json]
//        [--profile] [--limit 900]
//
// Each configuration of each round gets a fresh browser; every other round runs in reverse. The metric is CPU seconds
// (user and system time of the browser's process tree), which other work on the machine disturbs least.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';
import { configurations } from './configurations.mjs';
import { ProcessTree, children, machineDescription } from './processes.mjs';
import { markdown, ratios, summarise } from './report.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.join(here, '../..');
const cache = process.env.ETWGPU_CACHE ?? '';
const { values: options } = parseArgs({
  options: {
    rounds: { type: 'string', default: '1' },
    repetitions: { type: 'string', default: '1' },
    tokens: { type: 'string', default: '64' },
    only: { type: 'string', default: '.' },
    dist: { type: 'string', default: path.join(root, 'web/dist') },
    data: { type: 'string', default: path.join(cache, 'bench') },
    model: { type: 'string', default: path.join(cache, 'models/smollm2-135m-instruct') },
    out: { type: 'string', default: path.join(root, 'build/bench/peers.json') },
    limit: { type: 'string', default: '900' },
    profile: { type: 'boolean', default: false },
  },
});

/** One configuration in a browser of its own. */
async function measure(configuration, url, prompts) {
  const before = new Set(children());
  const browser = await launch('chromium', (text) => {
    if (/error/i.test(text)) console.log(`  ${text.slice(0, 300)}`);
  });
  const tree = new ProcessTree(children().filter((pid) => !before.has(pid)));
  let timer;
  try {
    const page = await browser.open(`${url}bench/page.html`);
    await page.expose('cpuSeconds', () => ({ ...tree.cpuSeconds(), at: Date.now() }));
    await page.expose('report', (text) => console.log(`  ${configuration.id}: ${text}`));
    const work = page.evaluate(
      async ([one, texts]) => {
        while (!window.ready) await new Promise((resolve) => setTimeout(resolve, 20));
        return window.bench(one, texts);
      },
      [configuration, prompts],
    );
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('over the time limit')), Number(options.limit) * 1000);
    });
    const result = await Promise.race([work, late]);
    return { ...result, rendererPeak: tree.rendererPeak(), browser: `Chromium ${browser.version}` };
  } catch (error) {
    return { error: String(error.stack ?? error).slice(0, 1500) };
  } finally {
    clearTimeout(timer);
    await browser.close();
  }
}

async function main() {
  const prompts = JSON.parse(readFileSync(path.join(options.data, 'prompts.json')));
  const only = new RegExp(options.only);
  const chosen = configurations({ tokens: Number(options.tokens), repetitions: Number(options.repetitions) })
    .filter(({ id }) => only.test(id))
    .map((configuration) => ({ ...configuration, profile: options.profile }));
  const server = await serve({
    mounts: {
      '/bench/': here,
      '/dist/': options.dist,
      '/models/': path.join(options.data, 'models'),
      '/ours/': options.model,
    },
  });
  const results = [];
  const machine = machineDescription();
  const versions = JSON.parse(readFileSync(path.join(here, 'package.json'))).dependencies;
  mkdirSync(path.dirname(options.out), { recursive: true });
  for (let round = 0; round < Number(options.rounds); ++round) {
    for (const configuration of round % 2 ? [...chosen].reverse() : chosen) {
      console.log(`${configuration.id}, round ${round + 1}`);
      const result = { id: configuration.id, round, ...(await measure(configuration, server.url, prompts)) };
      if (result.error) console.log(`  failed: ${result.error}`);
      results.push(result);
      const summary = summarise(chosen, results);
      const report = { date: new Date().toISOString(), machine, versions, summary, ratios: ratios(summary), results };
      writeFileSync(options.out, JSON.stringify(report, null, 1));
    }
  }
  await server.close();
  const browser = results.find((result) => result.browser)?.browser;
  console.log(`\n${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB, ${machine.kernel}; ${browser}`);
  console.log(
    Object.entries(versions)
      .map((entry) => entry.join(' '))
      .join(', '),
  );
  console.log(`\n${markdown(summarise(chosen, results))}\n\n${options.out}`);
  if (results.some((result) => result.error)) process.exitCode = 1;
}

await main();
