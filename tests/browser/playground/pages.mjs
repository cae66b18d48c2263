// Pictures, models, device, and what happens when something breaks.
import { mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { modelsIndex } from '../../../tools/models_index.mjs';
import { modelsFolder } from '../../../tools/playground.mjs';
import { assert, gpuProcess } from '../runner.mjs';
import { BASE, noShift, QUESTION, serve, Visitor } from './visitor.mjs';

/** The software GPU takes half a minute for the kernels of one model. */
const FULL = process.env.ETWGPU_TEST_FULL === '1';

/** A white picture with a red disc, as the bytes of a PNG. */
async function drawn(visitor) {
  const bytes = await visitor.raw.evaluate(async () => {
    const canvas = new OffscreenCanvas(300, 300);
    const context = canvas.getContext('2d');
    context.fillStyle = '#fff';
    context.fillRect(0, 0, 300, 300);
    context.fillStyle = '#d50000';
    context.beginPath();
    context.arc(150, 150, 100, 0, 7);
    context.fill();
    return Array.from(new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer()));
  });
  return { name: 'ball.png', mimeType: 'image/png', buffer: Buffer.from(bytes) };
}

async function pictures(browser, server, test) {
  await test('pictures: a file is named; what is no picture is refused in words', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/pictures' });
    await visitor.raw.setInputFiles('#file', await drawn(visitor));
    await visitor.raw.waitForSelector('.results .value');
    const values = await visitor.raw.locator('.results .value').allInnerTexts();
    const shares = values.map((v) => parseFloat(v));
    assert(shares.length === 5 && shares.every((v, i) => i === 0 || v <= shares[i - 1]), `shares ${values}`);
    await visitor.raw.setInputFiles('#file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('hello') });
    await visitor.raw.waitForSelector('.problem:has-text("no picture that the browser can read")');
    await visitor.raw.setViewportSize({ width: 390, height: 844 });
    const { y, height } = await visitor.raw.locator('.problem').boundingBox();
    assert(y > 0 && y + height < 844, 'on a phone the problem is out of sight');
    await visitor.axeInBoth('a file that is no picture');
    await visitor.raw.setViewportSize({ width: 1280, height: 800 });
    await noShift(visitor, 'the picture page');
    await visitor.close();
  });
  await test('pictures: a sample, a dropped and a pasted one; without room for the model it says so', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/pictures' });
    const session = await visitor.raw.context().newCDPSession(visitor.raw);
    const { origin } = new URL(server.url);
    await session.send('Storage.overrideQuotaForOrigin', { origin, quotaSize: 15e6 });
    await visitor.click('button', 'A cup of coffee');
    const best = visitor.raw.locator('.results .name').first();
    await best.getByText('espresso').waitFor();
    await visitor.raw.getByText('could not be kept on this device').waitFor();
    const give = (selector, kind, file) =>
      visitor.raw.evaluate(
        async ([where, type, name]) => {
          const transfer = new DataTransfer();
          const blob = await (await fetch(name)).blob();
          transfer.items.add(new File([blob], name, { type: blob.type }));
          const data = type === 'paste' ? { clipboardData: transfer } : { dataTransfer: transfer };
          const Event = type === 'paste' ? ClipboardEvent : DragEvent;
          const target = where ? document.querySelector(where) : window;
          target.dispatchEvent(new Event(type, { bubbles: true, cancelable: true, ...data }));
        },
        [selector, kind, `./samples/${file}`],
      );
    await give('.drop', 'drop', 'camera.png');
    await best.getByText('tripod').waitFor();
    await give('', 'paste', 'chelsea.png');
    await best.getByText(/cat|tabby|lynx/).waitFor();
    await visitor.close();
  });
  if (FULL) {
    await test('pictures: on the GPU; when that goes away, it says so, and goes on after another load', async () => {
      const visitor = await Visitor.open(browser, server, { query: '?device=webgpu', hash: '#/pictures' });
      await visitor.click('button', 'A cup of coffee');
      const best = visitor.raw.locator('.results .name').first();
      await best.getByText('espresso').waitFor();
      await visitor.raw.getByText(/a picture on the GPU/).waitFor();
      process.kill(await gpuProcess(visitor.raw), 'SIGKILL');
      await visitor.click('button', 'A man with a camera');
      await visitor.raw.getByText('The GPU was reset or went to sleep.').waitFor();
      await visitor.click('button', 'Load again');
      await best.getByText('tripod').waitFor();
      await visitor.close();
    });
  }
  await test('pictures: the camera is named frame by frame, and let go', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/pictures' });
    await visitor.raw.context().grantPermissions(['camera']);
    await visitor.click('button', 'Use the camera');
    await visitor.raw.waitForSelector('.results .value');
    await visitor.click('button', 'Stop the camera');
    await visitor.raw.waitForSelector('.drop video', { state: 'detached' });
    await visitor.close();
  });
}

