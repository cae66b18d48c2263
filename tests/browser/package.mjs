// The package in browsers where the model does not matter: loading, the cache, failures, the API on both sides of a
// worker. Prints a line per test; the last line is {"passed": n, "failed": m}.
//
//   node tests/browser/package.mjs [--only REGEX]       ETWGPU_TEST_FULL=1: the cache with a language model, in Firefox, too
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';
import { writeStaleBuilds, writeVariants } from './folders.mjs';
import { hosts } from './hosts.mjs';
import { writeParts } from './parts.mjs';
import { PICTURES } from './pictures.mjs';
import { assert, Runner } from './runner.mjs';
import { countWork } from './work_counts.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.dirname(path.dirname(HERE));
const MODELS = path.join(process.env.ETWGPU_CACHE ?? '', 'models');
const FOLDER = '/models/efficientnet-lite0/';
const LLM = '/models/smollm2-135m-instruct/';
const PROGRAM = `${FOLDER}model.pte`;
// any version of the models does
if (![FOLDER, LLM].every((url) => existsSync(path.join(MODELS, '..', url, 'manifest.json')))) {
  execFileSync(path.join(ROOT, 'tools/models.sh'), ['--demo'], { stdio: 'inherit' });
}
execFileSync(path.join(ROOT, 'tools/fixtures.sh'), { stdio: 'inherit' });
const sizeOf = (url) => statSync(path.join(MODELS, '..', url)).size;

const FULL = process.env.ETWGPU_TEST_FULL === '1';
const runner = new Runner({ seconds: 240 });
const { test } = runner;

const PARTS = path.join(ROOT, 'build/browser-tests/parts');
const STALE = path.join(ROOT, 'build/browser-tests/stale');
const VARIANTS = path.join(ROOT, 'build/browser-tests/variants');
const ADAPTERS = mkdtempSync(path.join(os.tmpdir(), 'adapters-'));
process.on('exit', () => rmSync(ADAPTERS, { recursive: true, force: true }));
const MOUNTS = {
  '/': HERE,
  '/web/': path.join(ROOT, 'web/dist'),
  '/models/': MODELS,
  '/pictures/': PICTURES,
  '/models/parts/': PARTS,
  '/fixtures/': path.join(ROOT, 'build/fixtures'),
  '/adapters/': ADAPTERS,
  '/stale/': STALE,
  '/models/variants/': VARIANTS,
};

