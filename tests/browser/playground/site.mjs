// What holds for all pages: privacy, size, offline use, accessibility.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { keepConversations } from '../../../tools/playground.mjs';
import { serve as serveFolders } from '../../../tools/serve.mjs';
import { PICTURES } from '../pictures.mjs';
import { assert } from '../runner.mjs';
import { BASE, QUESTION, serve, TIMEOUT, Visitor } from './visitor.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const TRANSFER_LIMIT = 700 * 1024;

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
    await visitor.raw.evaluate(() => (location.hash = '#/pictures'));
    const buffer = readFileSync(path.join(PICTURES, 'coffee.png'));
    await visitor.raw.setInputFiles('#file', { name: 'me-4711.png', mimeType: 'image/png', buffer });
    await visitor.raw.waitForSelector('.results .value');
    const odd = seen.filter(({ url, method, body }) => {
      return (
        !/^(blob|data):/.test(url) && (!url.startsWith(server.url) || method !== 'GET' || body || url.includes('4711'))
      );
    });
    assert(odd.length === 0, `requests: ${JSON.stringify(odd)}`);
    const allowed =
      /^(assets\/[\w-]+\.\w+|(models|samples)\/index\.json|models\/(smollm2-135m-instruct|efficientnet-lite0)\/[\w.]+|samples\/\w+\.\w+|sw\.js|[\w-]+\.(png|svg|js|webmanifest)|index\.html|)$/;
    const others = server.requests.map((p) => p.slice(BASE.length)).filter((p) => !allowed.test(p));
    assert(others.length === 0, `the server was asked for ${others}`);
    await visitor.close();
    return `${new Set(server.requests).size} files`;
  });
  await test('the browser refuses to send anything elsewhere, from page and worker', async () => {
    const headers = { 'Access-Control-Allow-Origin': '*', 'Cross-Origin-Resource-Policy': 'cross-origin' };
    const elsewhere = await serveFolders({ mounts: { '/': HERE }, headers });
    const visitor = await Visitor.open(browser, server);
    try {
      const refused = await visitor.raw.evaluate((url) => {
        const violation = new Promise((resolve) =>
          addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective), { once: true }),
        );
        return fetch(url).then(
          () => 'sent',
          () => violation,
        );
      }, elsewhere.url);
      assert(refused === 'connect-src', `the page: ${refused}`);
      // the worker's policy comes with its script, from the service worker
      await visitor.until(() => navigator.serviceWorker.controller !== null);
      await visitor.click('button', /Download and start/);
      await visitor.raw.waitForSelector('.ready');
      const workers = visitor.raw.workers().filter((worker) => /worker/.test(worker.url()));
      assert(workers.length > 0, 'no worker runs');
      for (const worker of workers) {
        const answer = await worker.evaluate((url) => fetch(url).then(() => 'sent', String), elsewhere.url);
        assert(answer !== 'sent', `${worker.url()} could reach another site`);
      }
      assert(elsewhere.requests.length === 0, `asked for ${elsewhere.requests}`);
      assert((await fetch(elsewhere.url)).status === 404 && elsewhere.requests.length === 1, 'the other site is down');
    } finally {
      await visitor.close();
      await elsewhere.close();
    }
  });
}

const HOSTILE = `<img src=x onerror="window.hacked = 1"> <script>window.hacked = 2</script>

[a link](javascript:window.hacked=3) [data](data:text/html,x) ![picture](https://example.com/a.png) [good](https://example.com/)

| a | <iframe src="https://example.com/"></iframe> |
|---|---|
| b | c |`;

async function sanitising(browser, server, test) {
  await test('what a model writes never becomes a script, a frame, an image or a dangerous link', async () => {
    const visitor = await Visitor.open(browser, server);
    const messages = [{ id: 'm', role: 'assistant', content: HOSTILE }];
    const conversation = { id: 'x', title: 'Hostile', created: 0, updated: 0, system: '', messages };
    await keepConversations(visitor.raw, [conversation]);
    await visitor.raw.goto(`${visitor.url}#/chat/x`);
    await visitor.raw.reload();
    await visitor.raw.waitForSelector('.prose table');
    const found = await visitor.raw.evaluate(() => ({
      hacked: window.hacked,
      elements: document.querySelectorAll('.prose :is(img, script, iframe)').length,
      links: Array.from(document.querySelectorAll('.prose a'), (a) => a.href),
      text: document.querySelector('.prose').textContent,
    }));
    assert(found.hacked === undefined && found.elements === 0, JSON.stringify(found));
    assert(
      found.links.every((href) => href.startsWith('https://example.com/')),
      `links ${found.links}`,
    );
    assert(found.text.includes('<script>window.hacked = 2</script>'), `the text reads ${found.text}`);
    await visitor.close();
  });
}

