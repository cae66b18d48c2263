// The page of package.mjs: the built package as a user would import it.
import * as et from '/web/index.js';
import { openai } from '/web/openai.js';
import { ImageClassifier } from '/web/tasks.js';

const { ExecuTorchRuntime, tensor } = et;
// position-dependent, and the same in every load
const picture = Float32Array.from({ length: 3 * 224 * 224 }, (_, i) => Math.sin(i / 97));

/** Sums up what a model answers. */
async function checksumOf(session) {
  if (session.info.canGenerate) return String((await session.generate('Once upon', { maxTokens: 4 })).tokenIds);
  const [output] = await session.run([tensor('f32', [1, 3, 224, 224], picture)]);
  return output.data.reduce((sum, x, i) => sum + x * ((i % 89) + 1), 0).toFixed(4);
}

/** Loads, runs once, disposes; what was said on the way. */
async function once(options) {
  const progress = [];
  const onProgress = (p) => {
    progress.push(p);
    window.loadedBytes = p.loaded;
  };
  const session = await ExecuTorchRuntime.loadModel({ ...options, onProgress });
  try {
    return { info: session.info, progress, checksum: await checksumOf(session) };
  } finally {
    await session.dispose();
  }
}

/** What a load says; nothing is run. */
async function infoOf(options) {
  const session = await ExecuTorchRuntime.loadModel(options);
  await session.dispose();
  return session.info;
}

async function fileFrom(url, name = url.slice(url.lastIndexOf('/') + 1), relative = '') {
  const file = new File([await (await fetch(url)).blob()], name);
  if (relative) Object.defineProperty(file, 'webkitRelativePath', { value: relative });
  return file;
}

async function opfsCopy(folder) {
  const root = await navigator.storage.getDirectory();
  const directory = await root.getDirectoryHandle('picked', { create: true });
  const { files } = await (await fetch(`${folder}manifest.json`)).json();
  for (const name of ['manifest.json', ...files.map((f) => f.path)]) {
    const writable = await (await directory.getFileHandle(name, { create: true })).createWritable();
    await writable.write(await fileFrom(folder + name));
    await writable.close();
  }
  return directory;
}

const models = {
  blob: async (folder) => (await fetch(`${folder}model.pte`)).blob(),
  file: (folder) => fileFrom(`${folder}model.pte`),
  stream: async (folder) => (await fetch(`${folder}model.pte`)).body,
  fileHandle: async (folder) => (await opfsCopy(folder)).getFileHandle('model.pte'),
  directoryHandle: (folder) => opfsCopy(folder),
  files: async (folder) => {
    const { files } = await (await fetch(`${folder}manifest.json`)).json();
    const names = files.map((f) => f.path).concat('manifest.json');
    return Promise.all(names.map((n) => fileFrom(folder + n, n, `my models/efficient/${n}`)));
  },
  programAmongFiles: (folder) => Promise.all(['labels.txt', 'model.pte'].map((n) => fileFrom(folder + n))),
  nothing: () => ({}),
  text: () => [new File(['a'], 'a.txt'), new File(['b'], 'b.txt')],
};

const sessions = {};
const gone = [];
const violations = [];
addEventListener('securitypolicyviolation', ({ effectiveDirective }) => violations.push(effectiveDirective));

/** Counts the calls of these methods while `body` runs. */
async function counting(methods, body) {
  const counts = {};
  const originals = methods.map(([object, name]) => {
    const original = object[name];
    counts[name] = 0;
    object[name] = function (...args) {
      counts[name]++;
      return original.apply(this, args);
    };
    return () => (object[name] = original);
  });
  try {
    return { counts, value: await body() };
  } finally {
    for (const restore of originals) restore();
  }
}

/** The numbers of a GpuTensor of f32. */
async function readBack(device, { buffer, offset, size }) {
  const { COPY_DST, MAP_READ } = GPUBufferUsage;
  const staging = device.createBuffer({ size, usage: COPY_DST | MAP_READ });
  const encoder = device.createCommandEncoder();
  encoder.copyBufferToBuffer(buffer, offset, staging, 0, size);
  device.queue.submit([encoder.finish()]);
  await staging.mapAsync(GPUMapMode.READ);
  const numbers = Array.from(new Float32Array(staging.getMappedRange()));
  staging.destroy();
  return numbers;
}

