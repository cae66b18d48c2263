// What the browser says of this device, in words first.
import type { Capabilities } from 'executorch-webgpu';
import { bytes, plural, whole } from '../model/format.js';

export interface Fact {
  words: string;
  value: string;
  /** Undefined where it is neither good nor bad. */
  good?: boolean;
  /** How specifications call it. */
  technical: string;
}

export function adapterName({ adapter }: Capabilities['webgpu']): string {
  const parts = [adapter?.vendor, adapter?.architecture].filter(Boolean).join(' ');
  return adapter?.description || parts || 'not named by the browser';
}

/** Kernels of a tier of the runtime's, in words. */
const MEANS: Record<string, string> = {
  'subgroup matrix': 'half precision and matrix units',
  subgroups: 'half precision and direct exchange',
  f16: 'half precision',
  baseline: 'the basics',
};

/** What models make use of here. */
export function means({ webgpu }: Capabilities, { tier }: Verdict): string {
  const chip = webgpu.available && !webgpu.adapter?.software;
  return chip ? (MEANS[tier] ?? tier) : 'the processor';
}

export interface Verdict {
  headline: string;
  text: string;
  tier: string;
}

export function verdict({ webgpu, wasm }: Capabilities): Verdict {
  if (!webgpu.available) {
    return {
      headline: 'Models run on the processor',
      text: `They work, more slowly than on a graphics chip: ${webgpu.reason ?? 'no reason is known'}.`,
      tier: wasm.tier ? `CPU, ${wasm.tier}` : 'none',
    };
  }
  const tier = (webgpu.tier ?? 'baseline').replace('_', ' ');
  if (webgpu.adapter?.software) {
    return {
      headline: 'The graphics chip is only imitated',
      text: 'The browser offers WebGPU, but a program on the processor plays the chip. So models run on the processor itself, which is faster.',
      tier,
    };
  }
  const text = {
    'subgroup matrix': 'It has everything that the runtime can make use of, matrix units among it.',
    subgroups: 'It has what makes models fast: half precision and direct exchange between its computing units.',
    f16: 'It computes in half precision, which halves what has to be read.',
    baseline: 'It has the basics; models run, though not as fast as they could with half precision.',
  }[tier];
  return { headline: 'Models run on the graphics chip', text: text ?? '', tier };
}

const FEATURES: [name: string, words: string][] = [
  ['shader-f16', 'Half precision: half the bytes for every number'],
  ['subgroups', 'Direct exchange: computing units pass numbers to each other'],
  ['chromium-experimental-subgroup-matrix', 'Matrix units: whole blocks of numbers are multiplied at once'],
  ['timestamp-query', 'Measures how long each step takes'],
];

const yesNo = (yes: boolean): Pick<Fact, 'value' | 'good'> => ({ value: yes ? 'Yes' : 'No', good: yes });

export function features({ webgpu, wasm }: Capabilities): Fact[] {
  const simd = wasm.tier === 'relaxed' ? 'Yes, fastest kind' : wasm.tier ? 'Yes' : 'No';
  return [
    ...FEATURES.map(([technical, words]) => ({ words, technical, ...yesNo(webgpu.features.includes(technical)) })),
    {
      words: 'The processor computes several numbers at once',
      technical: `WebAssembly ${wasm.tier === 'relaxed' ? 'relaxed SIMD' : 'SIMD'}`,
      value: simd,
      good: wasm.tier !== undefined,
    },
    {
      words: 'Several processor cores work together',
      technical: wasm.crossOriginIsolated ? 'cross-origin isolated' : 'not cross-origin isolated',
      value: wasm.threads > 1 ? plural(wasm.threads, 'thread') : 'One thread',
      good: wasm.threads > 1,
    },
  ];
}

const LIMITS: Record<string, [words: string, format: (value: number) => string]> = {
  maxBufferSize: ['Largest piece of graphics memory', bytes],
  maxStorageBufferBindingSize: ['Largest piece that one step sees', bytes],
  maxStorageBuffersPerShaderStage: ['Pieces that one step sees', whole],
  maxComputeInvocationsPerWorkgroup: ['Computing units of one group', whole],
  maxComputeWorkgroupStorageSize: ['Shared memory of one group', (value) => `${whole(value / 1024)} KiB`],
};

export function limits({ webgpu }: Capabilities): Fact[] {
  return Object.entries(webgpu.limits).map(([technical, value]) => {
    const [words, format] = LIMITS[technical] ?? [technical, whole];
    return { words, technical, value: format(value) };
  });
}

/** What this page shows of the device, for a report of a problem. */
export function deviceReport(found: Capabilities): object {
  const { headline, tier } = verdict(found);
  return { format: 1, date: new Date().toISOString(), browser: navigator.userAgent, headline, tier, ...found };
}

export async function storage(): Promise<Fact[]> {
  const { usage = 0, quota = 0 } = (await navigator.storage?.estimate?.()) ?? {};
  const persisted = (await navigator.storage?.persisted?.()) === true;
  return [
    {
      words: 'Kept by this page, of what the browser allows',
      technical: 'navigator.storage.estimate()',
      value: `${bytes(usage)} of ${bytes(quota)}`,
    },
    {
      words: 'Safe from being cleared when space runs low',
      technical: 'persistent storage',
      ...yesNo(persisted),
    },
  ];
}
