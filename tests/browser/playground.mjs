// The playground as a reader uses it, in Chromium, on the CPU with the real models.
//
//   node tests/browser/playground.mjs [--only REGEX]       alone; tests/browser/run.mjs includes it
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { launch } from '../../tools/browser/launch.mjs';
import { servePlayground } from '../../tools/playground.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** In a sub-folder, as on a host that several sites share. */
const BASE = '/some/folder/';
const QUESTION = 'What is the capital of France?';
/** For one step, in milliseconds: loading a model on a busy machine. */
const TIMEOUT = 90_000;
const TRANSFER_LIMIT = 700 * 1024;

function assert(condition, message) {
  if (!condition) throw new Error(message);
}

/** A visitor: a fresh browser profile and a page. */
class Visitor {
  constructor(page, url) {
    this.raw = page.raw;
    this.close = page.close;
    this.url = url;
  }
  static async open(browser, server, { query = '?device=wasm', hash = '', ...options } = {}) {
    const page = await browser.open('about:blank', options);
    const visitor = new Visitor(page, `${server.url}${query}`);
    page.raw.setDefaultTimeout(TIMEOUT);
    await page.raw.context().addInitScript(watchPage);
    await page.raw.goto(`${visitor.url}${hash}`);
    await page.raw.waitForSelector('main h1');
    return visitor;
  }
  click = (role, name) =>
    this.raw
      .getByRole(role, { name, exact: typeof name === 'string' })
      .first()
      .click();
  text = (selector) => this.raw.locator(selector).last().innerText();
  /** Waits until no answer is under way. */
  answered = () => this.raw.waitForSelector('#send');
  answers = () => this.raw.locator('.message.assistant .prose').allInnerTexts();
  /** Polls: the page's policy forbids what `waitForFunction` does. */
  async until(condition) {
    for (const end = Date.now() + TIMEOUT; Date.now() < end; await this.raw.waitForTimeout(50)) {
      if (await this.raw.evaluate(condition)) return;
    }
    throw new Error(`never came true: ${condition}`);
  }
  /** Sets the longest answer, in tokens: the tests ask many questions. */
  async limit(tokens) {
    await this.click('button', 'How it answers: settings');
    await this.raw.locator('#setting-maxTokens').fill(String(tokens));
    await this.raw.keyboard.press('Tab');
    await this.raw.keyboard.press('Escape');
    await this.raw.waitForSelector('dialog[open]', { state: 'detached' });
  }
}

/** Runs in every page before its scripts: what the tests ask for later. */
function watchPage() {
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const moved = entry.sources.map(({ node }) => node?.className ?? node?.nodeName).join(', ');
      if (!entry.hadRecentInput) window.shifts.push({ value: entry.value, moved });
    }
  }).observe({ type: 'layout-shift', buffered: true });
}

/** Far below what anybody notices (0.1 counts as good): what is left is text that grows as it comes. */
const MOST_SHIFT = 0.02;
const noShift = async (visitor, what) => {
  const shifts = await visitor.raw.evaluate(() => window.shifts);
  const total = shifts.reduce((sum, { value }) => sum + value, 0);
  assert(total <= MOST_SHIFT, `${what} moved by ${total}: ${JSON.stringify(shifts)}`);
};

async function firstVisit(browser, server, test) {
  let visitor;
  await test('first visit: paints without the runtime', async () => {
    const requests = [];
    const page = await browser.open('about:blank');
    page.raw.on('request', (request) => requests.push(request.url()));
    await page.raw.goto(server.url);
    await page.raw.waitForSelector('.examples button:enabled');
    const early = requests.filter((url) => /\.(wasm|mjs|pte)$|worker/.test(url));
    assert(early.length === 0, `before anybody asked for a model: ${early}`);
    await page.close();
  });
  await test('two clicks to an answer, with the size said before', async () => {
    visitor = await Visitor.open(browser, server);
    await visitor.limit(16);
    const load = visitor.raw.getByRole('button', { name: /Download and start · 99 MB/ });
    await load.click();
    await visitor.click('button', QUESTION);
    await visitor.raw.waitForSelector('.stats:has-text("tokens/s")');
    await visitor.answered();
    const [answer] = await visitor.answers();
    assert(/Paris/.test(answer), `the answer is "${answer}"`);
    const stats = await visitor.text('.stats');
    assert(/tokens\/s · \d+ tokens? · first after .* · CPU/.test(stats), stats);
    const meter = await visitor.text('.meter');
    assert(/^\d+ of 2,048$/.test(meter.trim()), `the context meter says "${meter}"`);
    await noShift(visitor, 'loading and answering');
  });
  return visitor;
}