/** What a model on `device` makes of buffers that cannot serve: a code and a message for each. */
async function refusals(session, device, input) {
  const { STORAGE, COPY_DST } = GPUBufferUsage;
  const { size } = input.buffer;
  const other = await (await navigator.gpu.requestAdapter()).requestDevice();
  const make = (more) => device.createBuffer({ size, usage: STORAGE | COPY_DST, ...more });
  const destroyed = make();
  destroyed.destroy();
  const calls = {
    device: [{ ...input, buffer: other.createBuffer({ size, usage: STORAGE }) }],
    destroyed: [{ ...input, buffer: destroyed }],
    mapped: [{ ...input, buffer: make({ mappedAtCreation: true }) }],
    usage: [{ ...input, buffer: make({ usage: COPY_DST }) }],
    size: [{ ...input, buffer: make({ size: size - 16 }) }],
    offset: [{ ...input, offset: 4 }],
    dtype: [{ ...input, dtype: 'f16' }],
    shape: [{ ...input, shape: [1, 3, 112, 448] }],
    output: [input, { outputs: [make({ size: 16 })] }],
    same: [input, { outputs: [input.buffer] }],
    count: [input, { outputs: ['gpu', 'gpu'] }],
  };
  const refused = {};
  for (const [name, [tensor, options]] of Object.entries(calls)) {
    const error = await session.run([tensor], options).catch((e) => e);
    refused[name] = `${error.code}: ${error.message}`;
  }
  other.destroy();
  return refused;
}

async function pictureOf(kind, url) {
  const blob = await (await fetch(url)).blob();
  const bitmap = await createImageBitmap(blob);
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
  canvas.getContext('2d').drawImage(bitmap, 0, 0);
  switch (kind) {
    case 'Blob':
      return blob;
    case 'ImageBitmap':
      return bitmap;
    case 'HTMLCanvasElement':
      return canvas;
    case 'ImageData':
      return canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    case 'VideoFrame': {
      const frame = new VideoFrame(canvas, { timestamp: 0 });
      gone.push(() => frame.close());
      return frame;
    }
    case 'HTMLVideoElement': {
      const video = Object.assign(document.createElement('video'), { muted: true, srcObject: canvas.captureStream() });
      const first = new Promise((resolve) => video.requestVideoFrameCallback(resolve));
      await video.play();
      const draw = setInterval(() => canvas.getContext('2d').drawImage(bitmap, 0, 0), 30);
      await first;
      clearInterval(draw);
      return video;
    }
    default:
      return Object.assign(new Image(), { src: url })
        .decode()
        .then(() => Object.assign(new Image(), { src: url }));
  }
}

