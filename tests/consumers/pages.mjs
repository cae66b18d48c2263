// Samples that run in a plain page: each is a module beside the installed package, imported as it stands.
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';
import { assert } from '../browser/runner.mjs';
import { HERE, MODELS, project, ROOT, run, WORK } from './project.mjs';
import { withoutTypes } from './projects.mjs';

const EFFICIENT = '/models/efficientnet-lite0/';
const LLM = '/models/smollm2-135m-instruct/';

/** One browser profile for all of them, so that each model is downloaded once. */
export class SamplePages {
  #bench;
  #server;
  #page;

  constructor(bench) {
    this.#bench = bench;
  }

  async #open() {
    if (!this.#server) {
      this.folder = project('samples');
      this.#server = await serve({
        mounts: {
          '/': this.folder,
          '/models/': MODELS,
          '/m/': path.join(WORK, 'external'),
          '/adapters/pirate/': path.join(WORK, 'adapter'),
          '/node_modules/@mlc-ai/web-xgrammar/': path.join(ROOT, 'node_modules/@mlc-ai/web-xgrammar'),
        },
        isolation: false,
      });
      const browser = await this.#bench.chromium();
      this.#page = await browser.open('about:blank');
      await this.#page.raw.context().grantPermissions(['camera']);
    }
    await this.#page.raw.goto(`${this.#server.url}page.html`);
    return this.#page;
  }

  async close() {
    await this.#page?.close();
    await this.#server?.close();
  }

  /** A fresh page, and the sample as a module in it; `drive(sample, argument)` runs there. @returns its value and what was logged. */
  async #run({ code, name }, drive = () => undefined, argument = null, prepare = () => {}) {
    const page = await this.#open();
    const file = `${name.replace(/\W+/g, '-')}.js`;
    writeFileSync(path.join(this.folder, file), await withoutTypes(code));
    await prepare(page.raw);
    const body = `async ([url, argument]) => ({ value: await (${drive})(await import(url), argument), said: window.said })`;
    // by its text: a page's functions can't cross
    return page.raw.evaluate(`(${body})(${JSON.stringify([`/${file}`, argument])})`);
  }

  async loading(sample) {
    const { said } = await this.#run(sample);
    const [first, ...rest] = said;
    const [reported] = rest.slice(-1);
    assert(typeof first[0] === 'string' && first[1] >= 1, first); // no adapter here, and why
    assert(
      rest.some(([phase]) => phase === 'ready'),
      rest.map(([phase]) => phase),
    );
    assert(/^wasm/.test(reported[0]) && reported[1].length > 0, reported);
    return `${rest.length} lines`;
  }

  async adapter(sample) {
    const folder = path.join(WORK, 'adapter');
    run('python', [path.join(ROOT, 'tests/browser/adapter.py'), path.join(MODELS, 'smollm2-135m-instruct'), folder]);
    const { value } = await this.#run(
      sample,
      (made) => made.talk(document.querySelector('input').files),
      null,
      (raw) => raw.locator('input').setInputFiles(folder),
    );
    assert(value.length > 0, 'no answer');
    return value;
  }

  async sources(sample) {
    run('python', [path.join(ROOT, 'tests/browser/small_models.py'), 'external', path.join(WORK, 'external')]);
    const { value } = await this.#run(
      sample,
      async (made, url) => {
        const { tensor } = await import('executorch-webgpu');
        const sum = async (loading, shape = [1, 3, 224, 224]) => {
          const session = await loading;
          const ones = new Float32Array(shape.reduce((a, b) => a * b)).fill(1);
          const [{ data }] = await session.run([tensor('f32', shape, ones)]);
          await session.dispose();
          return Array.from(data);
        };
        const blob = async (name) => (await fetch(url + name)).blob();
        const root = await navigator.storage.getDirectory();
        const folder = await root.getDirectoryHandle('sample', { create: true });
        for (const name of ['manifest.json', 'model.pte', 'labels.txt', 'preprocess.json']) {
          const response = await fetch(url + name);
          if (!response.ok) continue;
          const file = await folder.getFileHandle(name, { create: true });
          await response.body.pipeTo(await file.createWritable());
        }
        return {
          pictures: [
            await sum(made.fromUrl()),
            await sum(made.fromFolder(document.querySelector('input'))),
            await sum(made.fromFile(new File([await blob('model.pte')], 'model.pte'))),
            await sum(made.fromStream((await blob('model.pte')).stream())),
            await sum(made.fromDisk(folder)),
          ],
          weights: await sum(made.withWeights(), [1, 12]),
        };
      },
      EFFICIENT,
      async (raw) => {
        await raw.locator('input').setInputFiles(path.join(MODELS, 'efficientnet-lite0'));
        await raw.context().route('https://models.example/llama/**', (route) => {
          const file = path.join(MODELS, 'efficientnet-lite0', new URL(route.request().url()).pathname.slice(7));
          return route.fulfill({ path: file, headers: { 'Access-Control-Allow-Origin': '*' } });
        });
      },
    );
    const [first, ...others] = value.pictures;
    assert(first.length === 1000 && first.every(Number.isFinite), first.slice(0, 9));
    assert(
      others.every((numbers) => JSON.stringify(numbers) === JSON.stringify(first)),
      'they differ',
    );
    const expected = JSON.parse(readFileSync(path.join(WORK, 'external/expected.json'), 'utf8'));
    const worst = Math.max(...expected.map((x, i) => Math.abs(x - value.weights[i])));
    assert(value.weights.length === 5 && worst <= 1e-3, `with weights beside it: ${value.weights}, eager ${expected}`);
    return `${1 + others.length} sources, and weights in a .ptd within ${worst.toExponential(1)}`;
  }

  async tensors(sample) {
    const { said } = await this.#run(sample);
    const [[numbers, memory]] = said;
    const sum = numbers.reduce((a, b) => a + b, 0);
    assert(numbers.length === 1000 && Math.abs(sum - 1) < 1e-2, `probabilities add up to ${sum}`);
    assert(memory.weights > 1e6, memory);
  }

  /** The one that needs an adapter. */
  async buffers(sample) {
    const browser = await launch('chromium', () => undefined, {});
    const pages = new SamplePages({ ...this.#bench, chromium: () => browser });
    try {
      const { said } = await pages.#run(sample);
      const [[whole, offset, bytes]] = said;
      assert(whole >= offset + bytes && offset % 256 === 0 && bytes === 4000, said);
    } finally {
      await pages.close();
      await browser.close();
    }
  }

  async talking(sample) {
    const { said } = await this.#run(sample);
    const pieces = said.slice(0, -1).flat();
    assert(pieces.length > 3 && pieces.join('').length > 20, pieces);
    assert(said.at(-1)[0].length > 0, said.at(-1));
    return pieces.join('').slice(0, 60);
  }

  async classifying(sample) {
    const { said } = await this.#run(sample, undefined, null, camera);
    const [[label, score]] = said;
    assert(typeof label === 'string' && score > 0 && score <= 1, said);
    return label;
  }

  async grammar(sample) {
    const { said } = await this.#run(sample);
    const [[first], [second]] = said;
    for (const pet of [first, JSON.parse(second)]) {
      assert(typeof pet.name === 'string' && ['cat', 'dog'].includes(pet.kind), pet);
    }
    return JSON.stringify(first);
  }

  async conversation(sample) {
    const { value, said } = await this.#run(
      sample,
      async ({ keep, goOn }, modelUrl) => {
        const { ExecuTorchRuntime } = await import('executorch-webgpu');
        const messages = [{ role: 'user', content: 'What is the capital of France?' }];
        const first = await ExecuTorchRuntime.loadModel({ modelUrl });
        const { text } = await first.generate(messages);
        await keep(first);
        await first.dispose();
        const again = await ExecuTorchRuntime.loadModel({ modelUrl });
        const question = { role: 'user', content: 'Is it big? Answer yes or no.' };
        const answer = await goOn(again, [...messages, { role: 'assistant', content: text }, question]);
        await again.dispose();
        return { text, answer };
      },
      LLM,
    );
    assert(/Paris/.test(value.text) && value.answer.length > 0, value);
    const [[tokens, words]] = said;
    assert(tokens > 0 && tokens < 25 && words === 'tokens were new', said);
    return `${tokens} tokens were new`;
  }

  /** Without a GPU there is nothing to choose; tests/browser/run.mjs tunes on one. */
  async tuned(sample) {
    const { said } = await this.#run(sample);
    assert(said.length === 1 && said[0].length === 3 && said[0].every((word) => word === undefined), said);
  }

  async cache(sample) {
    const { value, said } = await this.#run(sample, async () => {
      const { ExecuTorchRuntime } = await import('executorch-webgpu');
      return (await ExecuTorchRuntime.cache.list()).length;
    });
    const [bytes, quota, deleted] = said.at(-1);
    assert(said.length > 1, 'nothing was listed: the samples before have kept models');
    assert(
      said.slice(0, -1).every(([url, size, complete]) => /^http/.test(url) && size > 0 && complete),
      said,
    );
    assert(bytes > 1e7 && quota > bytes && deleted === 0 && value === 0, { bytes, quota, deleted, value });
  }

  async recovery(sample) {
    const page = await this.#open();
    await page.evaluate(async (modelUrl) => {
      const { ExecuTorchRuntime } = await import('executorch-webgpu');
      window.session = await ExecuTorchRuntime.loadModel({ modelUrl });
    }, LLM);
    const file = 'recovery.js';
    writeFileSync(path.join(this.folder, file), await withoutTypes(sample.code));
    const asked = page.evaluate(async (url) => {
      const { ask } = await import(url);
      const before = window.session.info;
      const answer = await ask(window.session, 'What is the capital of France?');
      return { answer, reloaded: window.session.info !== before };
    }, `/${file}`);
    await page.raw
      .workers()[0]
      .evaluate(() => self.close())
      .catch(() => undefined);
    const { answer, reloaded } = await asked;
    assert(/Paris/.test(answer) && reloaded, { answer, reloaded });
  }

  async camera(sample) {
    const { value } = await this.#run(
      sample,
      async ({ watch }, modelUrl) => {
        const { ExecuTorchRuntime } = await import('executorch-webgpu');
        const { ImageClassifier } = await import('executorch-webgpu/tasks');
        const session = await ExecuTorchRuntime.loadModel({ modelUrl });
        const labels = [];
        const enough = new Promise((resolve) => {
          const show = (label) => labels.push(label) > 2 && resolve();
          void watch(new ImageClassifier(session), document.querySelector('video'), show).catch(() => undefined);
        });
        await enough;
        await session.dispose();
        return labels;
      },
      EFFICIENT,
    );
    assert(value.length >= 3 && value.every((label) => label.length > 2), value);
    return value.join(', ');
  }
}

/** The page's video shows the camera. */
const camera = (raw) =>
  raw.evaluate(async () => {
    const video = document.querySelector('video');
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: true });
    await video.play();
  });