async function models(browser, server, test) {
  await test('models: each that is there is listed once, and none that an export has left half-made', () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'etwgpu-models-'));
    try {
      const whole = path.join(modelsFolder, 'efficientnet-lite0');
      for (const name of ['a', 'b.partial', 'c.partial.123']) symlinkSync(whole, path.join(folder, name));
      const urls = modelsIndex(folder).map(({ url }) => url);
      assert(JSON.stringify(urls) === '["./models/a/"]', urls);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
  await test('models: downloaded, kept, deleted', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/models' });
    const row = visitor.raw.locator('.model-row', { hasText: 'EfficientNet-Lite0' });
    await row.getByText('not downloaded').waitFor();
    await row.getByRole('button', { name: 'Download' }).click();
    await row.getByText(/on this device, 19 MB/).waitFor();
    await visitor.raw.getByText(/19 MB of models are on this device/).waitFor();
    await row.getByRole('button', { name: /^Delete/ }).click();
    await row.getByRole('button', { name: /^Really delete/ }).click();
    await row.getByText('not downloaded').waitFor();
    await visitor.close();
  });
  await test('models: an own folder is imported, used after a reload, and deleted', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/models' });
    await visitor.raw.setInputFiles('#folder', path.join(modelsFolder, 'efficientnet-lite0'));
    const row = visitor.raw.locator('.model-row', { hasText: 'imported by you' });
    await row.waitFor();
    await visitor.raw.reload();
    await row.getByRole('link', { name: 'Try a picture' }).click();
    server.requests.length = 0;
    await visitor.raw.setInputFiles('#file', await drawn(visitor));
    await visitor.raw.waitForSelector('.results .value');
    const asked = server.requests.filter((p) => p.includes('/models/efficientnet'));
    assert(asked.length === 0, `the server was asked for ${asked}`);
    await visitor.raw.evaluate(() => (location.hash = '#/models'));
    await row.getByRole('button', { name: /^Delete/ }).click();
    await row.getByRole('button', { name: /^Really delete/ }).click();
    await row.waitFor({ state: 'detached' });
    await visitor.close();
  });
}