/** A browser, a server that can be made to fail, and a page with package.js. `launchOptions` as for `launch`. */
async function withPage(browserName, launchOptions, body) {
  const server = await serve({ mounts: MOUNTS, isolation: false });
  let browser;
  try {
    browser = await launch(browserName, runner.log, launchOptions);
    const waitFor = async (page) => {
      // not by waitForFunction, which a strict policy forbids
      for (const end = Date.now() + 30_000; !(await page.evaluate(() => window.packageReady)); await sleep(20)) {
        assert(Date.now() < end, 'package.js was not loaded');
      }
    };
    const open = async (how, url = server.url) => {
      const page = await browser.open(`${url}package.html`, how);
      await waitFor(page);
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
    const asked = () => server.log.splice(0).filter((r) => r.path.startsWith('/models/'));
    await body({ page, open, server, asked, waitFor: () => waitFor(page) });
  } catch (error) {
    runner.fail(`${browserName} could not be driven`, error.message);
  } finally {
    await browser?.close();
    await server.close();
  }
}

const wasm = { modelUrl: FOLDER, device: 'wasm' };
const rangesOf = (asked, program) => asked.filter((r) => r.path === program).map((r) => r.range ?? 'all');

/** A check that a load's model answers as one that nothing keeps. */
async function sameAs(page, load) {
  const { checksum } = await page.do('once', { ...load, cache: 'none' });
  return (got) => assert(got.checksum === checksum, `checksum ${got.checksum}, ${checksum}`);
}

/** On the folder of any model. */
async function caching({ page, open, server, asked }, label, folder = FOLDER) {
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

async function bareProgram({ page, server, asked }, label, { clear }) {
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

async function shards({ page, server, asked }, label, { same, clear }) {
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
async function fullDisk({ page }, label, { same, clear }, limit, foretold, folder = FOLDER) {
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

const url = (page, file) => new URL(file, page.raw.url()).href;

/** What Chromium lets a test say. */
async function chromiumLimit({ page, server }) {
  const session = await page.raw.context().newCDPSession(page.raw);
  const { origin } = new URL(server.url);
  return (quotaSize) => session.send('Storage.overrideQuotaForOrigin', { origin, ...(quotaSize && { quotaSize }) });
}

/** Firefox has to be started with its quota; the least of an origin is 10 MB. */
const FIREFOX_QUOTA = { prefs: { 'dom.quotaManager.temporaryStorage.fixedLimit': Math.floor(SPARE / 1024) } };

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

async function failingWorkers({ page }, label) {
  const load = { ...wasm, debug: { instrument: url(page, '/saboteur.js') } };
  /** Twenty runs under way, and what `deed` makes of them. */
  const during = async (key, deed) => {
    const calls = Promise.allSettled(Array.from({ length: 20 }, () => page.do('run', { key })));
    await page.do('sabotage', { deed });
    return (await calls).filter((c) => c.status === 'rejected').map((c) => c.reason);
  };
  await test(`${label}: a worker that the browser ends fails all calls, and the session can be reloaded`, async () => {
    await page.do('open', { key: 'dying', ...load });
    const failed = await during('dying', 'close');
    assert(failed.length > 0 && failed.every((e) => e.class === 'WorkerDiedError'), failed);
    assert((await page.fails('run', { key: 'dying' })).class === 'WorkerDiedError', 'a later call');
    assert((await page.do('reload', { key: 'dying' })).cache.state === 'hit', 'downloaded again');
    assert(JSON.stringify(await page.do('run', { key: 'dying' })) === '[1,1000]', 'runs again');
    await page.do('close', { key: 'dying' });
  });
  await test(`${label}: an error that nobody catches in the worker fails all calls`, async () => {
    await page.do('open', { key: 'broken', ...load });
    const failed = await during('broken', 'throw');
    assert(failed.length > 0 && failed.every((e) => e.class === 'WorkerDiedError' && /boom/.test(e.message)), failed);
  });
}

async function choosing({ page }, label) {
  const pretend = (query) => ({ debug: { instrument: url(page, `/saboteur.js?${query}`) } });
  await test(`${label}: auto takes the CPU where the GPU is one in software or cannot run the model, and says why`, async () => {
    const imitated = await page.do('once', { modelUrl: FOLDER });
    assert(imitated.info.device === 'wasm' && /in software/.test(imitated.info.fallbackReason), imitated.info);
    const able = await page.do('infoOf', { modelUrl: FOLDER, ...pretend('hardware') });
    assert(able.device === 'webgpu' && !able.fallbackReason, able);
    assert(able.precision === 'f32' && !/f16/.test(able.path), able); // its manifest lists no other
    const small = 'hardware&largest-buffer=65536';
    const { info, checksum } = await page.do('once', { modelUrl: FOLDER, ...pretend(small) });
    assert(info.device === 'wasm' && checksum === imitated.checksum, info);
    assert(/^the GPU cannot run this model: /.test(info.fallbackReason), info.fallbackReason);
    const refused = await page.fails('once', { modelUrl: FOLDER, device: 'webgpu', ...pretend(small) });
    assert(refused.class === 'GpuError', refused);
    return info.fallbackReason;
  });
}

async function variants({ page }, label) {
  await test(`${label}: of a folder's variants the first that suits is taken, for its limits and its size`, async () => {
    const load = { modelUrl: '/models/variants/' };
    const chosen = async (options) => (await page.do('infoOf', { ...load, ...options })).variant;
    assert((await chosen({ device: 'wasm' })).name === 'large', 'the CPU has no limits');
    const limited = await chosen({ device: 'webgpu' });
    assert(limited.name === 'small' && /large needs maxBufferSize/.test(limited.reason), limited);
    const instrument = url(page, '/saboteur.js?memory=0.01');
    const low = await chosen({ device: 'wasm', debug: { instrument } });
    assert(low.name === 'large' && /smallest, and none suits/.test(low.reason), low);
    const asked = await chosen({ device: 'wasm', variant: 'small' });
    assert(asked.name === 'small' && /asked for/.test(asked.reason), asked);
    return limited.reason;
  });
}

async function starting({ page }, label) {
  await test(`${label}: a worker that never starts is replaced`, async () => {
    const { checksum } = await page.do('once', wasm);
    const late = { workerUrl: url(page, '/silent_worker.js'), debug: { workerPatienceMs: 200 } };
    assert((await page.do('once', { ...wasm, ...late })).checksum === checksum, 'another answer');
  });
  await test(`${label}: scripts and WebAssembly of two builds are told apart`, async () => {
    const error = await page.fails('once', { ...wasm, wasmUrl: '/stale/' });
    assert(error.class === 'BuildMismatchError', error);
    return error.message;
  });
}

const CSP = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'";

/** A host that forbids `eval`, inline scripts and everything of elsewhere, and isolates its pages. */
async function strictPolicy({ open }, label, loads) {
  await test(`${label}: under a strict policy, isolated, with threads, also where these do not start`, async () => {
    const strict = await serve({ mounts: MOUNTS, isolation: true, headers: { 'Content-Security-Policy': CSP } });
    const page = await open({}, strict.url);
    try {
      assert((await page.do('evaluates')) === 'EvalError', 'the policy is not in force');
      const { info } = await page.do('once', { ...wasm, threads: 2 });
      assert(info.path === 'wasm-threads' && info.reasons.length === 1, info);
      for (const load of loads) await page.do('once', load);
      const { checksum } = await page.do('once', { ...wasm, threads: 3 });
      for (const script of ['/silent_thread.js', '/silent_worker.js?threads']) {
        const hung = { workerUrl: url(page, script), debug: { workerPatienceMs: 1000 } };
        assert((await page.do('once', { ...wasm, threads: 3, ...hung })).checksum === checksum, script);
      }
      const violations = await page.do('violations');
      assert(violations.join() === 'script-src', violations); // that of the first line
    } finally {
      await page.close();
      await strict.close();
    }
  });
}

async function images({ page }, label) {
  await test(`${label}: pictures of every kind are classified`, async () => {
    await page.do('open', { key: 'pictures', ...wasm });
    const kinds = ['Blob', 'ImageBitmap', 'ImageData', 'HTMLImageElement', 'HTMLCanvasElement', 'VideoFrame'];
    const scores = [];
    for (const kind of [...kinds, 'HTMLVideoElement']) {
      const first = await page.do('classify', { key: 'pictures', kind, url: '/pictures/coffee.png' });
      assert(first.label === 'espresso' && first.score > 0.3, { kind, ...first });
      scores.push(first.score.toFixed(2));
    }
    const error = await page.fails('classify', { key: 'pictures', kind: 'Blob', url: '/package.js' });
    assert(/source image|decoded/i.test(error.message), error.message);
    await page.do('close', { key: 'pictures' });
    return scores.join(' ');
  });
  await test(`${label}: runs that wait are dropped by their signal`, async () => {
    await page.do('open', { key: 'classifier', ...wasm });
    const results = await page.do('abortRuns', { key: 'classifier' });
    assert(
      results.every((r) => r === 'rejected AbortError'),
      results,
    );
    assert(JSON.stringify(await page.do('run', { key: 'classifier' })) === '[1,1000]', 'runs on');
    assert(/device: theGPUDevice/.test(await page.do('noBuffers', { key: 'classifier' })), 'buffers in a worker');
    await page.do('close', { key: 'classifier' });
  });
}

/** Pillow's pixels, as the model's recipe makes them; a URL. */
function pillowPixels(picture) {
  const code = `
import sys
from PIL import Image
image = Image.open(sys.argv[1]).convert("RGB")
side = int(min(image.size) * 0.875)
left, top = (image.width - side) // 2, (image.height - side) // 2
image = image.crop((left, top, left + side, top + side)).resize((224, 224), Image.Resampling.BICUBIC)
sys.stdout.buffer.write(image.tobytes())`;
  writeFileSync(path.join(ADAPTERS, 'pixels'), execFileSync('python', ['-c', code, path.join(PICTURES, picture)]));
  return '/adapters/pixels';
}

let boxedOnCpu;
/** onCpu: of the five kinds of pictures those of which the CPU reads the pixels; all: the model runs there. */
async function likePillow({ page }, label, onCpu) {
  const onGpu = onCpu < 5;
  await test(`${label}: pictures are what Pillow makes of them${onGpu ? ', on the GPU' : ''}`, async () => {
    const load = { modelUrl: FOLDER, picture: '/pictures/coffee.png', pixels: pillowPixels('coffee.png'), onGpu };
    const { far, counts, best, refused, boxed } = await page.do('likePillow', load);
    for (const [kind, distance] of Object.entries(far)) assert(distance <= (onGpu ? 1e-5 : 1e-6), { kind, distance });
    const kinds = Object.keys(far).length;
    assert(kinds === 5 && counts.getImageData === onCpu, counts);
    assert(!onGpu || counts.copyExternalImageToTexture >= kinds, counts);
    boxedOnCpu ??= boxed;
    const distance = Math.max(...boxed.map((x, i) => Math.abs(x - boxedOnCpu[i])));
    assert(best > 0.3 && /nearest/.test(refused) && distance <= 1e-4, { best, refused, distance });
    return `${JSON.stringify(far)}, in a box ${distance}`;
  });
}

async function talking({ page }, label) {
  await test(`${label}: a chat keeps its messages and what was computed of them`, async () => {
    await page.do('open', { key: 'llm', modelUrl: LLM, device: 'wasm' });
    const chat = await page.do('chat', { key: 'llm' });
    assert(chat.streamed.includes('Paris') && chat.streamed === chat.kept, chat);
    assert(chat.roles === 'system user assistant user assistant' && chat.undone === 'And of Italy?', chat);
    assert(chat.reused > 20, `${chat.reused} tokens reused`);
    await page.do('close', { key: 'llm' });
    return chat.streamed;
  });
  await test(`${label}: chat completions in OpenAI's shape`, async () => {
    await page.do('open', { key: 'llm', modelUrl: LLM, device: 'wasm' });
    const { whole, chunks, tools, aborted } = await page.do('completions', { key: 'llm' });
    const { message, finish_reason } = whole.choices[0];
    assert(whole.object === 'chat.completion' && whole.model === 'any' && finish_reason === 'length', whole);
    assert(message.role === 'assistant' && whole.usage.completion_tokens === 6, whole);
    const text = chunks.map((c) => c.choices[0]?.delta.content ?? '').join('');
    assert(text === message.content, `streamed "${text}", at once "${message.content}"`);
    assert(chunks.at(-2).choices[0].finish_reason === 'length', chunks.at(-2));
    assert(chunks.at(-1).choices.length === 0 && chunks.at(-1).usage.total_tokens > 6, chunks.at(-1));
    assert(/tools/.test(tools) && aborted === 'AbortError', { tools, aborted });
    await page.do('close', { key: 'llm' });
  });
}

async function withoutGpu({ page }, label) {
  await test(`${label}: without WebGPU and without isolation it runs on one thread, and says why for each`, async () => {
    const { info, checksum } = await page.do('once', { modelUrl: LLM });
    assert(info.device === 'wasm' && info.path === 'wasm' && info.threads === 1, info);
    assert(info.reasons.length === 2 && info.fallbackReason === info.reasons[0], info.reasons);
    assert(/WebGPU|adapter/.test(info.reasons[0]) && /isolated/.test(info.reasons[1]), info.reasons);
    assert(checksum.split(',').length === 4, checksum);
    const refused = await page.fails('once', { modelUrl: LLM, device: 'webgpu' });
    assert(refused.class === 'NoAdapterError', refused.message);
    return info.reasons.join('; ');
  });
}

async function quietThread({ open }, label) {
  await test(`${label}: the page's own thread compiles, parses, hashes and tokenises nothing`, async () => {
    const page = await open();
    await page.raw.addInitScript(countWork);
    for (const [device, load] of [
      ['wasm', { modelUrl: LLM }],
      ['webgpu', { modelUrl: FOLDER }],
    ]) {
      await page.raw.reload();
      await page.raw.waitForFunction('window.packageReady', { timeout: 30_000 });
      const info = await page.do('open', { key: 'quiet', ...load, device });
      assert(info.device === device, info);
      if (info.canGenerate) await page.do('chat', { key: 'quiet' });
      const work = await page.raw.evaluate('window.work');
      const { compiled, hashed, gpuObjects, fetched, parsed, decoded } = work;
      assert(compiled + hashed + gpuObjects === 0 && fetched.length === 0, work);
      // what the driver of this test says itself is short
      assert(parsed < 10_000 && decoded === 0, work);
      assert(JSON.stringify(info).length < 100_000, 'the tokenizer was sent to the page');
      await page.do('close', { key: 'quiet' });
    }
    // the counters see what happens here when it does
    await page.do('once', { ...wasm, worker: false });
    const { compiled, hashed } = await page.raw.evaluate('window.work');
    assert(compiled > 0 && hashed > 0, { compiled, hashed });
    await page.close();
  });
}

async function adapting({ page }, label) {
  await test(`${label}: LoRA adapters from a URL and at hand answer as they do natively`, async () => {
    const script = [
      path.join(HERE, 'adapter.py'),
      path.join(MODELS, path.basename(LLM)),
      path.join(ADAPTERS, 'random'),
    ];
    const native = JSON.parse(execFileSync('python', script, { encoding: 'utf8' }));
    const load = { modelUrl: LLM, device: 'wasm', activations: 'exact', adapter: '/adapters/random/' };
    const { url, plain, hand, refused, inspected } = await page.do('adapted', load);
    const [adapted, without] = [native.adapted, native.plain].map(String);
    assert(adapted !== without, 'the adapter does nothing');
    assert(String(url) === adapted && String(hand) === adapted, `${url} and ${hand}, natively ${adapted}`);
    assert(String(plain) === without, `${plain}, natively ${without}`);
    assert(refused && inspected.length === 2 && inspected[1].name === 'mine', inspected);
  });
}

const REFUSALS = {
  device: /with the GPU buffers of this call/,
  destroyed: /with the GPU buffers of this call/,
  mapped: /with the GPU buffers of this call/,
  usage: /input 0 is in no GPUBuffer with the usage STORAGE/,
  size: /input 0 needs 602112 bytes .* has 602096/,
  offset: /input 0: its offset 4/,
  dtype: /must be f32 of rank 4 on the GPU, not f16/,
  shape: /\[1, 3, 112, 448\]/,
  output: /output 0 needs 4000 bytes .* has 16/,
  same: /output 0: its buffer serves an input/,
  count: /places for 2 outputs, but there are 1/,
};

async function buffers({ page }, label) {
  await test(`${label}: buffers of the page in and out, the same bits without a copy`, async () => {
    const { different, counts, counters, refused } = await page.do('buffers', { url: FOLDER });
    assert(different.length === 0, different);
    const { submit, ...others } = counts;
    assert(submit === 1 && Object.values(others).every((n) => n === 0), counts);
    assert(counters.readBackBytes === 0 && counters.uploadBytes === 0 && counters.dispatches > 30, counters);
    for (const [name, message] of Object.entries(REFUSALS))
      assert(refused[name].startsWith('invalid_argument: ') && message.test(refused[name]), refused[name]);
    return `${counters.dispatches} dispatches`;
  });
}

async function checking({ page }, label, device) {
  await test(`${label} ${device}: debug.checkValues names the operator that divides by zero`, async () => {
    const load = { modelUrl: '/fixtures/ratio.pte', device };
    const y = [1, 2, 0, 4];
    await page.do('divide', { ...load, y }); // says nothing
    const checked = { ...load, debug: { checkValues: true } };
    const quotients = await page.do('divide', { ...checked, y: [1, 2, 1, 4] });
    assert(quotients === '1,1,3,1', quotients);
    const error = await page.fails('divide', { ...checked, y });
    assert(error.class === 'NonFiniteError' && error.code === 'non_finite', error);
    assert(
      /^method forward: etwgpu\.pointwise \(\w+\) .* f32 \[2, 2\] inf at \[1, 0\]; inputs: /.test(error.message),
      error,
    );
    return error.message;
  });
}

async function firefox({ page, asked }) {
  await test('firefox webgpu: downloaded, kept, loaded from the cache, on both sides of a worker', async () => {
    const gpu = { modelUrl: FOLDER, device: 'webgpu' };
    const first = await page.do('once', gpu);
    assert(first.info.cache.state === 'stored' && first.info.path === 'webgpu-baseline', first.info);
    asked();
    const again = await page.do('once', gpu);
    assert(again.info.cache.state === 'hit' && again.checksum === first.checksum, again.info.cache);
    assert(rangesOf(asked(), PROGRAM).length === 0, 'downloaded again');
    const here = await page.do('ownDevice', { url: FOLDER });
    assert(here.refused, 'a device was sent to a worker');
    assert(here.info.device === 'webgpu' && here.checksum === first.checksum, here.info);
  });
  await test('firefox webgpu: after a lost device the session is reloaded without a download', async () => {
    await page.do('open', { key: 'lost', modelUrl: FOLDER, device: 'webgpu' });
    await page.do('loseDevice', { key: 'lost' });
    const error = await page.fails('run', { key: 'lost' });
    assert(error.class === 'DeviceLostError', error.message);
    asked();
    assert((await page.do('reload', { key: 'lost' })).device === 'webgpu', 'on another device');
    assert(rangesOf(asked(), PROGRAM).length === 0, 'downloaded again');
    assert(JSON.stringify(await page.do('run', { key: 'lost' })) === '[1,1000]', 'runs again');
    await page.do('close', { key: 'lost' });
  });
}

writeStaleBuilds(path.join(ROOT, 'web/dist/wasm'), STALE);
writeVariants(path.join(MODELS, '..', FOLDER), VARIANTS);
await (async () => {
  await withPage('chromium', {}, async (s) => {
    const helpers = await caching(s, 'chromium');
    await bareProgram(s, 'chromium', helpers);
    await hosts({ test, s, label: 'chromium', wasm, program: PROGRAM, size: sizeOf(PROGRAM), ...helpers });
    await fullDisk(s, 'chromium', helpers, await chromiumLimit(s), false); // its estimate does not tell
    await shards(s, 'chromium', helpers);
    await sources(s, 'chromium', helpers);
    await failingWorkers(s, 'chromium');
    await choosing(s, 'chromium');
    await variants(s, 'chromium');
    await starting(s, 'chromium');
    await strictPolicy(s, 'chromium', [{ modelUrl: LLM, device: 'wasm' }]);
    await images(s, 'chromium');
    await likePillow(s, 'chromium', 5);
    await talking(s, 'chromium');
    await adapting(s, 'chromium');
    await checking(s, 'chromium', 'wasm');
    await quietThread(s, 'chromium');
  });
  await withPage('firefox', {}, async (s) => {
    await firefox(s);
    await buffers(s, 'firefox webgpu');
    await likePillow(s, 'firefox webgpu', 0);
    await checking(s, 'firefox', 'webgpu');
    await failingWorkers(s, 'firefox');
    await strictPolicy(s, 'firefox', [{ modelUrl: FOLDER, device: 'webgpu' }]);
  });
  if (!FULL) return;
  await withPage('firefox', FIREFOX_QUOTA, async (s) => {
    const clear = () => s.page.do('cacheClear');
    const helpers = { same: await sameAs(s.page, wasm), clear };
    for (const foretold of [true, false]) await fullDisk(s, 'firefox', helpers, () => undefined, foretold);
    helpers.same = await sameAs(s.page, { ...wasm, modelUrl: LLM });
    await fullDisk(s, 'firefox, SmolLM2', helpers, () => undefined, false, LLM);
  });
  await withPage('chromium', {}, async (s) => {
    await buffers(s, 'chromium webgpu');
    await likePillow(s, 'chromium webgpu', 0);
  });
  await withPage('chromium', { gpu: false }, (s) => withoutGpu(s, 'chromium'));
  await withPage('firefox', { prefs: { 'dom.webgpu.enabled': false } }, (s) => withoutGpu(s, 'firefox'));
  for (const browserName of ['chromium', 'firefox']) {
    await withPage(browserName, {}, async (s) => {
      const helpers = await caching(s, `${browserName}, SmolLM2`, LLM);
      if (browserName === 'chromium') {
        await fullDisk(s, 'chromium, SmolLM2', helpers, await chromiumLimit(s), false, LLM);
      } else {
        await bareProgram(s, 'firefox', helpers);
        await shards(s, 'firefox', { ...helpers, same: await sameAs(s.page, wasm) });
        await talking(s, 'firefox');
        await sources(s, 'firefox', { ...helpers, same: await sameAs(s.page, wasm) });
      }
    });
  }
})();
runner.end();
