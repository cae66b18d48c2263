import { Wllama, LoggerWithoutDebug } from '../node_modules/@wllama/wllama/esm/index.min.js';

const WASM = new URL('../node_modules/@wllama/wllama/esm/wasm/wllama.wasm', import.meta.url).href;

export const version = () => `llama.cpp ${Wllama.getLibllamaVersion()}`;

export async function load({ model }) {
  const wllama = new Wllama({ default: WASM }, { logger: LoggerWithoutDebug });
  await wllama.loadModelFromUrl(new URL(model, location.href).href, { n_threads: 1, n_ctx: 1024, n_gpu_layers: 0 });
  if (wllama.getNumThreads() !== 1) throw new Error(`wllama runs ${wllama.getNumThreads()} threads`);
  return {
    // it takes text alone; the prompts' texts become exactly the prompts' tokens
    async generate({ text }, count, onToken) {
      let last;
      await wllama.createCompletion({
        prompt: text,
        max_tokens: count,
        temperature: 0,
        top_k: 1,
        ignore_eos: true,
        cache_prompt: false,
        stream: true,
        onData: (chunk) => {
          last = chunk;
          if (chunk.choices?.[0]?.finish_reason == null) onToken();
        },
      });
      return { timings: last?.timings };
    },
    dispose: () => wllama.exit(),
  };
}
