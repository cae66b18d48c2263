// Prefill and decode speed of a model folder on each kernel tier, in one page: llm.html?model=/models/NAME/&tokens=128.
// Wall-clock, every token delivered to the caller; the first run of a configuration warms up and is not counted. All
// configurations must give the same greedy tokens as the first, as far as their precision is the same.
import { ExecuTorchRuntime } from '/web/index.js';

const query = new URLSearchParams(location.search);
const modelUrl = query.get('model') ?? '/models/smollm2-135m-instruct/';
const tokens = Number(query.get('tokens') ?? 128);
const lengths = (query.get('prompts') ?? '32,512,1536').split(',').map(Number);
const rounds = Number(query.get('rounds') ?? 3);
const threads = query.has('threads') ? Number(query.get('threads')) : undefined;

const log = (line) => {
  document.getElementById('log').textContent += line + '\n';
  console.log(line);
};
const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];

const configurations = {
  f32: { device: 'webgpu', precision: 'f32' },
  f32_baseline: { device: 'webgpu', precision: 'f32', debug: { maxTier: 'baseline' } },
  f16: { device: 'webgpu', precision: 'f16' },
  wasm: { device: 'wasm' },
  wasm_exact: { device: 'wasm', activations: 'exact' },
};
const chosen = (query.get('only') ?? 'f32,f32_baseline,f16,wasm').split(',');

// Ids that are no special tokens and do not repeat in a short period.
const promptOf = (length) => Array.from({ length }, (_, i) => 1000 + ((i * 7919) % 20000));

function kernels(profile) {
  const byName = new Map();
  for (const { kernel, us } of profile) {
    const entry = byName.get(kernel) ?? { count: 0, us: 0 };
    byName.set(kernel, { count: entry.count + 1, us: entry.us + us });
  }
  return [...byName].sort((a, b) => b[1].us - a[1].us).map(([kernel, { count, us }]) => ({ kernel, count, us }));
}

async function measure(name, options) {
  const began = performance.now();
  const session = await ExecuTorchRuntime.loadModel({ modelUrl, threads, ...options });
  const result = { name, device: session.device, loadMs: performance.now() - began, runs: [] };
  for (const length of lengths) {
    const runs = [];
    let ids;
    for (let round = 0; round <= rounds; ++round) {
      await session.reset();
      const { tokenIds, timings } = await session.generate(
        { tokenIds: promptOf(length) },
        { maxTokens: tokens, stop: [] },
      );
      ids = tokenIds;
      if (round > 0) runs.push(timings);
    }
    const prefill = median(runs.map((t) => (1000 * t.promptTokens) / t.prefillMs));
    const decode = median(runs.map((t) => (1000 * t.decodeTokens) / t.decodeMs));
    log(`${name} prompt ${length}: prefill ${prefill.toFixed(0)} tok/s, decode ${decode.toFixed(1)} tok/s`);
    result.runs.push({
      length,
      prefill,
      decode,
      decodeTokens: runs[0].decodeTokens,
      ids,
      counters: await session.counters(),
    });
  }
  result.memory = await session.memoryReport();
  if (query.has('profile')) {
    await session.profile();
    await session.reset();
    await session.generate({ tokenIds: promptOf(lengths[0]) }, { maxTokens: 8 });
    result.decodeKernels = kernels(await session.profile());
    await session.reset();
    await session.generate({ tokenIds: promptOf(Math.max(...lengths)) }, { maxTokens: 1 });
    result.prefillKernels = kernels(await session.profile());
  }
  await session.dispose();
  return result;
}

const report = { modelUrl, tokens, capabilities: await ExecuTorchRuntime.capabilities(), results: [] };
for (const name of chosen) {
  try {
    report.results.push(await measure(name, configurations[name]));
  } catch (error) {
    log(`${name}: ${error.name}: ${error.message}`);
    report.results.push({ name, failed: `${error.name}: ${error.message}` });
  }
}
console.log('DONE ' + JSON.stringify(report));