window.tests = {
  async attempt(what, argument) {
    try {
      return { ok: await this[what](argument) };
    } catch (error) {
      const known = Object.keys(et).find((name) => et[name] === error?.constructor);
      return { error: { class: known ?? error?.name, code: error?.code, message: String(error?.message ?? error) } };
    }
  },

  async once({ offline, ...options }) {
    if (!offline) return once(options);
    // needs `worker: false`: this navigator is the page's
    Object.defineProperty(navigator, 'onLine', { configurable: true, get: () => false });
    try {
      return await once(options);
    } finally {
      delete navigator.onLine;
    }
  },
  async fromHand({ kind, folder }) {
    return once({ model: await models[kind](folder), device: 'wasm' });
  },

  infoOf,
  async open({ key, ...options }) {
    sessions[key] = await ExecuTorchRuntime.loadModel(options);
    return sessions[key].info;
  },
  close: ({ key }) => sessions[key].dispose(),
  reload: async ({ key }) => {
    await sessions[key].reload();
    return sessions[key].info;
  },
  run: async ({ key, shape = [1, 3, 224, 224] }) => {
    const [output] = await sessions[key].run([tensor('f32', shape, picture)]);
    return output.shape;
  },
  loseDevice: ({ key }) => sessions[key].loseDevice(),
  /** What all workers with saboteur.js do to themselves. */
  sabotage({ deed }) {
    const channel = new BroadcastChannel('saboteur');
    channel.postMessage(deed);
    channel.close();
  },
  /** What the page's security policy makes of `eval`; later, since what a test's driver itself calls may evaluate. */
  evaluates: () =>
    new Promise((resolve) =>
      setTimeout(() => {
        try {
          resolve((0, eval)('"evaluated"'));
        } catch (error) {
          resolve(error.name);
        }
      }),
    ),
  /** What the policy has refused. */
  violations: () => violations,
  /** A device of the page's own. */
  async ownDevice({ url }) {
    const adapter = await navigator.gpu.requestAdapter();
    const device = await adapter.requestDevice();
    const wrong = await ExecuTorchRuntime.loadModel({ modelUrl: url, device }).catch((error) => error);
    const result = await once({ modelUrl: url, device, worker: false });
    const data = device.createBuffer({ size: 4, usage: GPUBufferUsage.COPY_DST }); // still the page's
    data.destroy();
    return { ...result, refused: wrong.constructor === et.InvalidArgumentError };
  },
  /**
   * How far a picture's answers are from those to Pillow's pixels of it, by its kind, and how the pixels went; what is
   * answered to a picture in a box.
   */
  async likePillow({ picture: source, pixels, onGpu, ...options }) {
    const device = onGpu ? await (await navigator.gpu.requestAdapter()).requestDevice() : 'wasm';
    const session = await ExecuTorchRuntime.loadModel({ ...options, device, worker: false });
    try {
      const { crop, ...settings } = JSON.parse(session.info.files['preprocess.json']);
      const rgb = new Uint8Array(await (await fetch(pixels)).arrayBuffer());
      const count = 224 * 224;
      const at = (i) => rgb[3 * (i % count) + Math.floor(i / count)];
      const data = Float32Array.from({ length: 3 * count }, (_, i) => (at(i) - settings.mean[0]) / settings.std[0]);
      const [expected] = await session.run([tensor('f32', [1, 3, 224, 224], data)]);
      const far = {};
      const watched = [[OffscreenCanvasRenderingContext2D.prototype, 'getImageData']];
      if (onGpu) watched.push([GPUQueue.prototype, 'copyExternalImageToTexture']);
      const { counts } = await counting(watched, async () => {
        for (const kind of ['Blob', 'ImageBitmap', 'ImageData', 'HTMLCanvasElement', 'VideoFrame']) {
          const image = await pictureOf(kind, source);
          const [output] = await session.run([{ ...settings, crop, image }]);
          far[kind] = Math.max(...output.data.map((x, i) => Math.abs(x - expected.data[i])));
        }
      });
      for (const close of gone.splice(0)) close();
      const unknown = await session
        .run([{ ...settings, resample: 'nearest', image: new ImageData(1, 1) }])
        .catch((e) => e);
      const [boxed] = await session.run([{ ...settings, letterbox: 114, image: await pictureOf('Blob', source) }]);
      return { far, counts, best: Math.max(...expected.data), refused: unknown.message, boxed: Array.from(boxed.data) };
    } finally {
      await session.dispose();
      if (onGpu) device.destroy();
    }
  },
  /** The same picture as an array and in buffers, what that took the second time, and what is refused. */
  async buffers({ url }) {
    const device = await (await navigator.gpu.requestAdapter()).requestDevice();
    const { STORAGE, COPY_DST, COPY_SRC } = GPUBufferUsage;
    const session = await ExecuTorchRuntime.loadModel({ modelUrl: url, device, worker: false });
    const make = (size) => device.createBuffer({ size, usage: STORAGE | COPY_DST | COPY_SRC });
    const shape = [1, 3, 224, 224];
    const input = { dtype: 'f32', shape, buffer: make(picture.byteLength + 256), offset: 256 };
    device.queue.writeBuffer(input.buffer, 256, picture);
    const own = make(4000);
    const places = [['gpu'], [own], [{ buffer: make(8192), offset: 4096 }]];
    try {
      const [{ data }] = await session.run([tensor('f32', shape, picture)]);
      const different = [];
      for (const outputs of places) {
        const [result] = await session.run([input], { outputs });
        const numbers = await readBack(device, result);
        if (numbers.length !== 1000 || numbers.some((x, i) => x !== data[i])) different.push(numbers.slice(0, 3));
        if (outputs[0] === own && result.buffer !== own) different.push('another buffer');
      }
      // from an array into a buffer, and the other way
      const [half] = await session.run([tensor('f32', shape, picture)], { outputs: own });
      const [back] = await session.run([input]);
      if ((await readBack(device, half)).some((x, i) => x !== data[i])) different.push('array in');
      if (back.data.some((x, i) => x !== data[i])) different.push('array out');
      await session.run([input], { outputs: [own] });
      const watched = [
        [GPUCommandEncoder.prototype, 'copyBufferToBuffer'],
        [GPUBuffer.prototype, 'mapAsync'],
        [GPUQueue.prototype, 'writeBuffer'],
        [GPUQueue.prototype, 'submit'],
        [GPUDevice.prototype, 'createBindGroup'],
        [GPUDevice.prototype, 'createBuffer'],
      ];
      const { counts } = await counting(watched, () => session.run([input], { outputs: [own] }));
      const counters = await session.counters();
      const refused = await refusals(session, device, input);
      const again = await session.run([input]); // and the model goes on
      if (again[0].data.some((x, i) => x !== data[i])) different.push('after the refusals');
      return { different, counts, counters, refused };
    } finally {
      await session.dispose();
      device.destroy();
    }
  },
  /** Of a model that is not on a device of the page's. */
  async noBuffers({ key }) {
    const call = sessions[key].run([tensor('f32', [1, 3, 224, 224], picture)], { outputs: 'gpu' });
    return (await call.catch((error) => error)).message;
  },
  async classify({ key, kind, url }) {
    const image = await pictureOf(kind, url);
    const [first] = await new ImageClassifier(sessions[key]).classify(image);
    for (const close of gone.splice(0)) close();
    return first;
  },
  checksum: ({ key }) => checksumOf(sessions[key]),
  /** Runs that are dropped: one before it starts, the queue behind it. */
  async abortRuns({ key }) {
    const controller = new AbortController();
    const input = tensor('f32', [1, 3, 224, 224], picture);
    const first = sessions[key].run([input]);
    const dropped = [1, 2, 3].map(() => sessions[key].run([input], { signal: controller.signal }));
    controller.abort();
    const results = await Promise.allSettled(dropped);
    await first;
    return results.map((r) => `${r.status} ${r.reason?.name}`);
  },
  async chat({ key }) {
    const chat = sessions[key].chat({ system: 'Answer in one word.', maxTokens: 6 });
    let streamed = '';
    for await (const piece of chat.send('What is the capital of France?')) streamed += piece;
    const second = await chat.send('And of Italy?');
    const roles = chat.messages.map((m) => m.role).join(' ');
    return {
      streamed,
      kept: chat.messages[2].content,
      roles,
      reused: second.timings.reusedTokens,
      undone: chat.undo(),
    };
  },
  async completions({ key }) {
    const client = openai(sessions[key]);
    const messages = [{ role: 'user', content: [{ type: 'text', text: 'What is the capital of France?' }] }];
    const whole = await client.chat.completions.create({ model: 'any', messages, max_tokens: 6 });
    const chunks = [];
    const stream = await client.chat.completions.create({
      messages,
      max_completion_tokens: 6,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) chunks.push(chunk);
    const tools = await client.chat.completions.create({ messages, tools: [] }).catch((error) => error.message);
    const aborted = await client.chat.completions
      .create({ messages }, { signal: AbortSignal.abort() })
      .catch((error) => error.name);
    return { whole, chunks, tools, aborted };
  },

  /** 1 2 3 4 divided by `y`. */
  async divide({ y, ...options }) {
    const session = await ExecuTorchRuntime.loadModel(options);
    const matrix = (values) => tensor('f32', [2, 2], Float32Array.from(values));
    try {
      const [output] = await session.run([matrix([1, 2, 3, 4]), matrix(y)]);
      return String([...output.data]);
    } finally {
      await session.dispose();
    }
  },

  /** What is answered with an adapter from a URL, without, and with the same one at hand. */
  async adapted({ adapter, ...options }) {
    const names = ['adapter_config.json', 'adapter_model.safetensors'];
    const files = await Promise.all(names.map((name) => fileFrom(adapter + name, name)));
    const adapters = [{ url: adapter }, { files, name: 'mine', scale: 0 }];
    const session = await ExecuTorchRuntime.loadModel({ ...options, adapters });
    const ids = async () => (await session.generate('Once upon', { maxTokens: 4 })).tokenIds;
    try {
      const url = await ids();
      await session.setAdapterScale('random', 0);
      const plain = await ids();
      await session.setAdapterScale('mine', 1);
      const unknown = await session.setAdapterScale('theirs', 1).catch((error) => error);
      const { adapters: inspected } = await session.inspect();
      const refused = unknown.constructor === et.InvalidArgumentError;
      return { url, plain, hand: await ids(), refused, inspected };
    } finally {
      await session.dispose();
    }
  },

  cacheClear: () => ExecuTorchRuntime.cache.clear(),
  cacheDelete: ({ url }) => ExecuTorchRuntime.cache.delete(url),
  cacheList: async () => ({
    list: await ExecuTorchRuntime.cache.list(),
    usage: await ExecuTorchRuntime.cache.usage(),
  }),
};
window.packageReady = true;
