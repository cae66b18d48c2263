import { ExecuTorchRuntime } from '/web/index.js';
import { promptOf } from '../protocol.js';

/**
 * Measures what commands cost this thread: from the making of an encoder to the end of its submission, Wasm and JavaScript
 * together. Returns a function that gives the number of submissions since its last call and their milliseconds.
 */
function watchEncoding() {
  let began;
  let seen = { submits: 0, ms: 0 };
  const { createCommandEncoder } = GPUDevice.prototype;
  GPUDevice.prototype.createCommandEncoder = function (...args) {
    began = performance.now();
    return createCommandEncoder.apply(this, args);
  };
  const { submit } = GPUQueue.prototype;
  GPUQueue.prototype.submit = function (commands) {
    submit.call(this, commands);
    if (commands.length === 0) return; // those that only poll
    seen = { submits: seen.submits + 1, ms: seen.ms + performance.now() - began };
  };
  return () => {
    const result = seen;
    seen = { submits: 0, ms: 0 };
    return result;
  };
}

export async function load({ model, device, precision, tier, defaultLimits, activations, threads, tune, worker }) {
  const encoded = worker === false ? watchEncoding() : undefined;
  const session = await ExecuTorchRuntime.loadModel({
    cache: 'none',
    worker,
    modelUrl: model,
    device,
    precision,
    activations,
    ...(device === 'wasm' && { threads }),
    ...(tune && { tune: { budgetMs: tune } }),
    memoryCap: 64 * 2 ** 30,
    debug: { ...(tier && { maxTier: tier }), ...(defaultLimits && { defaultLimits }) },
  });
  if (session.device !== device) throw new Error(`asked for ${device}, got ${session.device}`);
  const vocabulary = session.info.methods.find(({ name }) => name === 'get_vocab_size').values[0];
  const generate = (ids, count, onToken, signal) =>
    session.generate({ tokenIds: ids }, { maxTokens: count, signal, onToken: ({ id }) => onToken(id) });
  return {
    vocabulary,
    generate,
    describe: () => ({
      runtime: 'executorch-webgpu',
      device: session.device,
      adapter: session.info.adapter,
      threads: session.info.threads,
      wasmTier: session.info.wasmTier,
      tuning: session.info.tuning,
    }),
    memory: () => session.memoryReport(),
    /** Kernel times of the prefill of `context` tokens (its last chunk) and of one decoded token after it. */
    async profile(context) {
      await session.profile();
      const prompt = promptOf(context, vocabulary, 1000 + context);
      await generate(prompt, 1, () => {});
      const prefill = await session.profile();
      await generate(prompt, 8, () => {});
      const decode = await session.profile();
      return { prefill, decode };
    },
    encoded,
    dispose: () => session.dispose(),
  };
}
