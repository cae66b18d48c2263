// onnxruntime-web on WebGPU with one preallocated KV buffer a layer, which is the fastest way to drive it.
import { argmax } from './argmax.js';

const ORT = '/peers/onnxruntime-web/';
const USAGE = { storage: 128 | 4 | 8 }; // STORAGE | COPY_SRC | COPY_DST

async function bytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

export async function load({ model }) {
  const ort = await import(`${ORT}ort.webgpu.bundle.min.mjs`);
  ort.env.wasm.wasmPaths = new URL(ORT, location.href).href;
  const geometry = await (await fetch(`${model}geometry.json`)).json();
  const caches = Array.from({ length: geometry.layers }, (_, i) => [`${i}.key`, `${i}.value`]).flat();
  const program = model + geometry.file;
  const session = await ort.InferenceSession.create(await bytes(program), {
    executionProviders: [{ name: 'webgpu' }],
    externalData: [{ path: `${program.split('/').at(-1)}_data`, data: await bytes(`${program}_data`) }],
    preferredOutputLocation: Object.fromEntries(caches.map((name) => [`present.${name}`, 'gpu-buffer'])),
    graphOptimizationLevel: 'all',
  });
  const device = await ort.env.webgpu.device;
  const half = geometry.precision === 'f16';
  const row = (values) => new ort.Tensor('int64', BigInt64Array.from(values, BigInt), [1, values.length]);

  let shared = {};
  let capacity = 0;
  function reserve(positions) {
    if (positions === capacity) return;
    for (const tensor of Object.values(shared)) tensor.gpuBuffer.destroy();
    capacity = positions;
    const dims = [1, geometry.kv_heads, capacity, geometry.head_dim];
    const size = dims.reduce((a, b) => a * b) * (half ? 2 : 4);
    shared = Object.fromEntries(
      caches.map((name) => [
        name,
        ort.Tensor.fromGpuBuffer(device.createBuffer({ size, usage: USAGE.storage }), {
          dataType: half ? 'float16' : 'float32',
          dims,
        }),
      ]),
    );
  }

  async function step(ids, total) {
    const feeds = { input_ids: row(ids), attention_mask: row(new Array(total).fill(1)) };
    const fetches = { logits: null };
    for (const name of caches) {
      feeds[`past_key_values.${name}`] = shared[name];
      fetches[`present.${name}`] = shared[name];
    }
    const { logits } = await session.run(feeds, fetches);
    return argmax(logits.data);
  }

  let cached = [];
  return {
    vocabulary: geometry.vocabulary,
    async generate(ids, count, onToken) {
      const same = ids.length === cached.length && ids.every((id, i) => id === cached[i]);
      if (!same) reserve(ids.length + count + 16);
      let id = await step(same ? ids.slice(-1) : ids, ids.length);
      cached = ids;
      onToken(id);
      for (let total = ids.length + 1; total < ids.length + count; ++total) {
        id = await step([id], total);
        onToken(id);
      }
    },
    describe: () => ({
      runtime: 'onnxruntime-web',
      version: ort.env.versions.web ?? ort.env.versions.common,
      device: 'webgpu',
      precision: geometry.precision,
      f16: device.features.has('shader-f16'),
    }),
    dispose: () => session.release(),
  };
}
