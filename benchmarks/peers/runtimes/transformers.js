import { AutoModelForCausalLM, Tensor, env } from '../node_modules/@huggingface/transformers/dist/transformers.min.js';

const ORT = new URL('../node_modules/onnxruntime-web/dist/', import.meta.url).href;

export const version = () => `transformers.js ${env.version}`;

const row = (values) => new Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);

export async function load({ models, model, dtype }) {
  Object.assign(env, {
    allowLocalModels: true,
    allowRemoteModels: false,
    localModelPath: models,
    useBrowserCache: false,
  });
  env.backends.onnx.wasm.numThreads = 1;
  env.backends.onnx.wasm.wasmPaths = {
    mjs: `${ORT}ort-wasm-simd-threaded.asyncify.mjs`,
    wasm: `${ORT}ort-wasm-simd-threaded.asyncify.wasm`,
  };
  const loaded = await AutoModelForCausalLM.from_pretrained(model, { device: 'wasm', dtype });
  return {
    async generate({ ids }, count, onToken) {
      const tokenIds = [];
      let prompt = true; // the first call carries the prompt
      const streamer = {
        put([values]) {
          if (!prompt) {
            tokenIds.push(Number(values[0]));
            onToken();
          }
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
      return { tokenIds: tokenIds.slice(0, 16) };
    },
    dispose: () => loaded.dispose(),
  };
}
