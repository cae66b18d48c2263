// wllama (llama.cpp in WebAssembly), on the CPU or on WebGPU. It takes text alone: every id of a prompt is one character of
// the synthetic model's vocabulary (make_gguf.py).
const FIRST = 0x4e00; // the character of id FIRST_ID
const FIRST_ID = 50;

export async function load({ model, device, threads, positions = 8448 }) {
  const { Wllama, LoggerWithoutDebug } = await import('/peers/wllama/index.min.js');
  const wllama = new Wllama({ default: '/peers/wllama/wasm/wllama.wasm' }, { logger: LoggerWithoutDebug });
  await wllama.loadModelFromUrl(new URL(`${model}model.gguf`, location.href).href, {
    n_threads: threads,
    n_ctx: positions,
    n_batch: 512,
    n_gpu_layers: device === 'webgpu' ? 999 : 0,
    useCache: false,
  });
  return {
    vocabulary: 20050,
    async generate(ids, count, onToken) {
      const prompt = ids.map((id) => String.fromCharCode(FIRST + id - FIRST_ID)).join('');
      await wllama.createCompletion({
        prompt,
        max_tokens: count,
        temperature: 0,
        top_k: 1,
        ignore_eos: true,
        cache_prompt: true,
        stream: true,
        onData: (chunk) => {
          if (chunk.choices?.[0]?.finish_reason == null) onToken(chunk.choices?.[0]?.text);
        },
      });
    },
    describe: () => ({
      runtime: 'wllama',
      version: Wllama.getLibllamaVersion(),
      device,
      threads: wllama.getNumThreads(),
      webgpu: wllama.isSupportWebGPU?.(),
    }),
    dispose: () => wllama.exit(),
  };
}
