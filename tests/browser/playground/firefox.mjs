// The playground in a stock Firefox: every page, two clicks to an answer, and the same without a network.
import { setTimeout as sleep } from 'node:timers/promises';
import { launch } from '../../../tools/browser/launch.mjs';
import { assert } from '../runner.mjs';
import { QUESTION, serve, TIMEOUT } from './visitor.mjs';

const HEADINGS = {
  '#/pictures': 'What is in this picture?',
  '#/models': 'Models',
  '#/device': 'This device',
  '#/': 'Ask',
};

/** Polls: the page's policy forbids what drivers do to wait. */
async function until(page, condition, argument) {
  for (const end = Date.now() + TIMEOUT; Date.now() < end; await sleep(50)) {
    if (await page.evaluate(condition, argument)) return;
  }
  const shown = await page.evaluate(() => document.querySelector('main')?.innerText.replace(/\s+/g, ' ').slice(0, 500));
  throw new Error(`never came true: ${condition} ${argument}; the page says: ${shown}`);
}

const has = (page, selector, text) =>
  until(page, ([at, part]) => document.querySelector(at)?.textContent.includes(part) ?? false, [selector, text]);

async function clickButton(page, text) {
  const find = (part) => Array.from(document.querySelectorAll('button')).find((b) => b.textContent.includes(part));
  await page.evaluate(`window.findButton = ${find}`);
  await until(page, (part) => window.findButton(part) !== undefined, text);
  await page.evaluate((part) => window.findButton(part).click(), text);
}

/** Loads the model by its button, and asks; the answer. */
async function ask(page, load) {
  await clickButton(page, load);
  await clickButton(page, QUESTION);
  await has(page, '.stats', 'tokens/s');
  await until(page, () => document.querySelector('#send') !== null);
  return page.evaluate(() => Array.from(document.querySelectorAll('.assistant .prose')).at(-1).textContent);
}

/** In a browser and on a server of its own. */
async function journey(log) {
  const server = await serve();
  const errors = [];
  const browser = await launch('firefox', (line) => {
    log(line);
    if (/error/i.test(line)) errors.push(line);
  });
  const url = `${server.url}?device=wasm`;
  try {
    const page = await browser.open(url);
    await page.evaluate(() => localStorage.setItem('sampling', JSON.stringify({ maxTokens: 16 })));
    await page.raw.reload();
    for (const [hash, heading] of Object.entries(HEADINGS)) {
      await page.evaluate((to) => (location.hash = to), hash);
      await has(page, 'main h1', heading);
    }
    const answer = await ask(page, 'Download and start');
    assert(/Paris/.test(answer), `the answer is "${answer}"`);
    await until(page, () => document.documentElement.dataset.offline !== undefined);
    await page.close();
    assert(errors.length === 0, errors.join('; '));

    await server.close();
    const offline = await browser.open(url);
    const again = await ask(offline, 'Load the model');
    assert(/Paris/.test(again), `without a network the answer is "${again}"`);
    await offline.close();
  } finally {
    await browser.close();
    await server.close().catch(() => undefined);
  }
}

/**
 * What the page says when Firefox has not run a worker's script, its service worker's or the model's: the thread is there
 * and waits, for good (about once in 450 workers; more often beside another Firefox).
 */
const NOT_RUN = /the page says: .*Starting Cancel/;

export async function firefoxTests(runner, named) {
  await named('firefox: every page opens, two clicks lead to an answer, also without a network', async () => {
    try {
      await journey(runner.log);
    } catch (error) {
      if (!NOT_RUN.test(error.message)) throw error;
      await journey(runner.log);
      return 'at the second attempt: Firefox did not run a worker';
    }
  });
}
