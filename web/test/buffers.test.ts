import { describe, expect, it } from 'vitest';
import { Channel, type Port } from '../src/channel.js';
import type { ToWorker } from '../src/protocol.js';
import { Session } from '../src/session.js';
import type { GpuTensor, OutputPlace } from '../src/tensor.js';
import type { SessionInfo } from '../src/types.js';

/** A session whose engine answers with no outputs, and the calls that reached it. */
function session(onOwnDevice: boolean) {
  const calls: ToWorker[] = [];
  const port: Port = {
    postMessage: (message) => {
      calls.push(message);
      const id = 'id' in message ? message.id : 0;
      queueMicrotask(() => port.onmessage?.({ data: { type: 'reply', id, result: [] } } as MessageEvent));
    },
    terminate: () => undefined,
    onmessage: null,
    onmessageerror: null,
    onerror: null,
  };
  const never = () => Promise.reject(new Error('unused'));
  return { calls, it: new Session(new Channel(port), {} as SessionInfo, never, onOwnDevice) };
}
const buffer = { usage: 0x80, size: 64 } as GPUBuffer;
const input: GpuTensor = { dtype: 'f32', shape: [4], buffer };

describe('GPU buffers', () => {
  it('need a device of the caller, and say so', async () => {
    const s = session(false);
    const refusal = { code: 'invalid_argument', message: expect.stringMatching(/device.*worker: false/) as string };
    await expect(s.it.run([input])).rejects.toMatchObject(refusal);
    for (const outputs of ['gpu', ['cpu', 'gpu'], buffer, [{ buffer }]] as (OutputPlace | OutputPlace[])[])
      await expect(s.it.run([1], { outputs })).rejects.toMatchObject(refusal);
    expect(s.calls).toEqual([]);
    for (const outputs of ['cpu', ['cpu', 'cpu']] as (OutputPlace | OutputPlace[])[]) await s.it.run([1], { outputs });
    expect(s.calls).toHaveLength(2);
  });

  it('reach the engine as they are', async () => {
    const s = session(true);
    await s.it.run([input, 2], { outputs: ['gpu', buffer], method: 'm' });
    await s.it.run([input], { outputs: 'gpu' });
    await s.it.run([input]);
    expect(s.calls.map((call) => 'params' in call && call.params)).toEqual([
      { method: 'm', inputs: [input, 2], places: ['gpu', buffer] },
      { method: 'forward', inputs: [input], places: ['gpu'] },
      { method: 'forward', inputs: [input], places: [] },
    ]);
  });
});
