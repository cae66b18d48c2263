// The page of the browser tests: the built package as a user would import it, and a few functions for run.mjs to call.
import * as et from '/web/index.js';
import { TextGenerator } from '/web/tasks.js';

const sessions = {};
/** What this thread has asked adapters for: models with `worker: false`. */
const devices = [];
if (globalThis.GPUAdapter) {
  const { requestDevice } = GPUAdapter.prototype;
  GPUAdapter.prototype.requestDevice = function (descriptor = {}) {
    const { requiredFeatures = [], requiredLimits = {} } = descriptor;
    devices.push({ features: Array.from(requiredFeatures), limits: { ...requiredLimits } });
    return requestDevice.call(this, descriptor);
  };
}
let saved; // the last state

const describe = (error) => ({
  // by its export: the name of a class does not survive minification
  class: Object.keys(et).find((name) => et[name] === error?.constructor) ?? error?.constructor?.name,
  known: error instanceof et.ExecuTorchError,
  code: error?.code,
  name: error?.name,
  message: String(error?.message ?? error),
});
/** Of a promise that is to be rejected: by what. */
const refusal = (promise) =>
  promise.then(
    () => 'no error',
    (error) => `${describe(error).class} ${error.name}`,
  );
/** {ok: value} or {error}: errors must arrive with their class. */
async function attempt(action) {
  try {
    return { ok: await action() };
  } catch (error) {
    return { error: describe(error) };
  }
}

async function floats(url) {
  return new Float32Array(await (await fetch(url)).arrayBuffer());
}

