import { describe, expect, it } from 'vitest';
import { Channel, type Port } from '../src/channel.js';
import { DisposedError, makeError } from '../src/errors.js';
import type { ToWorker } from '../src/protocol.js';
import { Session } from '../src/session.js';
import type { SessionInfo } from '../src/types.js';

type Call = Extract<ToWorker, { type: 'call' }>;

/** A worker that answers every call at once, and the calls. */
function worker(answer: (call: Call) => unknown = () => null) {
  const calls: Call[] = [];
  const port: Port = {
    postMessage: (message) => {
      if (message.type !== 'call') return;
      calls.push(message);
      queueMicrotask(() =>
        port.onmessage?.({ data: { type: 'reply', id: message.id, result: answer(message) } } as MessageEvent),
      );
    },
    terminate: () => undefined,
    onmessage: null,
    onmessageerror: null,
    onerror: null,
  };
  return { channel: new Channel(port), calls };
}

let next = 1;
const numbered = ({ name }: Call) => (name === 'newSequence' ? { sequence: next++, stateBytes: 64 } : { text: name });
const info = {} as SessionInfo;

describe('sequences', () => {
  it('name themselves in each of their calls', async () => {
    const { channel, calls } = worker(numbered);
    const session = new Session(channel, info, () => Promise.reject(new Error('unused')));
    const other = await session.newSequence();
    expect(other.stateBytes).toBe(64);
    for (const place of [other, session]) {
      await place.generate('a', { maxTokens: 1 });
      await place.saveState();
      await place.restoreState(new Blob([]));
      await place.reset();
    }
    const numbers = calls.slice(1).map(({ params }) => (params as { sequence: number }).sequence);
    expect(new Set(numbers.slice(0, 4)).size).toBe(1);
    expect(numbers[0]).toBeGreaterThan(0);
    expect(numbers.slice(4)).toEqual([0, 0, 0, 0]);
  });

  it('are gone once disposed of, and leave the session alone', async () => {
    const { channel, calls } = worker(numbered);
    const session = new Session(channel, info, () => Promise.reject(new Error('unused')));
    const other = await session.newSequence();
    await other.dispose();
    await other.dispose();
    expect(calls.filter((call) => call.name === 'disposeSequence')).toHaveLength(1);
    await expect(other.generate('a')).rejects.toBeInstanceOf(DisposedError);
    await expect(other.saveState()).rejects.toBeInstanceOf(DisposedError);
    await expect(other.reset()).rejects.toBeInstanceOf(DisposedError);
    expect((await session.generate('a')).text).toBe('generate');
  });

  it('end with the session, also where it is reloaded', async () => {
    const [first, second] = [worker(numbered), worker(numbered)];
    const session = new Session(first.channel, info, () => Promise.resolve({ channel: second.channel, info }));
    const other = await session.newSequence();
    await session.reload();
    await expect(other.generate('a')).rejects.toBeInstanceOf(DisposedError);
    await other.dispose();
    const another = await session.newSequence();
    await session.dispose();
    await expect(another.generate('a')).rejects.toMatchObject(makeError('disposed', 'the session was disposed of'));
  });
});
