// Small models, for what would take too long with real ones or needs none: element types, weights in a file of their own,
// the end of the context, counters, several models in one page.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { writeShortModel } from './folders.mjs';
import { assert, unwrap } from './runner.mjs';

const ROOT = path.dirname(path.dirname(import.meta.dirname));
const PROMPT = [11, 12, 13];
/** Of decoder2 in tests/export/make_fixtures.py. */
const CONTEXT = 64;
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** The short model; small_models.py has made the others. `work`: the folder of /data/. */
export function prepareSmallModels(work) {
  execFileSync(path.join(ROOT, 'tools/fixtures.sh'), { stdio: 'inherit' });
  writeShortModel(path.join(ROOT, 'build/fixtures/decoder2.pte'), path.join(work, 'small/short'));
}

/** `s`: a Setting of run.mjs. `device`: on which; `modes`: with a worker and without. */
export async function smallModels({ test, s, label, device, work, classifier, modes = [true, false] }) {
  const expected = (name) => JSON.parse(readFileSync(path.join(work, 'small', name, 'expected.json'), 'utf8'));
  const load = (key, name, options) => s.load(key, { modelUrl: `/data/small/${name}`, device, ...options });
  const call = (what, key, more) => s.call(what, { key, ...more }).then(unwrap);
  const ready = () => s.loaded('short', { modelUrl: '/data/small/short/', device });
  const generate = (prompt, options = {}, key = 'short') =>
    call('generate', key, { prompt: Array.isArray(prompt) ? { tokenIds: prompt } : prompt, options });

  await test(`${label}: tensors of seven element types go in and come out as PyTorch's`, async () => {
    await load('dtypes', 'dtypes/model.pte');
    const { inputs, outputs } = expected('dtypes');
    const found = await call('run', 'dtypes', { inputs });
    const listed = found.map(({ dtype, shape, data }) => [dtype, shape, data]);
    assert(same(listed, outputs), { listed, outputs });
    const refused = await s.call('continueText', { key: 'dtypes', text: 'a' });
    assert(refused.error?.class === 'InvalidArgumentError', refused);
    await call('dispose', 'dtypes');
    return Array.from(new Set([...inputs, ...outputs].map(([dtype]) => dtype))).join(' ');
  });
  await test(`${label}: weights in a .ptd come from the network, then out of the cache`, async () => {
    const [program, weights] = ['external/model.pte', '/data/small/external/weights.ptd'];
    const row = [['f32', [1, 12], Array(12).fill(1)]];
    for (const state of ['stored', 'hit']) {
      const { info } = await load('ptd', program, { dataUrl: weights, cache: 'auto' });
      assert(info.cache.state === state && info.device === device, info.cache);
      const [{ data }] = await call('run', 'ptd', { inputs: row });
      const worst = Math.max(...expected('external').map((x, i) => Math.abs(x - data[i])));
      assert(data.length === 5 && worst < 1e-5, `differ by ${worst}`);
      await call('dispose', 'ptd');
    }
    const without = await s.call('load', { key: 'x', modelUrl: `/data/small/${program}`, device });
    assert(without.error?.class === 'DataMissingError', without);
  });
  await endOfContext({ test, label, ready, generate, call, s });
  await numbersAndSignals({ test, label, ready, load, generate, call, s, device });
  await severalModels({ test, label, load, generate, call, s, device, classifier, modes });
  if (device === 'webgpu') await tiers({ test, label, load, generate, call });
}

async function endOfContext({ test, label, ready, generate, call, s }) {
  await test(`${label}: the end of the context is 'length'; 'sliding' goes on as after the text that is kept`, async () => {
    await ready();
    const prompt = Array.from({ length: 49 }, (_, i) => (37 * i) % 90);
    const whole = await generate(prompt, { logprobs: true });
    // one token more than has a place: it needs none
    const room = CONTEXT - prompt.length + 1;
    assert(whole.finishReason === 'length' && whole.tokenIds.length === room, whole);
    const text = [...prompt, ...whole.tokenIds];
    for (const [overflow, sinks, keep] of [
      ['sliding', 4, CONTEXT / 2 - 4],
      [{ sinks: 2, keep: 9 }, 2, 9],
    ]) {
      const slid = await generate(prompt, { maxTokens: room + 6, overflow, logprobs: true });
      const rest = await generate([...text.slice(0, sinks), ...text.slice(-keep)], { maxTokens: 6, logprobs: true });
      assert(same(slid.tokenIds, [...whole.tokenIds, ...rest.tokenIds]), { slid, rest, overflow });
      const expected = [...whole.logprobs, ...rest.logprobs];
      const worst = Math.max(...slid.logprobs.map((x, i) => Math.abs(x - expected[i])));
      assert(worst < 1e-3 && slid.finishReason === 'length', { slid, rest, overflow });
    }
    const long = { prompt: { tokenIds: Array(CONTEXT + 1).fill(7) } };
    const refused = await s.call('generate', { key: 'short', ...long });
    assert(refused.error?.class === 'LimitExceededError', refused);
    await call('generate', 'short', { ...long, options: { overflow: 'sliding', maxTokens: 1 } });
  });
  await test(`${label}: a text is continued by TextGenerator`, async () => {
    await ready();
    const text = 'A small boat';
    const continued = await call('continueText', 'short', { text });
    const generated = await generate(text, { maxTokens: 6 });
    assert(continued.text === generated.text && continued.text.length > 0, { continued, generated });
    assert(continued.pieces.join('') === continued.text, continued);
  });
}

