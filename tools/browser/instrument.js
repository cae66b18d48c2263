// Loaded into the worker before anything else (debug.instrument): counts what goes through the browser's WebGPU objects,
// so that reports and tests need not believe the runtime's own counters. A snapshot is kept at every generated token.
//
// A page asks by BroadcastChannel('etwgpu-instrument'): postMessage('get'); the answer is
// {counts, tokens: [counts at each token], gpuBytes: {weights, state, arena, other}, peakGpuBytes}.

const counts = {
  dispatches: 0,
  submits: 0, // with at least one command buffer
  emptySubmits: 0,
  readBacks: 0,
  readBackBytes: 0,
  writes: 0,
  writeBytes: 0,
  buffers: 0,
  bindGroups: 0,
  pipelines: 0,
  shaderModules: 0,
};
const tokens = [];
const gpuBytes = { weights: 0, state: 0, arena: 0, other: 0 };
let peakGpuBytes = 0;
const sizes = new WeakMap(); // of buffers that are not destroyed

/** Calls `before(object, args, result)` around a method of a WebGPU class. */
function around(type, name, after) {
  const prototype = globalThis[type]?.prototype;
  const original = prototype?.[name];
  if (!original) return;
  prototype[name] = function (...args) {
    const result = original.apply(this, args);
    after(this, args, result);
    return result;
  };
}

// a label begins with its purpose: "weights", "state", "arena"; everything else is other
const purpose = (label) => /^(weights|state|arena)\b/.exec(label ?? '')?.[1] ?? 'other';

around('GPUDevice', 'createBuffer', (_device, [descriptor], buffer) => {
  const kind = purpose(descriptor.label);
  counts.buffers++;
  gpuBytes[kind] += descriptor.size;
  sizes.set(buffer, { kind, size: descriptor.size });
  peakGpuBytes = Math.max(
    peakGpuBytes,
    Object.values(gpuBytes).reduce((a, b) => a + b),
  );
});
around('GPUBuffer', 'destroy', (buffer) => {
  const entry = sizes.get(buffer);
  if (entry) gpuBytes[entry.kind] -= entry.size;
  sizes.delete(buffer);
});
around('GPUDevice', 'createBindGroup', () => counts.bindGroups++);
around('GPUDevice', 'createComputePipeline', () => counts.pipelines++);
around('GPUDevice', 'createComputePipelineAsync', () => counts.pipelines++);
around('GPUDevice', 'createShaderModule', () => counts.shaderModules++);
around('GPUComputePassEncoder', 'dispatchWorkgroups', () => counts.dispatches++);
around('GPUComputePassEncoder', 'dispatchWorkgroupsIndirect', () => counts.dispatches++);
around('GPUQueue', 'submit', (_queue, [buffers]) => ([...buffers].length ? counts.submits++ : counts.emptySubmits++));
around('GPUQueue', 'writeBuffer', (_queue, [, , data, offset = 0, size]) => {
  counts.writes++;
  counts.writeBytes += size ?? data.byteLength - offset;
});
around('GPUBuffer', 'mapAsync', (buffer, [mode, offset = 0, size]) => {
  if (!(mode & 1)) return;
  counts.readBacks++;
  counts.readBackBytes += size ?? buffer.size - offset;
});

// a token is an event {id, text} of the protocol
const post = globalThis.postMessage;
globalThis.postMessage = function (message, ...rest) {
  if (message?.type === 'event' && typeof message.event?.text === 'string') tokens.push({ ...counts });
  return post.call(globalThis, message, ...rest);
};

const channel = new BroadcastChannel('etwgpu-instrument');
channel.onmessage = ({ data }) => {
  if (data === 'clear') tokens.length = 0;
  if (data === 'get')
    channel.postMessage({ counts: { ...counts }, tokens: [...tokens], gpuBytes: { ...gpuBytes }, peakGpuBytes });
};