async function conversations(visitor, test) {
  await test('stop keeps what is there; Esc is enough', async () => {
    await visitor.limit(400);
    await visitor.raw.fill('#prompt', 'Tell me a very long story about a whale.');
    await visitor.raw.keyboard.press('Shift+Enter');
    await visitor.raw.keyboard.type('Please.');
    await visitor.raw.keyboard.press('Enter');
    await visitor.until(() => document.querySelector('.streaming')?.textContent.length > 20);
    await visitor.raw.keyboard.press('Escape');
    await visitor.answered();
    assert((await visitor.text('.note')) === 'Stopped.', `the note is "${await visitor.text('.note')}"`);
    const asked = await visitor.text('.bubble');
    assert(asked.endsWith('whale.\nPlease.'), `asked "${asked}"`);
    const [, answer] = await visitor.answers();
    assert(answer.length > 20, `kept "${answer}"`);
  });
  await test('a reload keeps the conversation, and the answer that was stopped', async () => {
    const before = await visitor.answers();
    await visitor.raw.reload();
    await visitor.raw.waitForSelector('.message');
    const after = await visitor.answers();
    assert(JSON.stringify(after) === JSON.stringify(before), `${before} became ${after}`);
  });
  await test('retry gives another answer in its place', async () => {
    await visitor.limit(16);
    const before = await visitor.answers();
    await visitor.click('button', 'Try again, for a different answer');
    await visitor.raw.waitForSelector('#stop');
    await visitor.answered();
    const after = await visitor.answers();
    assert(after.length === before.length && after[0] === before[0], `${before.length} answers became ${after.length}`);
    assert(after[1] !== before[1] && after[1].length > 0, `the answer is still "${after[1]}"`);
  });
  await test('an edited message drops what came after it', async () => {
    await visitor.click('button', 'Edit your message');
    const editor = visitor.raw.locator('.editor textarea');
    assert((await editor.inputValue()) === QUESTION, `the editor has "${await editor.inputValue()}"`);
    await editor.fill('What is the capital of Italy?');
    await editor.press('Enter');
    await visitor.raw.waitForSelector('#stop');
    await visitor.answered();
    const answers = await visitor.answers();
    assert(answers.length === 1 && /Ital/.test(answers[0]), `answers: ${JSON.stringify(answers)}`);
  });
}

async function keeping(visitor, test) {
  const more = () => visitor.raw.locator('.sidebar .row button').first().click();
  await test('conversations are renamed, saved and deleted', async () => {
    await more();
    await visitor.raw.getByLabel('Name', { exact: true }).fill('Capitals');
    await visitor.click('button', 'Rename');
    await visitor.raw.waitForSelector('.row a:has-text("Capitals")');
    await more();
    for (const [button, file, words] of [
      ['Save as Markdown', 'capitals.md', /^# Capitals\n\n\*\*You:\*\*\n\nWhat is the capital of Italy\?/],
      ['Save as JSON', 'capitals.json', /"role": "assistant"/],
    ]) {
      const [download] = await Promise.all([visitor.raw.waitForEvent('download'), visitor.click('button', button)]);
      assert(download.suggestedFilename() === file, download.suggestedFilename());
      const text = readFileSync(await download.path(), 'utf8');
      assert(words.test(text), `${file} has ${text}`);
    }
    await visitor.click('button', 'Delete');
    await visitor.click('button', 'Really delete: this cannot be undone');
    await visitor.raw.waitForSelector('.welcome');
    await visitor.raw.reload();
    await visitor.raw.waitForSelector('.welcome');
    assert((await visitor.raw.locator('.row').count()) === 0, 'the conversation came back');
  });
}

async function pictures(browser, server, test) {
  await test('pictures: a file is named; another device looks again', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/pictures' });
    const canvas = await visitor.raw.evaluate(async () => {
      const drawn = new OffscreenCanvas(300, 300);
      const context = drawn.getContext('2d');
      context.fillStyle = '#fff';
      context.fillRect(0, 0, 300, 300);
      context.fillStyle = '#d50000';
      context.beginPath();
      context.arc(150, 150, 100, 0, 7);
      context.fill();
      return Array.from(new Uint8Array(await (await drawn.convertToBlob()).arrayBuffer()));
    });
    const file = { name: 'ball.png', mimeType: 'image/png', buffer: Buffer.from(canvas) };
    await visitor.raw.setInputFiles('#file', file);
    await visitor.raw.waitForSelector('.results .value');
    const values = await visitor.raw.locator('.results .value').allInnerTexts();
    const shares = values.map((v) => parseFloat(v));
    assert(shares.length === 5 && shares.every((v, i) => i === 0 || v <= shares[i - 1]), `shares ${values}`);
    await visitor.raw.setInputFiles('#file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('hello') });
    await visitor.raw.waitForSelector('.problem:has-text("no picture that the browser can read")');
    await noShift(visitor, 'the picture page');
    await visitor.close();
  });
}

async function devicePage(browser, server, test) {
  await test('device: facts in words, and a self-test', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/device' });
    await visitor.raw.waitForSelector('.summary h2');
    const facts = await visitor.text('.facts');
    assert(/Kept by this page/.test(await visitor.text('main')), `facts: ${facts}`);
    await visitor.close();
  });
}