async function devicePage(browser, server, test) {
  await test('device: facts in words, a benchmark to share', async () => {
    const visitor = await Visitor.open(browser, server, { hash: '#/device' });
    await visitor.raw.waitForSelector('.summary h2');
    const text = await visitor.text('main');
    for (const words of [
      'Half precision',
      'Several processor cores',
      'Kept by this page',
      'Does it compute correctly?',
    ]) {
      assert(text.includes(words), `"${words}" is missing`);
    }
    const button = visitor.raw.getByRole('button', { name: 'Save as a file' });
    const [download] = await Promise.all([visitor.raw.waitForEvent('download'), button.click()]);
    const saved = JSON.parse(readFileSync(await download.path(), 'utf8'));
    assert(saved.browser && saved.tier && saved.webgpu.limits && saved.wasm.threads === 1, JSON.stringify(saved));
    const benchmark = visitor.raw.getByRole('region', { name: 'Benchmark' });
    await benchmark.getByLabel('Model').selectOption({ label: 'EfficientNet-Lite0' });
    await benchmark.getByRole('button', { name: 'Measure' }).click();
    await benchmark.locator('.numbers').waitFor();
    const report = JSON.parse(await benchmark.locator('.json').textContent());
    assert(
      report.device === 'wasm' && report.picture.ms > 0 && report.picture.all.length === 7,
      JSON.stringify(report),
    );
    await visitor.axeInBoth('a measured device');
    await visitor.close();
  });
  await test('device: the self-test compares two ways of computing', async () => {
    // the CPU's two: on the software GPU it takes a minute
    const visitor = await Visitor.open(browser, server, { hash: '#/device', query: '', gpu: false });
    const selfTest = visitor.raw.getByRole('region', { name: 'Self-test' });
    await selfTest.getByRole('button').click();
    await selfTest.locator('.test-row', { hasText: 'computing on both…' }).first().waitFor();
    const done = selfTest.locator('.test-row .good');
    await done.nth(1).waitFor();
    await selfTest.getByText(/Downloads 118 MB/).waitFor({ state: 'detached' });
    const words = (await done.allInnerTexts()).join('\n');
    assert(/the same result, “.+”\n?.*largest difference/.test(words), words);
    assert(/“.+”\n?.*(12 equal tokens|token (7|8|9|10|11|12) differs)/.test(words), words);
    await visitor.close();
    return words.replaceAll('\n', '; ');
  });
}

/** A module for the worker that fails when it is told to, and tells what its model is asked. */
const BREAKER = `new BroadcastChannel('break').onmessage = () => { throw new Error('broken on purpose'); };
const heard = new BroadcastChannel('heard');
addEventListener('message', ({ data }) => data.name === 'generate' && heard.postMessage(data.params));`;

/** Changes settings in the sheet: texts by the ends of their fields' ids. */
async function settings(visitor, values) {
  await visitor.click('button', 'How it answers: settings');
  for (const [name, value] of Object.entries(values)) await visitor.raw.locator(`#setting-${name}`).fill(value);
  await visitor.raw.keyboard.press('Tab');
  await visitor.raw.keyboard.press('Escape');
  await visitor.raw.waitForSelector('dialog[open]', { state: 'detached' });
}

async function kept(browser, server, test) {
  await test('settings: what is typed or was kept stays within what a model takes', async () => {
    const visitor = await Visitor.open(browser, server);
    const shown = () =>
      visitor.raw
        .locator('.setting input[type=number]')
        .evaluateAll((all) => all.map(({ id, value }) => `${id.replace('setting-', '')} ${value}`).join(', '));
    const sheet = () => visitor.click('button', 'How it answers: settings');
    await settings(visitor, {
      temperature: '',
      maxTokens: '17.7',
      topP: '',
      topK: '7.7',
      minP: '-1',
      repetitionPenalty: '1.25',
      seed: '1e300',
    });
    await sheet();
    const bounded = 'temperature 0, maxTokens 18, topP 0.9, topK 8, minP 0, repetitionPenalty 1.25, seed 4294967295';
    assert((await shown()) === bounded, await shown());
    await visitor.raw.evaluate(() => {
      const odd = { temperature: 'hot', maxTokens: 7.7, topP: 9, topK: 2.5, minP: null, seed: -1, gone: 1 };
      localStorage.setItem('sampling', JSON.stringify(odd));
    });
    await visitor.raw.reload();
    await sheet();
    const defaults = 'temperature 0, maxTokens 16, topP 1, topK 3, minP 0, repetitionPenalty 1.1, seed 0';
    assert((await shown()) === defaults, await shown());
    const names = await visitor.raw.evaluate(() => Object.keys(JSON.parse(localStorage.getItem('sampling'))));
    assert(!names.includes('gone'), names); // the package refuses options that it does not know
    await visitor.close();
  });
}

