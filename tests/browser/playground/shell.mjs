// The frame around the pages: theme, keyboard, a new version, the installed app.
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { assert } from '../runner.mjs';
import { BASE, QUESTION, serve, Visitor } from './visitor.mjs';

const DIST = fileURLToPath(new URL('../../../playground/dist/', import.meta.url));

async function theme(browser, server, test) {
  await test('theme: the toggle changes it, a visit later it is still so, and back it follows the system again', async () => {
    const visitor = await Visitor.open(browser, server);
    const look = () =>
      visitor.raw.evaluate(() => ({
        chosen: document.documentElement.dataset.theme,
        kept: localStorage.getItem('theme'),
        light: getComputedStyle(document.body)
          .backgroundColor.match(/\d+/g)
          .every((part) => part > 200),
      }));
    const is = async (what, chosen, light) => {
      const found = await look();
      const kept = chosen ?? null;
      assert(found.chosen === chosen && found.kept === kept && found.light === light, { what, ...found });
    };
    await is('at first', undefined, true);
    await visitor.click('button', 'Use the dark theme');
    await is('toggled', 'dark', false);
    await visitor.raw.reload({ waitUntil: 'commit' });
    await visitor.raw.waitForSelector('body', { state: 'attached' });
    await is('after a reload, before any module has run', 'dark', false);
    await visitor.click('button', 'Use the light theme');
    await is('toggled back', undefined, true);
    await visitor.raw.emulateMedia({ colorScheme: 'dark' });
    await is('the system is dark', undefined, false);
    await visitor.raw.getByRole('button', { name: 'Use the light theme' }).waitFor();
    await visitor.close();
  });
}

/** Where the focus is, by the name that a screen reader gives. */
const focused = (visitor) =>
  visitor.raw.evaluate(() => {
    const e = document.activeElement;
    const style = getComputedStyle(e);
    const ring = parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== 'none';
    const frame = e.closest('.composer, .choice');
    const image = e.querySelector('img');
    // the first line: of <main>, its heading
    const text = (e.labels?.[0] ?? e).innerText.trim().split('\n')[0];
    return {
      name: e === document.body ? 'BODY' : e.getAttribute('aria-label') || text || image?.alt || e.tagName,
      visible: ring || (frame !== null && getComputedStyle(frame).outlineStyle !== 'none'),
    };
  });

/** The names of what Tab reaches, from the skip link to the end of the page. */
async function reached(visitor) {
  await visitor.raw.locator('.skip-link').focus();
  const names = [];
  for (let i = 0; i < 40; ++i) {
    const { name, visible } = await focused(visitor);
    if (name === 'BODY') break; // the browser's own controls come next
    assert(visible, `the focus on "${name}" cannot be seen`);
    names.push(name);
    await visitor.raw.keyboard.press('Tab');
  }
  return names;
}

function missing(names, wanted) {
  const left = wanted.filter((part) => !names.some((name) => name.includes(part)));
  assert(left.length === 0, `${left.map((part) => `"${part}"`)} are not reached: ${names.join(' | ')}`);
}

/** Tab until the focus is on what has this name. */
async function tabTo(visitor, part) {
  for (let i = 0; i < 40; ++i) {
    if ((await focused(visitor)).name.includes(part)) return;
    await visitor.raw.keyboard.press('Tab');
  }
  assert(false, `"${part}" is not reached`);
}

async function keyboard(browser, server, test) {
  await test('keyboard: everything on the first page is reached, with a visible focus', async () => {
    const visitor = await Visitor.open(browser, server);
    await visitor.raw.waitForSelector('.examples button:enabled');
    const bar = ['Skip to', 'start page', 'Chat', 'Pictures', 'Models', 'Device', 'Nothing is sent', 'theme'];
    const page = ['New chat', 'settings', 'SmolLM2', 'Runs on', 'Download', QUESTION, 'Your message', 'Send'];
    missing(await reached(visitor), [...bar, ...page]);
    await visitor.raw.locator('.promise').focus();
    await visitor.raw.keyboard.press('Enter');
    await visitor.raw.waitForSelector('dialog[open]');
    await visitor.raw.keyboard.press('Escape');
    await visitor.raw.waitForSelector('dialog[open]', { state: 'detached' });
    assert((await focused(visitor)).name.includes('Nothing is sent'), 'the focus did not come back');
    await visitor.close();
  });
  await test('keyboard: a model is downloaded, used on a sample, and deleted; the device page is read', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/models' });
    const { keyboard: keys } = visitor.raw;
    const row = visitor.raw.locator('.model-row', { hasText: 'EfficientNet-Lite0' });
    await row.waitFor();
    missing(await reached(visitor), ['Try a picture', 'Download', 'Chat', 'Choose a folder']);
    await visitor.raw.locator('.skip-link').focus();
    await keys.press('Enter');
    await tabTo(visitor, 'Try a picture'); // the smallest model comes first
    await tabTo(visitor, 'Download');
    await keys.press('Enter');
    await row.getByText(/on this device, 19 MB, loaded/).waitFor();
    await visitor.raw.locator('.skip-link').focus();
    await tabTo(visitor, 'Try a picture');
    await keys.press('Enter');
    await visitor.raw.waitForSelector('.samples img');
    missing(await reached(visitor), ['Choose a picture', 'Use the camera', 'A cup of coffee', 'Change']);
    await visitor.raw.locator('.skip-link').focus();
    await tabTo(visitor, 'A cup of coffee');
    await keys.press('Space');
    await visitor.raw.locator('.results .name', { hasText: 'espresso' }).waitFor();
    await visitor.axeInBoth('a picture and its names');
    await visitor.raw.evaluate(() => (location.hash = '#/models'));
    await row.waitFor();
    await visitor.axeInBoth('models, one of them loaded');
    await visitor.raw.locator('.skip-link').focus();
    for (const name of ['Delete EfficientNet', 'Really delete EfficientNet']) {
      await tabTo(visitor, name);
      await keys.press('Enter');
    }
    await row.getByText('not downloaded').waitFor();
    await visitor.raw.evaluate(() => (location.hash = '#/device'));
    await visitor.raw.waitForSelector('.summary h2');
    missing(await reached(visitor), [
      'Limits and all features',
      'Save as a file',
      'Run the self-test',
      'Model',
      'Runs on',
      'Measure',
    ]);
    await visitor.raw.locator('.skip-link').focus();
    await tabTo(visitor, 'Limits and all features');
    await keys.press('Enter');
    await visitor.raw.getByText('Largest piece of graphics memory').waitFor();
    await visitor.close();
  });
}

