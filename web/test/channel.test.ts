import { describe, expect, it, vi } from 'vitest';
import { Channel, type Port } from '../src/channel.js';
import { DisposedError, makeError, OutOfMemoryError, WorkerDiedError } from '../src/errors.js';
import { Generation } from '../src/generation.js';
import type { FromWorker, ToWorker } from '../src/protocol.js';
import type { GeneratedToken, GenerateResult } from '../src/types.js';

class FakeWorker implements Port {
  sent: ToWorker[] = [];
  terminated = false;
  onmessage: Port['onmessage'] = null;
  onmessageerror: Port['onmessageerror'] = null;
  onerror: Port['onerror'] = null;
  postMessage(message: ToWorker): void {
    this.sent.push(structuredClone(message));
  }
  terminate(): void {
    this.terminated = true;
  }
  say(message: FromWorker): void {
    this.onmessage?.({ data: structuredClone(message) } as MessageEvent);
  }
}
const start = () => {
  const worker = new FakeWorker();
  return { worker, channel: new Channel(worker) };
};

describe('Channel', () => {
  it('matches replies by id, in any order', async () => {
    const { worker, channel } = start();
    const first = channel.call('tokenize', { prompt: 'a' });
    const second = channel.call('tokenize', { prompt: 'b' });
    worker.say({ type: 'reply', id: 2, result: [2] });
    worker.say({ type: 'reply', id: 1, result: [1] });
    expect([await first, await second]).toEqual([[1], [2]]);
  });

  it('rejects with the class of the error', async () => {
    const { worker, channel } = start();
    const call = channel.call('memory', {});
    worker.say({ type: 'error', id: 1, error: { code: 'out_of_memory', message: 'no memory for weights' } });
    await expect(call).rejects.toBeInstanceOf(OutOfMemoryError);
  });

  it('rejects everything that waits when the worker dies', async () => {
    const { worker, channel } = start();
    const calls = [channel.call('memory', {}), channel.call('inspect', {})];
    worker.onerror?.({ message: 'boom' } as ErrorEvent);
    for (const call of calls) await expect(call).rejects.toBeInstanceOf(WorkerDiedError);
    await expect(channel.call('memory', {})).rejects.toBeInstanceOf(WorkerDiedError);
    expect(worker.terminated).toBe(true);
  });

  it('rejects everything that waits when it is closed', async () => {
    const { channel } = start();
    const call = channel.call('memory', {});
    channel.close(makeError('disposed', 'gone'));
    await expect(call).rejects.toBeInstanceOf(DisposedError);
  });

  it('tells the worker of an abort, once, and still takes the reply', async () => {
    const { worker, channel } = start();
    const controller = new AbortController();
    const call = channel.call('tokenize', { prompt: 'a' }, { signal: controller.signal });
    controller.abort();
    expect(worker.sent.at(-1)).toEqual({ type: 'abort', id: 1 });
    worker.say({ type: 'reply', id: 1, result: [7] });
    expect(await call).toEqual([7]);
  });

  it('sends nothing if the signal has fired before', async () => {
    const { worker, channel } = start();
    await expect(channel.call('memory', {}, { signal: AbortSignal.abort() })).rejects.toMatchObject({
      name: 'AbortError',
    });
    expect(worker.sent).toEqual([]);
  });

  it('rejects what cannot be cloned', async () => {
    const { channel } = start();
    const inputs = [(() => 1) as never];
    await expect(channel.call('run', { method: 'forward', inputs, places: [] })).rejects.toMatchObject({
      code: 'invalid_argument',
    });
  });
});

const RESULT: GenerateResult = {
  text: 'ab',
  tokenIds: [1, 2],
  finishReason: 'stop',
  timings: { promptTokens: 1, reusedTokens: 0, prefillMs: 0, decodeTokens: 1, decodeMs: 0 },
};
describe('Generation', () => {
  const pieces =
    (...texts: string[]) =>
    async (onToken: (t: GeneratedToken) => void) => {
      for (const [id, text] of texts.entries()) {
        await Promise.resolve();
        onToken({ id, text });
      }
      return RESULT;
    };

  it('can be awaited and iterated, also after its end', async () => {
    const generation = new Generation(pieces('a', '', 'b'));
    expect(await generation).toBe(RESULT);
    const seen: string[] = [];
    for await (const piece of generation) seen.push(piece);
    expect(seen).toEqual(['a', 'b']);
  });

  it('rejects the loop and the promise alike', async () => {
    const generation = new Generation(() => Promise.reject(makeError('device_lost', 'gone')));
    await expect(generation).rejects.toMatchObject({ code: 'device_lost' });
    await expect(
      (async () => {
        for await (const piece of generation) expect(piece).toBe('never');
      })(),
    ).rejects.toMatchObject({ code: 'device_lost' });
  });

  it('stops when the loop is left early', async () => {
    const stopped = vi.fn();
    const generation = new Generation(async (onToken, signal) => {
      onToken({ id: 1, text: 'a' });
      await new Promise<void>((resolve) =>
        signal.addEventListener('abort', () => {
          stopped();
          resolve();
        }),
      );
      return RESULT;
    });
    for await (const piece of generation) {
      expect(piece).toBe('a');
      break;
    }
    expect(stopped).toHaveBeenCalledOnce();
    await generation;
  });
});
