import { describe, expect, it } from 'vitest';
import type { LoadRequest } from '../src/protocol.js';
import { chooseDevice } from '../src/worker/load.js';
import type { Adapter, WasmModule } from '../src/worker/module.js';

describe('a GPU in software', () => {
  it.each([
    ['llvmpipe', 'the GPU here is one in software (llvmpipe), and the CPU path is faster'],
    ['', 'the GPU here is one in software, and the CPU path is faster'], // Firefox tells no name
  ])('called %j is not taken, with a reason', async (description, reason) => {
    const adapter = { vendor: '', architecture: '', description, software: true } as Adapter;
    const module = { createDevice: () => Promise.resolve(adapter) } as unknown as WasmModule;
    const request = (device: string) => ({ device, debug: {} }) as LoadRequest;
    expect(await chooseDevice(module, request('auto'))).toEqual({ reason });
    expect(await chooseDevice(module, request('webgpu'))).toEqual({ adapter });
  });
});