async function breakdown(browser, test) {
  await test('a model gets what the settings say; one that breaks down is loaded again, and the conversation goes on', async () => {
    const server = await serve({
      intercept: (request, response, headers) => {
        if (request.url !== `${BASE}breaker.js`) return false;
        response.writeHead(200, { ...headers, 'Content-Type': 'text/javascript' }).end(BREAKER);
        return true;
      },
    });
    const visitor = await Visitor.open(browser, server, { query: '?device=wasm&instrument=./breaker.js' });
    try {
      await visitor.raw.evaluate(() => {
        window.heard = [];
        window.hearing = new BroadcastChannel('heard');
        window.hearing.onmessage = ({ data }) => window.heard.push(data);
      });
      const story = 'Tell me a very long story about a whale.';
      await settings(visitor, {
        system: 'You like whales.',
        temperature: '0.3',
        topK: '8.7',
        seed: '4.2',
        maxTokens: '399.9',
      });
      await visitor.raw.fill('#prompt', story);
      await visitor.raw.keyboard.press('Enter');
      await visitor.until(() => document.querySelector('.streaming')?.textContent.length > 10);
      const [{ prompt, options }] = await visitor.raw.evaluate(() => window.heard);
      const said = prompt.map(({ role, content }) => `${role}: ${content}`).join('; ');
      assert(said === `system: You like whales.; user: ${story}`, said);
      const { temperature, topK, seed, maxTokens } = options;
      assert(`${[temperature, topK, seed, maxTokens]}` === '0.3,9,4,400', options);
      await visitor.raw.evaluate(() => new BroadcastChannel('break').postMessage(''));
      await visitor.raw.waitForSelector('.model-strip .problem');
      assert(/interrupted/.test(await visitor.text('.note')), 'the answer does not say that it was interrupted');
      await visitor.axeInBoth('a model that broke down');
      await settings(visitor, { system: '', maxTokens: '16' });
      await visitor.click('button', 'Load again');
      await visitor.raw.waitForSelector('.model-strip', { state: 'detached' });
      await visitor.raw.fill('#prompt', QUESTION);
      await visitor.raw.keyboard.press('Enter');
      await visitor.raw.waitForSelector('.stats:has-text("tokens/s · ")');
      await visitor.answered();
      const answers = await visitor.answers();
      assert(answers.length === 2 && answers[1].length > 0, `answers ${JSON.stringify(answers)}`);
      const again = (await visitor.raw.evaluate(() => window.heard)).at(-1);
      assert(again.prompt[0].role === 'user' && again.prompt.length === 3, again.prompt);
      await visitor.axeInBoth('a conversation with a loaded model');
      await visitor.raw.fill('#prompt', 'whale '.repeat(3000));
      await visitor.raw.keyboard.press('Enter');
      await visitor.raw.getByText('This does not fit into what the model can hold.').waitFor();
      const places = [visitor.raw.locator('.log .problem'), visitor.raw.getByRole('button', { name: 'Answer this' })];
      const [box, button] = await Promise.all(places.map((place) => place.boundingBox()));
      assert(button.y - box.y - box.height >= 8, { box, button });
    } finally {
      await visitor.close();
      await server.close();
    }
  });
  await test('no model, no GPU, no isolation: each is said, with what to do', async () => {
    const server = await serve({
      isolation: false,
      intercept: (request, response, headers) => {
        if (!/\.pte$/.test(request.url)) return false;
        response.writeHead(404, headers).end();
        return true;
      },
    });
    const page = await browser.open('about:blank');
    const visitor = new Visitor(page, server.url);
    try {
      await page.raw.addInitScript(() => Object.defineProperty(navigator, 'gpu', { value: undefined }));
      await page.raw.addInitScript(() => Object.defineProperty(navigator, 'serviceWorker', { value: undefined }));
      await page.raw.goto(server.url);
      const card = page.raw.locator('.model-card');
      await card.getByText(/The CPU does the work, since .* \(one thread: this page is not isolated/).waitFor();
      await card.getByRole('button', { name: /Download and start/ }).click();
      await card.getByText('The server does not have this model’s files. Choose another model').waitFor();
      await card.getByRole('button', { name: 'Load again' }).waitFor();
      await visitor.axeInBoth('a failed download');
    } finally {
      await page.close();
      await server.close();
    }
  });
}

export async function pageTests(browser, server, test) {
  await pictures(browser, server, test);
  await models(browser, server, test);
  await devicePage(browser, server, test);
  await kept(browser, server, test);
  await breakdown(browser, test);
}