async function privacy(browser, server, test) {
  await test('nothing is sent: GET requests for the page’s and the model’s own files only', async () => {
    const seen = [];
    server.requests.length = 0;
    const visitor = await Visitor.open(browser, server);
    visitor.raw.context().on('request', (r) => seen.push({ url: r.url(), method: r.method(), body: r.postData() }));
    await visitor.limit(16);
    await visitor.raw.fill('#prompt', 'My secret is 4711. ![x](https://example.com/a.png)');
    await visitor.raw.keyboard.press('Enter');
    await visitor.raw.waitForSelector('.stats:has-text("tokens/s")');
    await visitor.answered();
    const odd = seen.filter(({ url, method, body }) => {
      return (
        !/^(blob|data):/.test(url) && (!url.startsWith(server.url) || method !== 'GET' || body || url.includes('4711'))
      );
    });
    assert(odd.length === 0, `requests: ${JSON.stringify(odd)}`);
    const allowed =
      /^(assets\/[\w-]+\.\w+|models\/(index\.json|smollm2-135m-instruct\/[\w.]+)|sw\.js|[\w-]+\.(png|svg|js|webmanifest)|index\.html|)$/;
    const others = server.requests.map((p) => p.slice(BASE.length)).filter((p) => !allowed.test(p));
    assert(others.length === 0, `the server was asked for ${others}`);
    await visitor.close();
    return `${new Set(server.requests).size} files`;
  });
  await test('the browser would refuse to send anything elsewhere, from page and worker', async () => {
    const visitor = await Visitor.open(browser, server);
    const refused = await visitor.raw.evaluate(() => fetch('https://example.com/').then(() => 'sent', String));
    assert(refused !== 'sent', 'the page could reach another site');
    const policy = await visitor.raw.evaluate(async () => {
      await navigator.serviceWorker.ready;
      const assets = await (await caches.open((await caches.keys()).find((k) => k.startsWith('page-')))).keys();
      const worker = assets.find(({ url }) => /worker/.test(url));
      return (await fetch(worker.url)).headers.get('Content-Security-Policy');
    });
    assert(policy === null || /connect-src 'self'/.test(policy), `the worker's policy is ${policy}`);
    await visitor.close();
  });
}

async function transfer(browser, server, test) {
  await test('first visit: page and runtime within 700 KB gzip', async () => {
    const bodies = new Map();
    const visitor = await Visitor.open(browser, server);
    visitor.raw.context().on('response', async (response) => {
      const { pathname } = new URL(response.url());
      if (!pathname.includes('/models/')) bodies.set(pathname, await response.body().catch(() => Buffer.alloc(0)));
    });
    await visitor.raw.reload();
    await visitor.click('button', /Download and start/);
    await visitor.raw.waitForSelector('.ready');
    await visitor.close();
    const sizes = [...bodies].map(([name, body]) => [name, gzipSync(body).length]);
    const total = sizes.reduce((sum, [, size]) => sum + size, 0);
    assert(
      sizes.some(([name]) => name.endsWith('.wasm')),
      `no runtime among ${sizes.map(([name]) => name)}`,
    );
    assert(total <= TRANSFER_LIMIT, `${total} bytes: ${sizes.join(' ')}`);
    return `${(total / 1024).toFixed(0)} KB`;
  });
}

async function offline(browser, test) {
  await test('a plain static host: isolated by the service worker, and the page opens without a network', async () => {
    const server = await servePlayground({ base: BASE, isolation: false });
    const page = await browser.open('about:blank');
    const visitor = new Visitor(page, server.url);
    try {
      await page.raw.goto(server.url);
      // the page must isolate itself by a reload; only the server is watched, since asking the page counts as touching it
      const loads = () => server.requests.filter((p) => p.endsWith('/models/index.json')).length;
      for (const end = Date.now() + TIMEOUT; loads() < 2; await sleep(50)) assert(Date.now() < end, 'no reload');
      await page.raw.waitForSelector('html[data-offline]');
      assert(await visitor.raw.evaluate(() => crossOriginIsolated), 'not isolated');
      await server.close();
      for (const [hash, words] of [
        ['#/', 'Ask a model'],
        ['#/pictures', 'What is in this picture?'],
        ['#/models', 'Models'],
        ['#/device', 'This device'],
      ]) {
        await visitor.raw.goto(`${visitor.url}${hash}`);
        await visitor.raw.reload();
        await visitor.raw.waitForSelector(`main h1:has-text("${words}")`);
      }
      assert(await visitor.raw.evaluate(() => crossOriginIsolated), 'not isolated without a network');
    } finally {
      await visitor.close();
      await server.close();
    }
  });
}

