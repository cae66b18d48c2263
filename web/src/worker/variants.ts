// Which of a model folder's variants runs here, and why.
import { makeError } from '../errors.js';
import type { Capabilities, Manifest, ManifestVariant } from '../types.js';

export interface Chosen {
  variant: ManifestVariant;
  /** For people. */
  reason: string;
}

/** Part of the machine's memory that a model may take: the rest is the browser's and everybody else's. */
const SHARE = 0.35;
const GIGABYTE = 1e9;
/** Where the browser does not tell: a phone, and anything else. */
const ASSUMED = { mobile: 4, other: 8 };

interface Machine {
  deviceMemory?: number;
  userAgentData?: { mobile?: boolean };
}

/** Bytes that a model may take here. Browsers round `deviceMemory` to a power of two and end at 8. */
export function memoryBudget(machine: Machine = (globalThis.navigator ?? {}) as Machine): number {
  const mobile =
    machine.userAgentData?.mobile ?? /Android|iPhone|iPad|Mobile/.test((machine as Navigator).userAgent ?? '');
  const gigabytes = machine.deviceMemory ?? (mobile ? ASSUMED.mobile : ASSUMED.other);
  // 8 means 8 or more, as far as anybody can tell: no reason to refuse anything
  return gigabytes >= 8 && !mobile ? Infinity : gigabytes * GIGABYTE * SHARE;
}

/** Bytes of a variant's files. */
export function variantBytes(manifest: Manifest, variant: ManifestVariant): number {
  const size = (path: string | undefined) => manifest.files.find((f) => f.path === path)?.size ?? 0;
  return size(variant.program) + size(variant.data);
}

/** Why a variant does not suit, or undefined. */
function objection(
  variant: ManifestVariant,
  bytes: number,
  gpu: Capabilities['webgpu'] | undefined,
  budget: number,
): string | undefined {
  if (bytes > budget) {
    return `${variant.name} takes ${(bytes / GIGABYTE).toFixed(2)} GB, ${(budget / GIGABYTE).toFixed(2)} GB are for models here`;
  }
  if (!gpu?.available) return undefined;
  if (variant.dtype === 'f16' && !gpu.features.includes('shader-f16')) {
    return `${variant.name} computes in f16, this GPU does not`;
  }
  for (const [name, needed] of Object.entries(variant.limits ?? {})) {
    const here = gpu.limits[name];
    if (here !== undefined && here < needed) return `${variant.name} needs ${name} ${needed}, this GPU has ${here}`;
  }
  return undefined;
}

/**
 * The first variant of the manifest that suits, in its order (best first); the smallest where none does.
 * @throws InvalidArgumentError for a name that is not there.
 */
export async function chooseVariant(
  manifest: Manifest,
  wanted: { variant?: string; device: 'auto' | 'webgpu' | 'wasm' },
  ask: () => Promise<Capabilities>,
  budget = memoryBudget(),
): Promise<Chosen | undefined> {
  const { variants } = manifest;
  if (wanted.variant !== undefined) {
    const variant = variants.find((v) => v.name === wanted.variant);
    if (variant) return { variant, reason: 'it was asked for' };
    const names = variants.map((v) => v.name).join(', ');
    throw makeError('invalid_argument', `variant: there is no '${wanted.variant}', only ${names}`);
  }
  const [only] = variants;
  if (!only || variants.length === 1) return only && { variant: only, reason: 'it is the only one' };
  const gpu = wanted.device === 'wasm' ? undefined : (await ask()).webgpu;
  const objections: string[] = [];
  for (const variant of variants) {
    const problem = objection(variant, variantBytes(manifest, variant), gpu, budget);
    if (problem === undefined) return { variant, reason: objections.join('; ') || 'it is the first choice' };
    objections.push(problem);
  }
  const smallest = variants.reduce((a, b) => (variantBytes(manifest, b) < variantBytes(manifest, a) ? b : a));
  return { variant: smallest, reason: `it is the smallest, and none suits: ${objections.join('; ')}` };
}
