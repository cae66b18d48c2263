// The package in browsers where the model does not matter: loading, the cache, failures, the API on both sides of a
// worker. Prints a line per test; the last line is {"passed": n, "failed": m}.
//
//   node tests/browser/package.mjs [--only REGEX]
import { execFileSync } from 'node:child_process';
import { statSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.dirname(path.dirname(HERE));
const MODELS = path.join(process.env.ETWGPU_CACHE ?? '', 'models');
const SECONDS = 60; // for one test
const { values: options } = parseArgs({ options: { only: { type: 'string', default: '' } } });

const FOLDER = '/models/efficientnet-lite0/';
const PROGRAM = `${FOLDER}model.pte`;
const SIZE = statSync(path.join(MODELS, 'efficientnet-lite0/model.pte')).size;

const counts = { passed: 0, failed: 0 };
let pageLog = [];

function assert(condition, message) {
  if (!condition) throw new Error(typeof message === 'string' ? message : JSON.stringify(message));
}

async function test(name, body) {
  if (!new RegExp(options.only).test(name)) return;
  pageLog = [];
  const began = performance.now();
  let timer;
  const tooLong = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${SECONDS} s`)), SECONDS * 1000);
  });
  try {
    const note = await Promise.race([body(), tooLong]);
    counts.passed++;
    console.log(`ok      ${name} (${((performance.now() - began) / 1000).toFixed(1)} s)${note ? `: ${note}` : ''}`);
  } catch (error) {
    counts.failed++;
    console.log(`FAILED  ${name}: ${error.message}`);
    for (const line of pageLog.slice(-10)) console.log(`        [page] ${line}`);
  } finally {
    clearTimeout(timer);
  }
}

/** A browser, a server that can be made to fail, and a page with package.js. */
async function withPage(browserName, serverOptions, body) {
  const server = await serve({
    mounts: { '/': HERE, '/web/': path.join(ROOT, 'web/dist'), '/models/': MODELS },
    isolation: false,
    ...serverOptions,
  });
  let browser;
  try {
    browser = await launch(browserName, (line) => pageLog.push(line));
    const open = async (how) => {
      const page = await browser.open(`${server.url}package.html`, how);
      await page.raw.waitForFunction('window.packageReady', { timeout: 30_000 });
      page.do = async (what, argument = {}) => {
        const { ok, error } = await page.evaluate(([w, a]) => window.tests.attempt(w, a), [what, argument]);
        if (error) throw Object.assign(new Error(`${error.class} (${error.code}): ${error.message}`), error);
        return ok;
      };
      page.fails = (what, argument) =>
        page.do(what, argument).then(
          (value) => assert(false, `no error, but ${JSON.stringify(value)}`),
          (error) => error,
        );
      return page;
    };
    const page = await open();
    await body({ page, open, server, asked: () => server.log.splice(0).filter((r) => r.path.startsWith('/models/')) });
  } catch (error) {
    counts.failed++;
    console.log(`FAILED  ${browserName} could not be driven: ${error.message}`);
  } finally {
    await browser?.close();
    await server.close();
  }
}

const wasm = { modelUrl: FOLDER, device: 'wasm' };
const rangesOf = (asked) => asked.filter((r) => r.path === PROGRAM).map((r) => r.range ?? 'all');

async function caching({ page, open, server, asked }, label) {
  const expected = await page.do('once', { ...wasm, cache: 'none' });
  const same = (got) => assert(got.checksum === expected.checksum, `checksum ${got.checksum}, ${expected.checksum}`);
  const clear = async () => {
    await page.do('cacheClear');
    delete server.faults[PROGRAM];
    asked();
  };

  await test(`${label}: a download that breaks at 60 % goes on there in the next load`, async () => {
    await clear();
    const cut = Math.floor(0.6 * SIZE);
    server.faults[PROGRAM] = { cutAt: cut };
    const error = await page.fails('once', wasm);
    assert(error.class === 'DownloadError' && /broke off/.test(error.message), error.message);
    delete server.faults[PROGRAM];
    asked();
    const loaded = await page.do('once', wasm);
    same(loaded);
    const [range, ...others] = rangesOf(asked());
    const from = Number(/bytes=(\d+)-/.exec(range)?.[1]);
    assert(others.length === 0 && from > cut - (1 << 20) && from <= cut, `asked for ${range} ${others}, cut at ${cut}`);
    assert(loaded.info.cache.bytesFromCache >= from, loaded.info.cache);
    assert(loaded.progress.at(-1).cached === from, loaded.progress.at(-1));
    return `from byte ${from} of ${SIZE}`;
  });
  await test(`${label}: what is kept is loaded without the program's server, then without any request`, async () => {
    server.faults[PROGRAM] = { refuse: true };
    const loaded = await page.do('once', wasm);
    same(loaded);
    assert(loaded.info.cache.state === 'hit' && loaded.info.cache.bytesFromNetwork === 0, loaded.info.cache);
    assert(
      JSON.stringify(asked().map((r) => r.path)) === `["${FOLDER}manifest.json"]`,
      'only the manifest is asked for',
    );
    same(await page.do('once', { ...wasm, worker: false, offline: true }));
    assert(asked().length === 0, 'requests though offline');
    delete server.faults[PROGRAM];
    return `loaded in ${loaded.info.loadMs.toFixed(0)} ms`;
  });
  await test(`${label}: the cache is listed, measured and emptied`, async () => {
    const { list, usage } = await page.do('cacheList');
    assert(list.length === 1 && list[0].url.endsWith(FOLDER) && list[0].complete, list);
    assert(list[0].bytes >= SIZE && usage.bytes === list[0].bytes && usage.storage === 'opfs', usage);
    assert((await page.do('cacheDelete', { url: FOLDER })) === list[0].bytes, 'bytes deleted');
    assert((await page.do('cacheList')).list.length === 0, 'still listed');
  });
  await test(`${label}: a corrupt chunk is fetched again; one that stays so is named`, async () => {
    await clear();
    server.faults[PROGRAM] = { damage: { at: 5 << 20, times: 1 } };
    const once = await page
      .do('once', wasm)
      .catch((error) => assert(false, `first: ${error.message} ${JSON.stringify(asked())}`));
    same(once);
    assert(JSON.stringify(rangesOf(asked())) === `["all","bytes=${5 << 20}-"]`, 'one more request');
    await clear();
    server.faults[PROGRAM] = { damage: { at: 5 << 20, times: 9 } };
    const error = await page.fails('once', wasm);
    assert(error.class === 'IntegrityError' && /model\.pte: chunk 5 /.test(error.message), error.message);
  });
  await test(`${label}: two tabs download a model once`, async () => {
    await clear();
    server.faults[PROGRAM] = { bytesPerSecond: 12e6 };
    const other = await open({ beside: page });
    const both = await Promise.all([
      page.do('once', wasm),
      new Promise((resolve) => setTimeout(resolve, 300)).then(() => other.do('once', wasm)),
    ]);
    both.forEach(same);
    const ranges = rangesOf(asked());
    assert(JSON.stringify(ranges) === '["all"]', `the program was asked for: ${ranges}`);
    assert(both[1].info.cache.state === 'hit', both[1].info.cache);
    assert(
      both[1].progress.some((p) => p.phase === 'waiting' && p.loaded > 2e6),
      'the second tab saw no progress',
    );
    assert(
      both[0].progress.some((p) => p.secondsLeft > 0 && p.secondsLeft < 60),
      'no time was told',
    );
    await other.close();
  });
  await test(`${label}: a bare .pte is kept, and loaded anew when it changes`, async () => {
    await clear();
    const bare = { modelUrl: PROGRAM, device: 'wasm' };
    assert((await page.do('once', bare)).info.cache.state === 'stored', 'not kept');
    const again = await page.do('once', bare);
    assert(again.info.cache.state === 'hit', again.info.cache);
    assert(asked().filter((r) => r.method === 'GET').length === 1, 'downloaded twice');
  });
  await test(`${label}: CacheStorage does where OPFS is missing`, async () => {
    await clear();
    const load = { ...wasm, debug: { cacheStorage: true } };
    assert((await page.do('once', load)).info.cache.storage === 'cachestorage', 'another storage');
    const again = await page.do('once', load);
    same(again);
    assert(again.info.cache.state === 'hit', again.info.cache);
    await clear();
    assert((await page.do('cacheList')).list.length === 0, 'not emptied');
  });
  return { same, clear };
}