async function transfer(browser, server, test) {
  await test('first visit: page and runtime within 700 KB gzip', async () => {
    const bodies = new Map();
    const visitor = await Visitor.open(browser, server);
    const unread = new Set();
    const reading = [];
    visitor.raw.context().on('response', (response) => {
      const { pathname } = new URL(response.url());
      if (pathname.includes('/models/')) return;
      const unreadable = () => unread.add(pathname); // such as what a page that is left had asked for
      reading.push(response.body().then((body) => bodies.set(pathname, body), unreadable));
    });
    await visitor.raw.reload();
    await visitor.click('button', /Download and start/);
    await visitor.raw.waitForSelector('.ready');
    await Promise.all(reading);
    await visitor.close();
    const sizes = [...bodies].map(([name, body]) => [name, gzipSync(body).length]);
    const total = sizes.reduce((sum, [, size]) => sum + size, 0);
    const lost = [...unread].filter((name) => !bodies.has(name));
    assert(lost.length === 0, `the sizes of these are not known: ${lost}`);
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
    const server = await serve({ isolation: false });
    const page = await browser.open('about:blank');
    const visitor = new Visitor(page, `${server.url}?device=wasm`);
    try {
      await page.raw.goto(visitor.url);
      // the page must isolate itself by a reload; only the server is watched, since asking the page counts as touching it
      const loads = () => server.requests.filter((p) => p.endsWith('/models/index.json')).length;
      for (const end = Date.now() + TIMEOUT; loads() < 2; await sleep(50)) assert(Date.now() < end, 'no reload');
      await page.raw.waitForSelector('html[data-offline]');
      assert(await visitor.raw.evaluate(() => crossOriginIsolated), 'not isolated');
      await visitor.limit(16);
      await visitor.click('button', QUESTION);
      await visitor.raw.waitForSelector('.stats:has-text("tokens/s · ")');
      await visitor.answered();
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
      await visitor.raw.goto(visitor.url);
      await visitor.raw.reload();
      await visitor.click('button', QUESTION);
      await visitor.raw.waitForSelector('.stats:has-text("tokens/s · ")');
      const [answer] = await visitor.answers();
      assert(/Paris/.test(answer), `without a network the answer is "${answer}"`);
    } finally {
      await visitor.close();
      await server.close();
    }
  });
}

async function accessibility(browser, server, test) {
  for (const dark of [false, true]) {
    await test(`axe: nothing serious on any page, ${dark ? 'dark' : 'light'}`, async () => {
      let minor = 0;
      const visitor = await Visitor.open(browser, server, { dark });
      const messages = [
        { id: 'a', role: 'user', content: 'How?' },
        { id: 'b', role: 'assistant', content: 'So:\n\n```js\nlet a = 1;\n```\n\n- one\n- two', ended: 'stopped' },
      ];
      const conversation = { id: 'x', title: 'How?', created: 0, updated: 0, system: '', messages };
      await keepConversations(visitor.raw, [conversation]);
      await visitor.raw.reload();
      await visitor.raw.waitForSelector('.row');
      for (const hash of ['#/', '#/chat/x', '#/pictures', '#/models', '#/device']) {
        await visitor.raw.evaluate((to) => (location.hash = to), hash);
        await visitor.raw.waitForTimeout(150);
        minor += await visitor.axe(hash);
      }
      await visitor.raw.evaluate(() => (location.hash = '#/'));
      await visitor.click('button', 'How it answers: settings');
      minor += await visitor.axe('settings');
      await visitor.raw.keyboard.press('Escape');
      await visitor.raw.locator('.promise').click();
      await visitor.raw.waitForSelector('dialog[open]');
      minor += await visitor.axe('what is sent');
      await visitor.close();
      return minor ? `${minor} minor` : '';
    });
  }
}

export async function siteTests(browser, server, test) {
  await privacy(browser, server, test);
  await sanitising(browser, server, test);
  await transfer(browser, server, test);
  await offline(browser, test);
  await accessibility(browser, server, test);
}
