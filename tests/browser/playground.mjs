// The playground as a reader uses it, on the CPU with the real models: in Chromium, and in short in Firefox.
//
//   node tests/browser/playground.mjs [--only REGEX]       alone; tests/browser/run.mjs includes it
import { fileURLToPath } from 'node:url';
import { launch } from '../../tools/browser/launch.mjs';
import { chatTests } from './playground/chat.mjs';
import { firefoxTests } from './playground/firefox.mjs';
import { layoutTests } from './playground/layout.mjs';
import { pageTests } from './playground/pages.mjs';
import { qualityTests } from './playground/quality.mjs';
import { shellTests } from './playground/shell.mjs';
import { siteTests } from './playground/site.mjs';
import { serve } from './playground/visitor.mjs';
import { Runner } from './runner.mjs';

export async function playgroundTests(runner) {
  const named = (name, body) => runner.test(`playground: ${name}`, body);
  const server = await serve();
  const browser = await launch('chromium', runner.log);
  try {
    await chatTests(browser, server, named);
    await pageTests(browser, server, named);
    await siteTests(browser, server, named);
    await shellTests(browser, server, named);
    await qualityTests(browser, server, named);
    await layoutTests(browser, server, named);
  } finally {
    await browser.close();
    await server.close();
  }
  await firefoxTests(runner, named);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const runner = new Runner({ seconds: 240 });
  await playgroundTests(runner);
  runner.end();
}
