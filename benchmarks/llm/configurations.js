// What can be measured, by name. `runtime` is a file of runtimes/, the rest goes to its `load`.
const all = {
  f16: { runtime: 'ours', device: 'webgpu', precision: 'f16' },
  f32: { runtime: 'ours', device: 'webgpu', precision: 'f32' },
  // the engine on the page's own thread, where a page can measure what a step costs the processor
  'f16-encode': { runtime: 'ours', device: 'webgpu', precision: 'f16', worker: false },
  // as on a device whose browser has no subgroup matrices: most of them
  'f16-no-matrix': { runtime: 'ours', device: 'webgpu', precision: 'f16', tier: 'subgroups' },
  'f32-no-matrix': { runtime: 'ours', device: 'webgpu', precision: 'f32', tier: 'subgroups' },
  // WebGPU's default limits, no optional feature
  baseline: { runtime: 'ours', device: 'webgpu', precision: 'f32', tier: 'baseline', defaultLimits: true },
  wasm: { runtime: 'ours', device: 'wasm' },
  // peers; their models are others: make_onnx.py, make_gguf.py
  'onnxruntime-f16': { runtime: 'onnxruntime' },
  'onnxruntime-f32': { runtime: 'onnxruntime' },
  'transformers-f16': { runtime: 'transformers', precision: 'f16' },
  'transformers-f32': { runtime: 'transformers', precision: 'f32' },
  'wllama-wasm': { runtime: 'wllama', device: 'wasm' },
  'wllama-webgpu': { runtime: 'wllama', device: 'webgpu' },
  'wasm-exact': { runtime: 'ours', device: 'wasm', activations: 'exact' },
};

export function configurations(name) {
  if (!all[name]) throw new Error(`no configuration ${name}; there are ${Object.keys(all).join(', ')}`);
  return { name, ...all[name] };
}
