// Every kernel tier of this machine's GPU against the Wasm CPU device: kernels.html?models=/models/&only=REGEX. Prints a line of
// JSON per program and tier, with the largest error relative to the largest value, and whether the results differ from the tier
// before in some bit, which other kernels' do; then DONE.
import { ExecuTorchRuntime } from '/web/index.js';

const query = new URLSearchParams(location.search);
const models = query.get('models') ?? '/models/';
const only = new RegExp(query.get('only') ?? '');

const tiers = {
  f32_baseline: { precision: 'f32', debug: { maxTier: 'baseline' } },
  f32_subgroups: { precision: 'f32', debug: { maxTier: 'subgroups' } },
  f32_default_limits: { precision: 'f32', debug: { defaultLimits: true } },
  f16: { precision: 'f16', debug: { maxTier: 'f16' } },
  f16_subgroups: { precision: 'f16', debug: { maxTier: 'subgroups' } },
  f16_matrix: { precision: 'f16' },
  f16_matrix_default_limits: { precision: 'f16', debug: { defaultLimits: true } },
};
const bound = (tier) => (tier.startsWith('f16') ? 4e-3 : 5e-5);

const log = (line) => {
  document.getElementById('log').textContent += line + '\n';
  console.log(line);
};

/** In [-1, 1), the same for the same seed. */
function random(count, seed) {
  let state = (seed * 2654435761 + 12345) >>> 0;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

const inputsOf = (call, seed) =>
  call.map(({ dtype, shape, value }, i) => ({
    dtype,
    shape,
    data:
      value === undefined
        ? random(
            shape.reduce((a, b) => a * b, 1),
            seed * 16 + i,
          )
        : BigInt64Array.of(BigInt(value)),
  }));

async function outputs(url, calls, options) {
  const session = await ExecuTorchRuntime.loadModel({ modelUrl: url, ...options });
  const results = [];
  try {
    for (const [i, call] of calls.entries()) {
      const [found] = await session.run(inputsOf(call, i));
      results.push(found.data);
    }
    return { results, adapter: session.info.adapter };
  } finally {
    await session.dispose();
  }
}

function errorOf(found, wanted) {
  let most = 1;
  let error = 0;
  for (let i = 0; i < wanted.length; ++i) {
    most = Math.max(most, Math.abs(wanted[i]));
    const difference = Math.abs(found[i] - wanted[i]);
    error = difference <= error ? error : difference; // NaN counts as worst
  }
  return error / most;
}

const report = { capabilities: await ExecuTorchRuntime.capabilities(), results: [], failed: 0 };
for (const { name, calls } of await (await fetch(`${models}cases.json`)).json()) {
  if (!only.test(name)) continue;
  const url = `${models}${name}.pte`;
  const wanted = await outputs(url, calls, { device: 'wasm', activations: 'exact' });
  let before;
  for (const [tier, options] of Object.entries(tiers)) {
    const line = { name, tier };
    try {
      const found = await outputs(url, calls, { device: 'webgpu', ...options });
      line.errors = found.results.map((r, i) => Number(errorOf(r, wanted.results[i]).toExponential(1)));
      line.ok = line.errors.every((e) => e <= bound(tier));
      line.differs = before && found.results.map((r, i) => r.some((x, j) => x !== before[i][j]));
      before = found.results;
      report.adapter = found.adapter;
    } catch (error) {
      line.ok = false;
      line.failed = `${error.name}: ${error.message}`;
    }
    if (!line.ok) report.failed++;
    log(JSON.stringify(line));
    report.results.push(line);
  }
}
console.log('DONE ' + JSON.stringify(report));