/** Where the focus is, by the name that a screen reader gives. */
const focused = (visitor) =>
  visitor.raw.evaluate(() => {
    const e = document.activeElement;
    const style = getComputedStyle(e);
    const ring = parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== 'none';
    const frame = e.closest('.composer, .choice');
    return {
      name:
        e === document.body
          ? 'BODY'
          : (e.getAttribute('aria-label') ?? e.labels?.[0]?.innerText ?? e.innerText ?? e.tagName),
      visible: ring || (frame !== null && getComputedStyle(frame).outlineStyle !== 'none'),
    };
  });

async function keyboard(browser, server, test) {
  await test('keyboard: everything on the first page is reached, with a visible focus', async () => {
    const visitor = await Visitor.open(browser, server);
    await visitor.raw.waitForSelector('.examples button:enabled');
    await visitor.raw.locator('.skip-link').focus();
    const names = [];
    for (let i = 0; i < 20; ++i) {
      const { name, visible } = await focused(visitor);
      if (name === 'BODY') break; // the browser's own controls come next
      assert(visible, `the focus on "${name}" cannot be seen`);
      names.push(name);
      await visitor.raw.keyboard.press('Tab');
    }
    const wanted = [
      'Skip to',
      'start page',
      'Chat',
      'Pictures',
      'Models',
      'Device',
      'Nothing is sent',
      'theme',
      'New chat',
    ];
    wanted.push('settings', 'SmolLM2', 'Runs on', 'Download', QUESTION, 'Your message', 'Send');
    for (const part of wanted) {
      assert(
        names.some((name) => name.includes(part)),
        `"${part}" is not reached: ${names.join(' | ')}`,
      );
    }
    await visitor.raw.locator('.promise').focus();
    await visitor.raw.keyboard.press('Enter');
    await visitor.raw.waitForSelector('dialog[open]');
    await visitor.raw.keyboard.press('Escape');
    await visitor.raw.waitForSelector('dialog[open]', { state: 'detached' });
    assert((await focused(visitor)).name.includes('Nothing is sent'), 'the focus did not come back');
    await visitor.close();
  });
}

async function axe(visitor, what) {
  const violations = await visitor.raw.evaluate(async () => {
    const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
    return violations.map(({ id, impact, nodes }) => ({ id, impact, where: nodes.map((n) => n.target.join(' ')) }));
  });
  const bad = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
  assert(bad.length === 0, `${what}: ${JSON.stringify(bad)}`);
  return violations.length;
}

async function accessibility(browser, server, test) {
  for (const dark of [false, true]) {
    await test(`axe: nothing serious on any page, ${dark ? 'dark' : 'light'}`, async () => {
      let minor = 0;
      const visitor = await Visitor.open(browser, server, { dark });
      await visitor.raw.evaluate(AXE);
      for (const hash of ['#/', '#/pictures', '#/models', '#/device']) {
        await visitor.raw.evaluate((to) => (location.hash = to), hash);
        await visitor.raw.waitForTimeout(150);
        minor += await axe(visitor, hash);
      }
      await visitor.raw.evaluate(() => (location.hash = '#/'));
      await visitor.click('button', 'How it answers: settings');
      minor += await axe(visitor, 'settings');
      await visitor.close();
      return minor ? `${minor} minor` : '';
    });
  }
}

/** `test(name, body)` of the runner. */
export async function playgroundTests(test, log = () => {}) {
  const named = (name, body) => test(`playground: ${name}`, body);
  const server = await servePlayground({ base: BASE });
  const browser = await launch('chromium', log);
  try {
    const visitor = await firstVisit(browser, server, named);
    if (visitor) {
      await conversations(visitor, named);
      await keeping(visitor, named);
      await visitor.close();
    }
    await pictures(browser, server, named);
    await devicePage(browser, server, named);
    await privacy(browser, server, named);
    await transfer(browser, server, named);
    await offline(browser, named);
    await keyboard(browser, server, named);
    await accessibility(browser, server, named);
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
