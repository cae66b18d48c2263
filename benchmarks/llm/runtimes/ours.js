import { ExecuTorchRuntime } from '/web/index.js';
import { promptOf } from '../protocol.js';

export async function load({ model, device, precision, tier, defaultLimits, activations, threads, tune }) {
  const session = await ExecuTorchRuntime.loadModel({
    cache: 'none',
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
    dispose: () => session.dispose(),
  };
}
