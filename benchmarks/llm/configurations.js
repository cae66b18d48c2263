// What can be measured, by name. `runtime` is a file of runtimes/, the rest goes to its `load`.
const all = {
  f16: { runtime: 'ours', device: 'webgpu', precision: 'f16' },
  f32: { runtime: 'ours', device: 'webgpu', precision: 'f32' },
  // as on a device whose browser has no subgroup matrices: most of them
  'f16-no-matrix': { runtime: 'ours', device: 'webgpu', precision: 'f16', tier: 'subgroups' },
  'f32-no-matrix': { runtime: 'ours', device: 'webgpu', precision: 'f32', tier: 'subgroups' },
  // WebGPU's default limits, no optional feature
  baseline: { runtime: 'ours', device: 'webgpu', precision: 'f32', tier: 'baseline', defaultLimits: true },
  wasm: { runtime: 'ours', device: 'wasm', slow: true },
  'wasm-exact': { runtime: 'ours', device: 'wasm', activations: 'exact', slow: true },
};

export function configurations(name) {
  if (!all[name]) throw new Error(`no configuration ${name}; there are ${Object.keys(all).join(', ')}`);
  return { name, ...all[name] };
}
