// Measures language models in a local headless Chromium and natively, ours beside peers; README.md says what and how.
//
//   node benchmarks/llm/bench.mjs [--quick] [--only REGEX] [--data $ETWGPU_CACHE/bench/llm] [--out build/bench/llm]
//
// Every page gets a browser of its own. --quick: small sizes, for machines without a GPU; its figures mean nothing.
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';
import { LLAMA_CPP, markdown, series } from './report.mjs';
import { plot } from './plot.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.join(here, '../..');
const cache = process.env.ETWGPU_CACHE ?? '';
const { values: options } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    only: { type: 'string', default: '.' },
    data: { type: 'string' },
    models: { type: 'string', default: path.join(cache, 'models') },
    out: { type: 'string', default: path.join(root, 'build/bench/llm') },
    minutes: { type: 'string', default: '15' },
  },
});
const data = options.data ?? path.join(cache, options.quick ? 'bench/llm-quick' : 'bench/llm');

const ALL = 'contexts=128,512,2048,8192';
const NARROW = 'contexts=128,2048';
// every multiple of a split of the attention until all of its 16 parts are in use, and some after
const BORDERS = `borders=${Array.from({ length: 16 }, (_, i) => 32 * (i + 1))},1024,2048,4096,8192`;
const PAGES = {
  f16: `model=/m/llama-1b-q4/&${ALL}&only=f16&profile=2048,128`,
  f32: `model=/m/llama-1b-q4/&${ALL}&only=f32&profile=2048,128`,
  borders: `model=/m/llama-1b-q4/&contexts=&${BORDERS}&only=f16,f32`,
  'no-matrix': `model=/m/llama-1b-q4/&${ALL}&only=f16-no-matrix,f32-no-matrix`,
  baseline: `model=/m/llama-1b-q4/&${NARROW}&only=baseline`,
  head8: `model=/m/llama-1b-q4-head8/&${NARROW}&only=f16,f32`,
  wasm: `model=/m/llama-1b-q4/&${ALL}&tokens=32&warmups=1&rounds=2&heat=0&only=wasm`,
  qwen3: `model=/m/qwen3-0.6b-q4/&${NARROW}&only=f16,f32`,
  '3b': `model=/m/llama-3b-q4/&${NARROW}&only=f16,f32`,
  smollm2: 'model=/models/smollm2-135m-instruct/&contexts=128,512&only=f16,f32,wasm',
  'onnxruntime-f16': `model=/m/onnx-f16/&${ALL}&only=onnxruntime-f16`,
  'onnxruntime-f32': `model=/m/onnx-f32/&${ALL}&only=onnxruntime-f32`,
  'transformers-f16': `model=/m/onnx-f16/&${ALL}&tokens=64&rounds=3&only=transformers-f16`,
  'transformers-f32': `model=/m/onnx-f32/&${ALL}&tokens=64&rounds=3&only=transformers-f32`,
  wllama: `model=/m/gguf/&contexts=128,512&tokens=32&warmups=1&rounds=2&only=wllama-wasm`,
  'wllama-webgpu': `model=/m/gguf/&contexts=128,512,2048&tokens=32&warmups=1&rounds=2&only=wllama-webgpu`,
};
const SMALL = 'contexts=16&tokens=4&warmups=1&rounds=1&heat=0&threads=1';
const QUICK = {
  ours: `model=/m/small/&${SMALL}&only=f32,wasm&borders=32&profile=16`,
  onnxruntime: `model=/m/onnx-f32/&${SMALL}&only=onnxruntime-f32`,
  transformers: `model=/m/onnx-f32/&${SMALL}&only=transformers-f32`,
  wllama: `model=/m/gguf/&${SMALL}&only=wllama-wasm`,
};

// native.py: not a page
const NATIVE = options.quick
  ? { model: 'small', arguments: ['--contexts', '16', '--tokens', '4', '--quick'] }
  : { model: 'llama-1b-q4', arguments: ['--contexts', '128,512,2048,8192'] };

/** The report of native.py. */
function measureNatively() {
  const out = path.join(options.out, 'native.json');
  const files = ['--model', path.join(data, NATIVE.model), '--gguf', path.join(data, 'gguf/model.gguf')];
  const PYTHONPATH = [process.env.PYTHONPATH, path.join(data, '../llama-cpp')].filter(Boolean).join(path.delimiter);
  const env = { ...process.env, PYTHONPATH };
  execFileSync('python', [path.join(here, 'native.py'), out, ...files, ...NATIVE.arguments], { stdio: 'inherit', env });
  return JSON.parse(readFileSync(out, 'utf8'));
}

/** The report of one page, in a browser of its own. */
async function measure(url) {
  const browser = await launch('chromium', (text) => {
    if (!text.startsWith('DONE ')) console.log(`  ${text.replaceAll('\n', '\n  ')}`);
  });
  let timer;
  try {
    const page = await browser.open(url);
    const result = page.evaluate(async () => {
      while (!window.result) await new Promise((resolve) => setTimeout(resolve, 20));
      return window.result;
    });
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('over the time limit')), Number(options.minutes) * 60_000);
    });
    return await Promise.race([result, late]);
  } finally {
    clearTimeout(timer);
    await browser.close();
  }
}

async function main() {
  const modules = path.join(root, 'benchmarks/peers/node_modules');
  const server = await serve({
    mounts: {
      '/llm/': here,
      '/web/': path.join(root, 'web/dist'),
      '/models/': options.models,
      '/m/': data,
      '/peers/onnxruntime-web/': path.join(modules, 'onnxruntime-web/dist'),
      '/peers/transformers/': path.join(modules, '@huggingface/transformers/dist'),
      '/peers/wllama/': path.join(modules, '@wllama/wllama/esm'),
    },
  });
  mkdirSync(options.out, { recursive: true });
  const write = (name, content) => writeFileSync(path.join(options.out, name), content);
  const reports = [];
  let failed = false;
  const page = (query) => () => measure(`${server.url}llm/llm.html?${query}`);
  const pages = Object.entries(options.quick ? QUICK : PAGES).map(([name, query]) => [name, page(query)]);
  for (const [name, run] of [...pages, ['native', measureNatively]]) {
    if (!new RegExp(options.only).test(name)) continue;
    console.log(name);
    try {
      const { files = {}, ...report } = await run();
      reports.push(report);
      failed ||= report.failures.length > 0;
      write(`${name}.json`, JSON.stringify(report));
      for (const [file, content] of Object.entries(files)) write(file, content);
    } catch (error) {
      console.log(`  failed: ${error.message}`);
      failed = true;
    }
  }
  await server.close();
  const text = markdown(reports);
  write('report.md', `${text}\n`);
  write('plot.svg', plot(series(reports), LLAMA_CPP));
  console.log(`\n${text}\n\n${options.out}`);
  if (failed) process.exitCode = 1;
}

await main();