async function numbersAndSignals({ test, label, ready, load, generate, call, s, device }) {
  await test(`${label}: a token's counters, and the times of its kernels`, async () => {
    await ready();
    await generate(PROMPT, { maxTokens: 4 });
    const counters = await call('counters', 'short');
    const gpu = device === 'webgpu';
    assert(counters.dispatches > 0 && counters.submits === +gpu, counters);
    assert(counters.readBackBytes === (gpu ? 4 : 0), counters);
    assert((await call('profile', 'short')).length === 0, 'times before anybody asked');
    await generate(PROMPT, { maxTokens: 4 });
    const times = await call('profile', 'short');
    const named = times.every(({ kernel, node, us }) => kernel.length > 0 && typeof node === 'string' && us >= 0);
    // where a GPU can't measure there are none
    assert(named && (times.length === counters.dispatches || (gpu && times.length === 0)), times.slice(0, 3));
    return `${counters.dispatches} dispatches, ${times.length} times`;
  });
  await test(`${label}: what waits is dropped by its signal, also a reload`, async () => {
    await ready();
    const { waiting, finishReason, reload, between, again } = await call('abortCalls', 'short');
    assert(
      waiting.every((error) => error === 'CancelledError AbortError'),
      waiting,
    );
    assert(finishReason === 'aborted', finishReason);
    assert(reload === 'CancelledError AbortError' && between === 'DisposedError DisposedError', { reload, between });
    assert(again === 4, `${again} tokens after the reload`);
  });
  await test(`${label}: a program that needs more than memoryCap is refused`, async () => {
    const options = { modelUrl: '/data/small/short/', device, memoryCap: 20_000 };
    const { error } = await s.call('load', { key: 'x', ...options });
    assert(error?.class === 'LimitExceededError' && /20000|20,000|19\.5/.test(error.message), error);
    await load('capped', 'short/', { memoryCap: 50e6 });
    await call('dispose', 'capped');
    return error.message;
  });
}

/** On threads of their own, and on the page's. */
async function severalModels({ test, label, load, generate, call, s, device, classifier, modes }) {
  for (const worker of modes) {
    const where = worker ? 'each in its worker' : "both on the page's thread";
    await test(`${label}: two models at once in one page, ${where}`, async () => {
      const exact = device === 'wasm' ? { activations: 'exact' } : {};
      await s.load('picture', { modelUrl: classifier, device, worker, ...exact });
      await load('words', 'short/', { worker });
      const picture = () => call('classify', 'picture', { batch: 1 });
      const words = (prompt) => generate(prompt, { maxTokens: 30 }, 'words');
      const alone = [await words(PROMPT), await words([50, 3, 77])];
      const [a, first, b, second] = await Promise.all([picture(), words(PROMPT), picture(), words([50, 3, 77])]);
      assert(Math.max(a.worst, b.worst) <= 1e-3 && a.top[0] === 'espresso', { a, b });
      assert(same([first.tokenIds, second.tokenIds], [alone[0].tokenIds, alone[1].tokenIds]), { first, second, alone });
      await call('dispose', 'words');
      assert((await picture()).top[0] === 'espresso', 'the other one went with it');
      await call('dispose', 'picture');
    });
  }
}

async function tiers({ test, label, load, generate, call }) {
  await test(`${label}: debug options hold back features and limits, and the tokens stay`, async () => {
    const ids = [];
    const asked = [];
    for (const debug of [{}, { maxTier: 'f16' }, { maxTier: 'baseline', defaultLimits: true }]) {
      const { info } = await load('tier', 'short/', { worker: false, debug });
      asked.push((await call('devices', 'tier')).at(-1));
      const { f16, subgroups } = info.adapter;
      assert(f16 === asked.at(-1).features.includes('shader-f16'), info.adapter);
      assert(subgroups === asked.at(-1).features.includes('subgroups'), info.adapter);
      ids.push((await generate(PROMPT, { maxTokens: 20 }, 'tier')).tokenIds);
      await call('dispose', 'tier');
    }
    const [all, half, plain] = asked;
    assert(!half.features.includes('subgroups') && !plain.features.includes('shader-f16'), asked);
    assert(Object.keys(all.limits).length > 0 && Object.keys(plain.limits).length === 0, asked);
    assert(all.features.length > plain.features.length, 'this adapter has nothing to hold back');
    assert(same(ids[1], ids[0]) && same(ids[2], ids[0]), ids);
    return `${all.features.join(' ')} and ${Object.keys(all.limits).length} limits at most`;
  });
}
