// Downloads from hosts that compress, and by visitors who do not wait.
import { setTimeout as sleep } from 'node:timers/promises';
import { assert } from '../runner.mjs';
import { test } from './setting.mjs';

const BLOCK = 4 << 20; // of the cache, in bytes: src/cache/block.ts

/** `s`, `same` and `clear` as of caching.mjs. `wasm`: how the folder is loaded; `program`: the path of its program. */
export async function hosts({ s: { page, server, asked, waitFor }, label, wasm, program, size, same, clear }) {
  await test(`${label}: a host that compresses: the folder's total is known all the same, a bare program's is not`, async () => {
    await clear();
    server.faults[program] = { gzip: true };
    const folder = await page.do('once', wasm);
    same(folder);
    const downloads = folder.progress.filter(({ phase }) => phase === 'download');
    assert(downloads.length > 3 && downloads.every(({ total }) => total > size), downloads.slice(0, 3));
    const last = folder.progress.at(-1);
    assert(last.phase === 'ready' && last.loaded === last.total, last);
    assert(folder.info.cache.state === 'stored', folder.info.cache);
    const { checksum, progress } = await page.do('once', { modelUrl: program, device: 'wasm', cache: 'none' });
    same({ checksum });
    for (const [i, { loaded, total }] of progress.entries()) {
      assert(loaded >= (progress[i - 1]?.loaded ?? 0) && (total === 0 || loaded <= total), progress[i]);
    }
    assert(progress.at(-1).loaded > size && progress.at(-1).loaded === progress.at(-1).total, progress.at(-1));
    delete server.faults[program];
    asked();
    const again = await page.do('once', wasm);
    same(again);
    assert(again.info.cache.state === 'hit' && asked().every((r) => r.path !== program), again.info.cache);
    return `${downloads.length} steps of ${last.total} bytes`;
  });
  await test(`${label}: a page that is reloaded in the middle of a download goes on there`, async () => {
    await clear();
    server.faults[program] = { bytesPerSecond: 30e6, stallAt: 12e6 };
    await page.evaluate(() => (window.loadedBytes = 0));
    // its page goes away
    const gone = page.do('once', wasm).catch(() => undefined);
    for (const end = Date.now() + 30_000; !((await page.evaluate(() => window.loadedBytes)) > 9.5e6); await sleep(30)) {
      assert(Date.now() < end, 'the download does not get on');
    }
    await page.raw.reload();
    await Promise.all([gone, waitFor()]);
    delete server.faults[program];
    asked();
    const loaded = await page.do('once', wasm);
    same(loaded);
    const [request, ...others] = asked().filter((r) => r.path === program);
    const from = Number(/bytes=(\d+)-/.exec(request?.range)?.[1]);
    assert(
      others.length === 0 && from >= BLOCK && from < size,
      `asked for ${request?.range} and ${others.length} more`,
    );
    assert(loaded.info.cache.bytesFromCache >= from, loaded.info.cache);
    return `from byte ${from} of ${size}`;
  });
}
