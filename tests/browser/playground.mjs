// The playground as a reader uses it, in Chromium, on the CPU with the real models.
//
//   node tests/browser/playground.mjs [--only REGEX]       alone; tests/browser/run.mjs includes it
import { fileURLToPath } from 'node:url';
import { launch } from '../../tools/browser/launch.mjs';
import { chatTests } from './playground/chat.mjs';
import { pageTests } from './playground/pages.mjs';
import { siteTests } from './playground/site.mjs';
import { serve } from './playground/visitor.mjs';

/** `test(name, body)` of the runner. */
export async function playgroundTests(test, log = () => {}) {
  const named = (name, body) => test(`playground: ${name}`, body);
  const server = await serve();
  const browser = await launch('chromium', log);
  try {
    await chatTests(browser, server, named);
    await pageTests(browser, server, named);
    await siteTests(browser, server, named);
  } finally {
    await browser.close();
    await server.close();
  }
}

async function main([, only = '']) {
  const counts = { passed: 0, failed: 0 };
  let lines = [];
  const test = async (name, body) => {
    if (!new RegExp(only).test(name)) return;
    lines = [];
    const began = performance.now();
    const seconds = () => ((performance.now() - began) / 1000).toFixed(1);
    try {
      const note = await body();
      counts.passed++;
      console.log(`ok      ${name} (${seconds()} s)${note ? `: ${note}` : ''}`);
    } catch (error) {
      counts.failed++;
      console.log(`FAILED  ${name} (${seconds()} s): ${error.message}`);
      for (const line of lines.slice(-8)) console.log(`        [page] ${line}`);
    }
  };
  await playgroundTests(test, (line) => lines.push(line));
  console.log(JSON.stringify(counts));
  process.exit(counts.failed ? 1 : 0);
}
if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv.slice(2));
