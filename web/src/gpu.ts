// WebGPU's types where there are any (TypeScript 6, or @webgpu/types), else what this package needs of them: its types
// stand alone also with a TypeScript whose DOM has no WebGPU.
type Global = typeof globalThis;

/** A GPUDevice. */
export type GpuDevice = Global extends { GPUDevice: { prototype: infer Device } }
  ? Device
  : { readonly queue: object; readonly features: object; readonly limits: object; destroy(): void };

/** A GPUBuffer. */
export type GpuBuffer = Global extends { GPUBuffer: { prototype: infer Buffer } }
  ? Buffer
  : { readonly size: number; readonly usage: number; destroy(): void };
