// Pictures as tensors on the GPU: the browser puts the picture into a texture, and one kernel crops, scales, normalises and
// writes the tensor. No pixel passes through this thread's memory. Its sums are those of picture.ts.
import type { ImageInput } from '../image.js';
import type { GpuTensor } from '../tensor.js';
import { BITS, shapeOf, tapsOf, type Fit } from './picture.js';

const WGSL = `
struct P { size: vec2i, at: vec2i, part: vec2i, stride: vec2i, step: vec2i, down: i32, pad: f32, mean: vec3f, deviation: vec3f }
@group(0) @binding(0) var picture: texture_2d<f32>;
@group(0) @binding(1) var<storage, read> taps: array<i32>;
@group(0) @binding(2) var<storage, read_write> values: array<f32>;
@group(0) @binding(3) var<uniform> p: P;
const HALF = vec3i(${2 ** (BITS - 1)});
fn clip(sum: vec3i) -> vec3i { return clamp(sum >> vec3u(${BITS}), vec3i(0), vec3i(255)); }
@compute @workgroup_size(8, 8) fn main(@builtin(global_invocation_id) id: vec3u) {
  let here = vec2i(id.xy);
  if (any(here >= p.size)) { return; }
  let to = here - p.at;
  var value = vec3f(p.pad);
  if (all(to >= vec2i(0)) && all(to < p.part)) {
    let x = to.x * p.stride.x;
    let y = p.down + to.y * p.stride.y;
    var sum = HALF;
    for (var j = 0; j < taps[y + 1]; j++) {
      var line = HALF;
      for (var i = 0; i < taps[x + 1]; i++) {
        let texel = textureLoad(picture, vec2i(taps[x] + i, taps[y] + j), 0);
        line += vec3i(round(texel.rgb * 255)) * taps[x + 2 + i];
      }
      sum += clip(line) * taps[y + 2 + j];
    }
    value = vec3f(clip(sum));
  }
  value = (value - p.mean) / p.deviation;
  let at = (here.y * p.size.x + here.x) * p.step.x;
  values[at] = value.r;
  values[at + p.step.y] = value.g;
  values[at + 2 * p.step.y] = value.b;
}`;

/** What a picture of one size takes on its way; kept for the next one, as of a video. */
interface Stage {
  key: string;
  texture: GPUTexture;
  buffers: GPUBuffer[];
  group: GPUBindGroup;
  tensor: GpuTensor;
}

export class PictureStages {
  private pipeline: GPUComputePipeline | undefined;
  private readonly stages = new Map<number, Stage>();

  constructor(private readonly device: GPUDevice) {}

  /** The tensor of input number `index`, until that input's next picture; undefined where the browser can't do it. */
  async put(
    index: number,
    image: ImageBitmap | VideoFrame,
    fit: Fit,
    input: ImageInput,
  ): Promise<GpuTensor | undefined> {
    const { device } = this;
    const [left, top, width, height] = fit.source;
    if (Math.max(width, height) > device.limits.maxTextureDimension2D) return undefined;
    const stage = this.stage(index, fit, input);
    const fill = (source: ImageBitmap | VideoFrame) =>
      device.queue.copyExternalImageToTexture({ source, origin: [left, top] }, { texture: stage.texture }, [
        width,
        height,
      ]);
    try {
      fill(image);
    } catch {
      if (!('displayWidth' in image)) return undefined;
      // not a frame in this browser, or not such a one: by way of a bitmap, then
      const bitmap = await createImageBitmap(image).catch(() => undefined);
      if (bitmap?.width !== image.displayWidth || bitmap.height !== image.displayHeight) return undefined;
      fill(bitmap);
      bitmap.close();
    }
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass();
    pass.setPipeline(this.compiled());
    pass.setBindGroup(0, stage.group);
    pass.dispatchWorkgroups(Math.ceil(input.size[1] / 8), Math.ceil(input.size[0] / 8));
    pass.end();
    device.queue.submit([encoder.finish()]);
    return stage.tensor;
  }

  dispose(): void {
    for (const stage of this.stages.values()) free(stage);
    this.stages.clear();
  }

  private compiled(): GPUComputePipeline {
    const { device } = this;
    return (this.pipeline ??= device.createComputePipeline({
      layout: 'auto',
      compute: { module: device.createShaderModule({ code: WGSL }) },
    }));
  }

  private stage(index: number, { source, target }: Fit, input: ImageInput): Stage {
    const { size, mean = [0, 0, 0], std = [255, 255, 255], layout = 'NCHW', letterbox = 0 } = input;
    const resample = input.resample ?? 'bilinear';
    const key = JSON.stringify([source, target, size, mean, std, layout, letterbox, resample]);
    const known = this.stages.get(index);
    if (known?.key === key) return known;
    if (known) free(known);

    const [height, width] = size;
    const [x, y, w, h] = target;
    const across = tapsOf(source[2], w, resample);
    const down = tapsOf(source[3], h, resample);
    const words = new Int32Array(20);
    const step = layout === 'NCHW' ? [1, width * height] : [3, 1];
    words.set([width, height, x, y, w, h, across.stride, down.stride, ...step, across.words.length]);
    new Float32Array(words.buffer).set([letterbox, ...mean, 0, ...std], 11);
    const taps = new Int32Array(across.words.length + down.words.length);
    taps.set(across.words);
    taps.set(down.words, across.words.length);

    const { device } = this;
    const { STORAGE, UNIFORM, COPY_DST } = GPUBufferUsage;
    const filled = (data: Int32Array<ArrayBuffer>, usage: number) => {
      const buffer = device.createBuffer({ size: data.byteLength, usage: usage | COPY_DST });
      device.queue.writeBuffer(buffer, 0, data);
      return buffer;
    };
    const out = device.createBuffer({ size: Math.ceil((12 * width * height) / 16) * 16, usage: STORAGE });
    const buffers = [filled(taps, STORAGE), out, filled(words, UNIFORM)];
    const { TEXTURE_BINDING, RENDER_ATTACHMENT } = GPUTextureUsage;
    const texture = device.createTexture({
      size: [source[2], source[3]],
      format: 'rgba8unorm',
      usage: TEXTURE_BINDING | RENDER_ATTACHMENT | GPUTextureUsage.COPY_DST,
    });
    const group = device.createBindGroup({
      layout: this.compiled().getBindGroupLayout(0),
      entries: [texture.createView(), ...buffers.map((buffer) => ({ buffer }))].map((resource, binding) => ({
        binding,
        resource,
      })),
    });
    const tensor: GpuTensor = { dtype: 'f32', shape: shapeOf(input), buffer: out };
    const stage = { key, texture, buffers, group, tensor };
    this.stages.set(index, stage);
    return stage;
  }
}

function free({ texture, buffers }: Stage): void {
  texture.destroy();
  for (const buffer of buffers) buffer.destroy();
}
