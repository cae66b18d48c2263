// transformers.js on WebGPU, as its `generate` drives onnxruntime-web. It keeps no cache between calls: each decode runs
// its prompt again, which is not in the time of decoding.
const ORT = new URL('/peers/onnxruntime-web/', location.href).href;

export async function load({ model, precision }) {
  const { AutoModelForCausalLM, Tensor, env } = await import('/peers/transformers/transformers.min.js');
  const folders = model.replace(/\/$/, '').split('/');
  const name = folders.pop();
  Object.assign(env, {
    allowLocalModels: true,
    allowRemoteModels: false,
    localModelPath: `${folders.join('/')}/`,
    useBrowserCache: false,
  });
  env.backends.onnx.wasm.wasmPaths = {
    mjs: `${ORT}ort-wasm-simd-threaded.asyncify.mjs`,
    wasm: `${ORT}ort-wasm-simd-threaded.asyncify.wasm`,
  };
  const dtype = precision === 'f16' ? 'q4f16' : 'q4';
  const loaded = await AutoModelForCausalLM.from_pretrained(name, { device: 'webgpu', dtype });
  const row = (values) => new Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);
  return {
    vocabulary: loaded.config.vocab_size,
    async generate(ids, count, onToken) {
      let prompt = true; // the first call carries the prompt
      const streamer = {
        put([values]) {
          if (!prompt) onToken(Number(values[0]));
          prompt = false;
        },
        end() {},
      };
      await loaded.generate({
        input_ids: row(ids),
        attention_mask: row(ids.map(() => 1)),
        max_new_tokens: count,
        min_new_tokens: count,
        do_sample: false,
        streamer,
      });
    },
    describe: () => ({ runtime: 'transformers.js', version: env.version, device: 'webgpu', dtype }),
    dispose: () => loaded.dispose(),
  };
}
