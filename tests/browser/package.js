// The page of package.mjs: the built package as a user would import it.
import * as et from '/web/index.js';

const { ExecuTorchRuntime, tensor } = et;
// position-dependent, and the same in every load
const picture = Float32Array.from({ length: 3 * 224 * 224 }, (_, i) => Math.sin(i / 97));

/** Loads, runs once, disposes; what was said on the way. */
async function once(options) {
  const progress = [];
  const session = await ExecuTorchRuntime.loadModel({ ...options, onProgress: (p) => progress.push(p) });
  try {
    const [output] = await session.run([tensor('f32', [1, 3, 224, 224], picture)]);
    const checksum = output.data.reduce((sum, x, i) => sum + x * ((i % 89) + 1), 0).toFixed(4);
    return { info: session.info, progress, checksum };
  } finally {
    await session.dispose();
  }
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

  cacheClear: () => ExecuTorchRuntime.cache.clear(),
  cacheDelete: ({ url }) => ExecuTorchRuntime.cache.delete(url),
  cacheList: async () => ({
    list: await ExecuTorchRuntime.cache.list(),
    usage: await ExecuTorchRuntime.cache.usage(),
  }),
};
window.packageReady = true;
