// Long tasks of the page's own thread, in Chromium, on a quiet machine; with `--most N` it fails above N.
//
//   node benchmarks/responsiveness/bench.mjs [--devices wasm,webgpu] [--tokens 64] [--worker false] [--most 0]
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.dirname(path.dirname(HERE));
const text = (value) => ({ type: 'string', default: value });
const { values: options } = parseArgs({
  options: { devices: text('wasm,webgpu'), tokens: text('64'), worker: text('true'), most: text('') },
});

const server = await serve({
  mounts: {
    '/': HERE,
    '/web/': path.join(ROOT, 'web/dist'),
    '/models/': path.join(process.env.ETWGPU_CACHE ?? '', 'models'),
  },
});
const browser = await launch('chromium', (line) => console.log(`  [page] ${line}`));
let long = 0;
try {
  for (const device of options.devices.split(',')) {
    const { tokens, worker } = options;
    const page = await browser.open(`${server.url}?${new URLSearchParams({ device, tokens, worker })}`);
    await page.raw.waitForFunction('window.report', undefined, { timeout: 600_000 });
    const { path: way, phases } = await page.evaluate(() => window.report);
    for (const { name, seconds, longTasks } of phases) {
      long += longTasks.length;
      const list = longTasks.length ? `: ${longTasks.join(', ')} ms` : '';
      console.log(`${way}, ${name} (${seconds.toFixed(1)} s): ${longTasks.length} tasks over 50 ms${list}`);
    }
    await page.close();
  }
} finally {
  await browser.close();
  await server.close();
}
process.exit(options.most !== '' && long > Number(options.most) ? 1 : 0);
