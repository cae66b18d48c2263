// What this browser can do, found out without loading anything.
import type { Capabilities, GpuTier, WasmTier } from './types.js';

const validates = (bytes: number[]): boolean =>
  WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, ...bytes]));
// (func (result v128) (i8x16.popcnt (i8x16.splat (i32.const 0))))
const hasSimd = () => validates([1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11]);
// (func (param v128) (result v128) (i32x4.relaxed_dot_i8x16_i7x16_add_s (local.get 0) (local.get 0) (local.get 0)))
const hasRelaxedSimd = () =>
  validates([1, 6, 1, 96, 1, 123, 1, 123, 3, 2, 1, 0, 10, 13, 1, 11, 0, 32, 0, 32, 0, 32, 0, 253, 147, 2, 11]);

/** The WebAssembly build for this browser: known before anything is downloaded. */
export function wasmTier(): WasmTier | undefined {
  return hasRelaxedSimd() ? 'relaxed' : hasSimd() ? 'simd128' : undefined;
}

export function canUseThreads(): boolean {
  return globalThis.crossOriginIsolated && typeof SharedArrayBuffer === 'function';
}

/** More threads than this did not pay: memory is the limit of decoding. */
const MOST_THREADS = 4;

export function defaultThreads(): number {
  return canUseThreads() ? Math.max(1, Math.min(navigator.hardwareConcurrency || 1, MOST_THREADS)) : 1;
}

const LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupStorageSize',
] as const;

interface AdapterInfo {
  vendor?: string;
  architecture?: string;
  description?: string;
  isFallbackAdapter?: boolean;
}

/** Browsers do not tell the kind of an adapter, but software ones are a fallback or name themselves. */
export function isSoftware(adapter: AdapterInfo): boolean {
  if (adapter.isFallbackAdapter) return true;
  const text = `${adapter.vendor} ${adapter.architecture} ${adapter.description}`;
  return /swiftshader|llvmpipe|lavapipe|basic render|software/i.test(text);
}

/** The runtime's tiers of kernels, by what the adapter offers. */
function tierOf(features: GPUSupportedFeatures): GpuTier {
  if (!features.has('shader-f16')) return 'baseline';
  if (!features.has('subgroups')) return 'f16';
  return features.has('chromium-experimental-subgroup-matrix') ? 'subgroup_matrix' : 'subgroups';
}

async function webgpu(): Promise<Capabilities['webgpu']> {
  const none = (reason: string): Capabilities['webgpu'] => ({ available: false, reason, features: [], limits: {} });
  if (!globalThis.isSecureContext) return none('WebGPU needs a secure context (https or localhost)');
  if (!('gpu' in navigator) || !navigator.gpu) return none('this browser has no WebGPU');
  try {
    const adapter = await navigator.gpu.requestAdapter({ powerPreference: 'high-performance' }); // as the runtime does
    if (!adapter) return none('the browser found no GPU adapter');
    const { vendor, architecture, description } = adapter.info;
    return {
      available: true,
      adapter: { vendor, architecture, description, software: isSoftware(adapter.info) },
      features: [...adapter.features].sort(),
      tier: tierOf(adapter.features),
      limits: Object.fromEntries(LIMITS.map((name) => [name, Number(adapter.limits[name])])),
    };
  } catch (error) {
    return none(`asking for an adapter failed: ${String(error)}`);
  }
}

export async function capabilities(): Promise<Capabilities> {
  const tier = wasmTier();
  return {
    webgpu: await webgpu(),
    wasm: {
      ...(tier && { tier }),
      crossOriginIsolated: globalThis.crossOriginIsolated === true,
      threads: defaultThreads(),
    },
  };
}
