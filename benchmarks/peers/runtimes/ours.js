import { ExecuTorchRuntime } from '/dist/index.js';

export const version = (session) => `executorch-webgpu ${session.tier}`;

export async function load({ tier, activations = 'auto' }) {
  const session = await ExecuTorchRuntime.loadModel({
    cache: 'none',
    modelUrl: '/ours/',
    device: 'wasm',
    threads: 1,
    activations,
    debug: { wasmTier: tier },
  });
  if (session.device !== 'wasm' || session.info.wasmTier !== tier || session.info.threads !== 1) {
    throw new Error(`asked for ${tier} with one thread, got ${JSON.stringify(session.info)}`);
  }
  const generate = async ({ ids }, count, onToken) => {
    await session.reset(); // else the cached prompt would be reused
    const result = await session.generate({ tokenIds: ids }, { maxTokens: count, onToken });
    return { tokenIds: result.tokenIds.slice(0, 16), wasmHeap: (await session.memoryReport()).wasmHeap };
  };
  return {
    tier,
    generate,
    async profile(prompt) {
      await session.profile();
      await generate(prompt, 1, () => {});
      const prefill = await session.profile();
      await session.reset();
      await session.generate({ tokenIds: prompt.ids }, { maxTokens: 8 });
      return { prefill, decode: await session.profile() };
    },
    dispose: () => session.dispose(),
  };
}