window.harness = {
  capabilities: () => et.ExecuTorchRuntime.capabilities(),

  load: ({ key, instrument, abortAfterBytes, ...options }) =>
    attempt(async () => {
      const progress = [];
      const controller = new AbortController();
      const began = performance.now();
      let abortedAt;
      try {
        const session = await et.ExecuTorchRuntime.loadModel({
          cache: 'none',
          precision: 'f32', // what eager is compared with
          ...options,
          signal: controller.signal,
          debug: {
            ...options.debug,
            ...(instrument && { instrument: new URL('/tools/instrument.js', location.href).href }),
          },
          onProgress: (p) => {
            progress.push(p);
            if (abortAfterBytes && p.loaded > abortAfterBytes && !abortedAt) {
              abortedAt = performance.now();
              controller.abort();
            }
          },
        });
        sessions[key] = session;
        return { info: session.info, fallbackReason: session.fallbackReason, progress, ms: performance.now() - began };
      } catch (error) {
        if (abortedAt) window.harness.abortMs = performance.now() - abortedAt;
        throw error;
      }
    }),
  abortMs: undefined,

  generate: ({ key, prompt, options = {}, abortAfterTokens }) =>
    attempt(async () => {
      const controller = new AbortController();
      const pieces = [];
      let abortedAt;
      const result = await sessions[key].generate(prompt, {
        ...options,
        signal: controller.signal,
        onToken: (token) => {
          pieces.push(token.text);
          if (abortAfterTokens && pieces.length === abortAfterTokens) {
            abortedAt = performance.now();
            controller.abort();
          }
        },
      });
      return { ...result, pieces, ...(abortedAt && { abortMs: performance.now() - abortedAt }) };
    }),

  iterate: ({ key, prompt, options }) =>
    attempt(async () => {
      let text = '';
      for await (const piece of sessions[key].generate(prompt, options)) text += piece;
      return text;
    }),

  continueText: ({ key, text }) =>
    attempt(async () => {
      const continued = new TextGenerator(sessions[key], { maxTokens: 6 }).continue(text);
      const pieces = [];
      for await (const piece of continued) pieces.push(piece);
      return { pieces, text: (await continued).text };
    }),

  /** Calls behind a long generation, and a reload: each is aborted. Then the session is reloaded, and generates. */
  abortCalls: ({ key }) =>
    attempt(async () => {
      const session = sessions[key];
      const prompt = { tokenIds: [11, 12, 13] };
      let first;
      await new Promise((onToken) => {
        first = session.generate(prompt, { maxTokens: 1e5, overflow: 'sliding', onToken });
      });
      const [controller, other] = [new AbortController(), new AbortController()];
      const { signal } = controller;
      const calls = [session.saveState({ signal }), session.restoreState(new Blob(['x']), { signal })];
      calls.push(session.reset({ signal }), session.newSequence({ signal }), session.run([], { signal }));
      calls.push(session.setAdapterScale('a', 1, { signal }));
      controller.abort();
      first.stop();
      const waiting = await Promise.all(calls.map(refusal));
      const { finishReason } = await first;
      const reloading = session.reload({ signal: other.signal });
      other.abort();
      const reload = await refusal(reloading);
      const between = await refusal(session.generate(prompt));
      await session.reload();
      const again = await session.generate(prompt, { maxTokens: 4 });
      return { waiting, finishReason, reload, between, again: again.tokenIds.length };
    }),

  devices: () => attempt(() => devices),

  newSequence: ({ key, as }) =>
    attempt(async () => {
      sessions[as] = await sessions[key].newSequence();
      return sessions[as].stateBytes;
    }),

  /** Keeps it here, and in a file of the private file system. */
  saveState: ({ key }) =>
    attempt(async () => {
      saved = await sessions[key].saveState();
      const root = await navigator.storage.getDirectory();
      const writable = await (await root.getFileHandle('saved-state', { create: true })).createWritable();
      await saved.stream().pipeTo(writable);
      return saved.size;
    }),
  restoreState: ({ key, from }) =>
    attempt(async () => {
      const root = await navigator.storage.getDirectory();
      const damaged = () => new Blob([saved.slice(0, 9000), 'x', saved.slice(9001)]);
      const file = () => root.getFileHandle('saved-state');
      await sessions[key].restoreState(await { blob: () => saved, file, damaged }[from]());
    }),

  tokenize: ({ key, prompt }) => attempt(() => sessions[key].tokenize(prompt)),
  memory: ({ key }) => attempt(() => sessions[key].memoryReport()),
  counters: ({ key }) => attempt(() => sessions[key].counters()),
  inspect: ({ key }) => attempt(() => sessions[key].inspect()),
  profile: ({ key }) => attempt(() => sessions[key].profile()),
  reload: ({ key }) =>
    attempt(async () => {
      await sessions[key].reload();
      return { cache: sessions[key].info.cache };
    }),
  dispose: ({ key }) => attempt(() => sessions[key].dispose()),
  loseDevice: ({ key }) => attempt(() => sessions[key].loseDevice()),

  /** Largest difference from eager's probabilities of the first `batch` pictures, and the classes. */
  /** `times` calls at once, of `batch` pictures each. */
  classify: ({ key, batch, times = 1 }) =>
    attempt(async () => {
      const expected = await (await fetch('/data/expected.json')).json();
      const { shape, classes } = expected.classify;
      const pictures = await floats('/data/pictures.bin');
      const probabilities = await floats('/data/probabilities.bin');
      const size = shape[1] * shape[2] * shape[3];
      // each call begins with another picture
      const begins = Array.from({ length: times }, (_, call) => call % (pictures.length / size - batch + 1));
      const input = (begin) => pictures.slice(begin * size, (begin + batch) * size);
      const run = (begin) => sessions[key].run([et.tensor('f32', [batch, ...shape.slice(1)], input(begin))]);
      const all = await Promise.all(begins.map(run));
      let worst = 0;
      all.forEach(([output], call) => {
        const want = probabilities.subarray(begins[call] * classes, (begins[call] + batch) * classes);
        if (output.data.length !== want.length) throw new Error(`an output of ${output.data.length} numbers`);
        for (let i = 0; i < want.length; ++i) {
          const difference = Math.abs(output.data[i] - want[i]);
          worst = difference <= worst ? worst : difference; // NaN counts as worst
        }
      });
      const [output] = all[0];
      const labels = sessions[key].info.files['labels.txt'].trimEnd().split('\n');
      const top = Array.from({ length: batch }, (_, b) => {
        const row = output.data.subarray(b * classes, (b + 1) * classes);
        return labels[row.indexOf(Math.max(...row))];
      });
      return { worst, top, shape: output.shape };
    }),

  /** Of each id but the first: -log of the probability that a model with the logits of every position gives it. */
  losses: ({ key, ids, chunk }) =>
    attempt(async () => {
      const losses = [];
      for (let start = 0; start + 1 < ids.length; start += chunk) {
        const part = ids.slice(start, Math.min(start + chunk, ids.length - 1));
        const [logits] = await sessions[key].run([
          et.tensor('i64', [1, part.length], part),
          et.tensor('i64', [1], [start]),
        ]);
        const vocabulary = logits.shape[2];
        for (let i = 0; i < part.length; ++i) {
          const row = logits.data.subarray(i * vocabulary, (i + 1) * vocabulary);
          const most = row.reduce((a, b) => Math.max(a, b));
          const sum = row.reduce((total, x) => total + Math.exp(x - most), 0);
          losses.push(Math.log(sum) + most - row[ids[start + i + 1]]);
        }
      }
      return losses;
    }),

  /** run() with inputs as [dtype, shape, numbers]. */
  run: ({ key, inputs, method }) =>
    attempt(async () => {
      const outputs = await sessions[key].run(
        inputs.map(([dtype, shape, data]) => et.tensor(dtype, shape, data)),
        method,
      );
      return outputs.map((o) => ({ dtype: o.dtype, shape: o.shape, data: et.toNumbers(o) }));
    }),
};
window.harnessReady = true;
