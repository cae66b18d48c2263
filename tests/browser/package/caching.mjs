// Downloads that break, and what is kept of them.
import path from 'node:path';
import { assert } from '../runner.mjs';
import { writeParts } from './parts.mjs';
import { FOLDER, MODELS, PARTS, PROGRAM, rangesOf, sameAs, sizeOf, test, url } from './setting.mjs';

/** On the folder of any model. */
export async function caching({ page, open, server, asked }, label, folder = FOLDER) {
  const program = `${folder}model.pte`;
  const size = sizeOf(program);
  const wasm = { modelUrl: folder, device: 'wasm' };
  const same = await sameAs(page, wasm);
  const clear = async () => {
    await page.do('cacheClear');
    delete server.faults[program];
    asked();
  };

  await test(`${label}: a download that breaks at 60 % goes on there in the next load`, async () => {
    await clear();
    const cut = Math.floor(0.6 * size);
    server.faults[program] = { cutAt: cut };
    const error = await page.fails('once', wasm);
    assert(error.class === 'DownloadError' && /broke off/.test(error.message), error.message);
    delete server.faults[program];
    asked();
    const loaded = await page.do('once', wasm);
    same(loaded);
    const [range, ...others] = rangesOf(asked(), program);
    const from = Number(/bytes=(\d+)-/.exec(range)?.[1]);
    assert(others.length === 0 && from > cut - (1 << 20) && from <= cut, `asked for ${range} ${others}, cut at ${cut}`);
    assert(loaded.info.cache.bytesFromCache >= from, loaded.info.cache);
    assert(loaded.progress.at(-1).cached === from, loaded.progress.at(-1));
    return `from byte ${from} of ${size}`;
  });
  await test(`${label}: what is kept is loaded without the program's server, then without any request`, async () => {
    server.faults[program] = { refuse: true };
    const loaded = await page.do('once', wasm);
    same(loaded);
    assert(loaded.info.cache.state === 'hit' && loaded.info.cache.bytesFromNetwork === 0, loaded.info.cache);
    assert(
      JSON.stringify(asked().map((r) => r.path)) === `["${folder}manifest.json"]`,
      'only the manifest is asked for',
    );
    same(await page.do('once', { ...wasm, worker: false, offline: true }));
    assert(asked().length === 0, 'requests though offline');
    delete server.faults[program];
    return `loaded in ${loaded.info.loadMs.toFixed(0)} ms`;
  });
  await test(`${label}: the cache is listed, measured and emptied`, async () => {
    const { list, usage } = await page.do('cacheList');
    assert(list.length === 1 && list[0].url.endsWith(folder) && list[0].complete, list);
    assert(list[0].bytes >= size && usage.bytes === list[0].bytes && usage.storage === 'opfs', usage);
    assert((await page.do('cacheDelete', { url: folder })) === list[0].bytes, 'bytes deleted');
    assert((await page.do('cacheList')).list.length === 0, 'still listed');
  });
  await test(`${label}: a corrupt chunk is fetched again; one that stays so is named`, async () => {
    await clear();
    server.faults[program] = { damage: { at: 5 << 20, times: 1 } };
    const once = await page
      .do('once', wasm)
      .catch((error) => assert(false, `first: ${error.message} ${JSON.stringify(asked())}`));
    same(once);
    assert(JSON.stringify(rangesOf(asked(), program)) === `["all","bytes=${5 << 20}-"]`, 'one more request');
    await clear();
    server.faults[program] = { damage: { at: 5 << 20, times: 9 } };
    const error = await page.fails('once', wasm);
    assert(error.class === 'IntegrityError' && /model\.pte: chunk 5 /.test(error.message), error.message);
  });
  await test(`${label}: two tabs download a model once`, async () => {
    await clear();
    server.faults[program] = { bytesPerSecond: 12e6 };
    const other = await open({ beside: page });
    const both = await Promise.all([
      page.do('once', wasm),
      new Promise((resolve) => setTimeout(resolve, 300)).then(() => other.do('once', wasm)),
    ]);
    both.forEach(same);
    const ranges = rangesOf(asked(), program);
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

export async function bareProgram({ page, server, asked }, label, { clear }) {
  await test(`${label}: a bare .pte is kept, and loaded anew when it changes`, async () => {
    await clear();
    const bare = { modelUrl: PROGRAM, device: 'wasm' };
    assert((await page.do('once', bare)).info.cache.state === 'stored', 'not kept');
    const again = await page.do('once', bare);
    assert(again.info.cache.state === 'hit', again.info.cache);
    assert(asked().filter((r) => r.method === 'GET').length === 1, 'downloaded twice');
    const exponent = Math.floor(sizeOf(PROGRAM) / 5) | 3; // of a weight that matters
    server.faults[PROGRAM] = { etag: 'newer', damage: { at: exponent, times: 1 } };
    const newer = await page.do('once', bare);
    assert(newer.info.cache.state === 'stored' && newer.checksum !== again.checksum, newer.info.cache);
    const kept = await page.do('once', bare);
    assert(kept.info.cache.state === 'hit' && kept.checksum === newer.checksum, kept.info.cache);
    delete server.faults[PROGRAM];
  });
}

export async function shards({ page, server, asked }, label, { same, clear }) {
  await test(`${label}: a program in three files is one; a download of it that breaks in the second goes on there`, async () => {
    await clear();
    writeParts(path.join(MODELS, '..', FOLDER), PARTS);
    const load = { modelUrl: '/models/parts/', device: 'wasm' };
    const [second, cut] = ['/models/parts/model.1', 3 << 20];
    server.faults[second] = { cutAt: cut };
    assert((await page.fails('once', load)).class === 'DownloadError', 'the second is whole');
    delete server.faults[second];
    asked();
    same(await page.do('once', load));
    const ranges = asked().filter((r) => /model\.\d$/.test(r.path));
    const said = ranges.map((r) => `${r.path.at(-1)} ${r.range ?? 'all'}`).join(', ');
    assert(/^1 bytes=[1-9]\d+-, 2 all$/.test(said), `asked for ${said}`);
    const again = await page.do('once', load);
    same(again);
    assert(
      again.info.cache.state === 'hit' && asked().every((r) => r.path.endsWith('manifest.json')),
      again.info.cache,
    );
    return said;
  });
}

const SPARE = 12e6; // less than the program

/**
 * `limit(bytes)` is what this origin may keep from now on; without an argument, as before. `foretold`: the browser's own
 * estimate says so, which is asked first; else writing finds it out.
 */
export async function fullDisk({ page }, label, { same, clear }, limit, foretold, folder = FOLDER) {
  const how = foretold ? 'as the browser foretells' : 'as writing finds out';
  await test(`${label}: without room, ${how}, the model is loaded all the same, and says so`, async () => {
    await clear();
    await limit(SPARE);
    const debug = foretold ? {} : { instrument: url(page, '/saboteur.js?no-estimate') };
    const loaded = await page.do('once', { modelUrl: folder, device: 'wasm', debug });
    same(loaded);
    const { state, reason } = loaded.info.cache;
    assert(state === 'off' && /no room/.test(reason) && /it needs/.test(reason) === foretold, loaded.info.cache);
    assert(
      (await page.do('cacheList')).list.every((m) => m.bytes < 1e6),
      'a part was left behind',
    );
    await limit();
    return reason;
  });
}

/** What Chromium lets a test say. */
export async function chromiumLimit({ page, server }) {
  const session = await page.raw.context().newCDPSession(page.raw);
  const { origin } = new URL(server.url);
  return (quotaSize) => session.send('Storage.overrideQuotaForOrigin', { origin, ...(quotaSize && { quotaSize }) });
}

/** Firefox has to be started with its quota; the least of an origin is 10 MB. */
export const FIREFOX_QUOTA = { prefs: { 'dom.quotaManager.temporaryStorage.fixedLimit': Math.floor(SPARE / 1024) } };
