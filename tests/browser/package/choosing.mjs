// What a model is loaded from, and onto which device.
import { assert } from '../runner.mjs';
import { FOLDER, LLM, PROGRAM, rangesOf, test, url, wasm } from './setting.mjs';

export async function sources({ page, asked }, label, { same, clear }) {
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

export async function choosing({ page }, label) {
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

export async function variants({ page }, label) {
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

export async function withoutGpu({ page }, label) {
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

export async function onGpu({ page, asked }, label) {
  await test(`${label}: downloaded, kept, loaded from the cache, on both sides of a worker`, async () => {
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
  await test(`${label}: after a lost device the session is reloaded without a download`, async () => {
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
