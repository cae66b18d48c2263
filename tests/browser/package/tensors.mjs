// Pictures, buffers on the GPU and values as inputs.
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { PICTURES } from '../pictures.mjs';
import { assert } from '../runner.mjs';
import { ADAPTERS, FOLDER, test, wasm } from './setting.mjs';

export async function images({ page }, label) {
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
export async function likePillow({ page }, label, onCpu) {
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

export async function buffers({ page }, label) {
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

export async function checking({ page }, label, device) {
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