/** What a host serves after an upload: another page, and a service worker that says so. */
function secondVersion(request, response, headers) {
  const file = new URL(request.url, 'http://x').pathname.slice(BASE.length) || 'index.html';
  if (!['index.html', 'sw.js'].includes(file)) return false;
  const text = readFileSync(path.join(DIST, file), 'utf8');
  const type = file === 'sw.js' ? 'text/javascript' : 'text/html; charset=utf-8';
  response.writeHead(200, { ...headers, 'Content-Type': type });
  const version = /(["'`])[0-9a-f]{12}\1/;
  assert(file !== 'sw.js' || version.test(text), 'sw.js has no version');
  response.end(text.replace(version, '"0123456789ab"').replace('<html lang="en">', '<html lang="en" data-second>'));
  return true;
}

async function update(browser, test) {
  await test('a new version waits until its reader presses Update, then it is there', async () => {
    let uploaded = false;
    const server = await serve({ intercept: (...all) => uploaded && secondVersion(...all) });
    const visitor = await Visitor.open(browser, server);
    const second = () => visitor.raw.evaluate(() => 'second' in document.documentElement.dataset);
    const button = visitor.raw.getByRole('button', { name: 'Update' });
    try {
      await visitor.raw.waitForSelector('html[data-offline]');
      uploaded = true;
      await visitor.raw.reload();
      await button.waitFor();
      assert(!(await second()), 'the new page was shown unasked');
      await button.click();
      await visitor.raw.waitForSelector('html[data-second] main h1');
      await visitor.raw.waitForSelector('html[data-offline]');
      assert((await button.count()) === 0, 'an update is still offered');
      const pages = await visitor.raw.evaluate(async () => (await caches.keys()).filter((n) => n.startsWith('page-')));
      assert(pages.join() === 'page-0123456789ab', `kept: ${pages}`);
      await server.close();
      await visitor.raw.reload();
      await visitor.raw.waitForSelector('html[data-second] main h1');
    } finally {
      await visitor.close();
      await server.close();
    }
  });
}

/** Width and height of a PNG. */
function sizeOf(file) {
  const bytes = readFileSync(path.join(DIST, file));
  assert(bytes.subarray(1, 4).toString() === 'PNG', `${file} is no PNG`);
  return `${bytes.readUInt32BE(16)}x${bytes.readUInt32BE(20)}`;
}

async function installed(browser, server, test) {
  await test('installable: the browser finds nothing wrong with the manifest, and its icons are what it says', async () => {
    const visitor = await Visitor.open(browser, server);
    await visitor.raw.waitForSelector('html[data-offline]');
    const session = await visitor.raw.context().newCDPSession(visitor.raw);
    const { url, errors, data } = await session.send('Page.getAppManifest');
    assert(url === `${server.url}manifest.webmanifest` && errors.length === 0, { url, errors });
    const { installabilityErrors } = await session.send('Page.getInstallabilityErrors');
    // a test's profile is a private window
    const wrong = installabilityErrors.map(({ errorId }) => errorId).filter((id) => id !== 'in-incognito');
    assert(wrong.length === 0, wrong);
    const manifest = JSON.parse(data);
    assert(manifest.name && manifest.short_name.length <= 12 && manifest.display === 'standalone', manifest);
    for (const name of ['id', 'start_url', 'scope']) {
      assert(new URL(manifest[name], url).href === server.url, `${name}: ${manifest[name]}`);
    }
    const pngs = manifest.icons.filter(({ type }) => type === 'image/png');
    for (const { src, sizes } of pngs) assert(sizeOf(src) === sizes, `${src} has ${sizeOf(src)}, not ${sizes}`);
    assert(
      ['192x192', '512x512'].every((size) => pngs.some(({ sizes }) => sizes === size)),
      pngs,
    );
    assert(
      pngs.some(({ purpose }) => purpose === 'maskable'),
      'no icon for round frames',
    );
    await visitor.close();
  });
}

export async function shellTests(browser, server, test) {
  await theme(browser, server, test);
  await keyboard(browser, server, test);
  await update(browser, test);
  await installed(browser, server, test);
}
