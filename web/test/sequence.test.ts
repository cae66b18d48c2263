import { describe, expect, it } from 'vitest';
import { Channel, type Port } from '../src/channel.js';
import { CancelledError, DisposedError, InvalidArgumentError, makeError } from '../src/errors.js';
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

describe('signals', () => {
  const session = () => {
    const { channel, calls } = worker(numbered);
    const reload = () => Promise.resolve({ channel: worker(numbered).channel, info });
    return { session: new Session(channel, info, reload), calls };
  };
  const methods: [name: string, call: (s: Session, signal: AbortSignal) => PromiseLike<unknown>][] = [
    ['run', (s, signal) => s.run([], { signal })],
    ['generate', (s, signal) => s.generate('a', { signal })],
    ['tokenize', (s, signal) => s.tokenize('a', { signal })],
    ['saveState', (s, signal) => s.saveState({ signal })],
    ['restoreState', (s, signal) => s.restoreState(new Blob([]), { signal })],
    ['reset', (s, signal) => s.reset({ signal })],
    ['newSequence', (s, signal) => s.newSequence({ signal })],
    ['setAdapterScale', (s, signal) => s.setAdapterScale('a', 1, { signal })],
    ['reload', (s, signal) => s.reload({ signal })],
  ];

  it.each(methods)('%s with one that has fired does nothing and is an AbortError', async (_, call) => {
    const { session: it, calls } = session();
    const error: unknown = await call(it, AbortSignal.abort('no')).then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(CancelledError);
    expect(error).toMatchObject({ name: 'AbortError', code: 'cancelled', cause: 'no' });
    expect(calls).toEqual([]);
    expect((await it.generate('a')).text).toBe('generate');
  });

  it.each(methods)('%s refuses what is none', async (_, call) => {
    const { session: it, calls } = session();
    const none = 'stop' as unknown as AbortSignal;
    await expect((async () => await call(it, none))()).rejects.toBeInstanceOf(InvalidArgumentError);
    expect(calls).toEqual([]);
  });
});