async function fullDisk({ page, server }, label, { same, clear }) {
  await test(`${label}: without room the model is loaded all the same, and says so`, async () => {
    await clear();
    const session = await page.raw.context().newCDPSession(page.raw);
    await session.send('Storage.overrideQuotaForOrigin', { origin: new URL(server.url).origin, quotaSize: 12e6 });
    const loaded = await page.do('once', wasm);
    same(loaded);
    assert(loaded.info.cache.state === 'off' && /no room/.test(loaded.info.cache.reason), loaded.info.cache);
    assert(
      (await page.do('cacheList')).list.every((m) => m.bytes < 1e6),
      'a part was left behind',
    );
    await session.send('Storage.overrideQuotaForOrigin', { origin: new URL(server.url).origin });
    return loaded.info.cache.reason;
  });
}

async function sources({ page, asked }, label, { same, clear }) {
  for (const kind of ['blob', 'file', 'stream', 'fileHandle', 'directoryHandle', 'files', 'programAmongFiles']) {
    await test(`${label}: a model from ${kind}`, async () => {
      const loaded = await page.do('fromHand', { kind, folder: FOLDER });
      same(loaded);
      assert(loaded.info.cache.state === 'off', loaded.info.cache);
      assert(Boolean(loaded.info.manifest) === /directory|^files/.test(kind), 'manifest');
    });
  }
  await test(`${label}: what is no model is refused`, async () => {
    assert((await page.fails('once', { modelUrl: undefined })).class === 'InvalidArgumentError', 'nothing');
    assert((await page.fails('fromHand', { kind: 'nothing' })).class === 'InvalidArgumentError', 'an object');
    assert((await page.fails('fromHand', { kind: 'text' })).class === 'NotAProgramError', 'other files');
    const name = await page.fails('once', { ...wasm, variant: 'int2' });
    assert(name.class === 'InvalidArgumentError' && /int2.*f32/.test(name.message), name.message);
  });
  await test(`${label}: the same engine runs on the calling thread`, async () => {
    await clear();
    const loaded = await page.do('once', { ...wasm, worker: false });
    same(loaded);
    assert(loaded.info.path === 'wasm' && loaded.info.reasons.length === 2, loaded.info);
    assert(asked().length > 0, 'nothing was asked for');
  });
}

await (async () => {
  execFileSync(path.join(ROOT, 'tools/models.sh'), ['--demo'], { stdio: 'inherit' });
  await withPage('chromium', {}, async (s) => {
    const helpers = await caching(s, 'chromium');
    await fullDisk(s, 'chromium', helpers);
    await sources(s, 'chromium', helpers);
  });
})();
console.log(JSON.stringify(counts));
process.exit(counts.failed ? 1 : 0);
