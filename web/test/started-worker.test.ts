import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { CancelledError, WorkerDiedError } from '../src/errors.js';
import { startedWorker } from '../src/started-worker.js';

const PREPARATION = { type: 'prepare' as const, moduleUrl: 'https://a.test/etwgpu.mjs', threads: 3 };

class FakeWorker {
  terminated = false;
  readonly received: unknown[] = [];
  onmessage: ((event: MessageEvent) => void) | null = null;
  onerror: ((event: ErrorEvent) => void) | null = null;
  terminate(): void {
    this.terminated = true;
  }
  postMessage(message: unknown): void {
    this.received.push(message);
  }
  say(type: 'started' | 'ready'): void {
    this.onmessage?.({ data: { type } } as MessageEvent);
  }
  start(): void {
    this.say('started');
    expect(this.received).toEqual([PREPARATION]);
    this.say('ready');
  }
}

describe('startedWorker', () => {
  let made: FakeWorker[];
  const make = () => {
    made.push(new FakeWorker());
    return made.at(-1) as unknown as Worker;
  };
  const makeOnce = () => () => {
    if (made.length) throw new Error('no more');
    return make();
  };
  const at = (index: number) => made[index] as FakeWorker;
  beforeEach(() => {
    made = [];
    vi.useFakeTimers();
  });
  afterEach(() => {
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  it('is the first worker, where that speaks', async () => {
    const started = startedWorker(make, PREPARATION);
    await vi.advanceTimersByTimeAsync(9_000);
    at(0).start();
    expect(await started).toBe(at(0));
    expect(made.length).toBe(1);
    expect(at(0).terminated).toBe(false);
  });

  it('is another one where the first is silent', async () => {
    const started = startedWorker(make, PREPARATION);
    await vi.advanceTimersByTimeAsync(10_000);
    at(1).start();
    expect(await started).toBe(at(1));
    expect([at(0).terminated, at(1).terminated]).toEqual([true, false]);
  });

  it('is another one where the first hangs over its threads', async () => {
    const started = startedWorker(make, PREPARATION);
    at(0).say('started');
    await vi.advanceTimersByTimeAsync(1_000);
    at(1).start();
    expect(await started).toBe(at(1));
    expect([at(0).terminated, at(1).terminated]).toEqual([true, false]);
  });

  it('is the first one after all, where that was only slow', async () => {
    const started = startedWorker(make, PREPARATION);
    await vi.advanceTimersByTimeAsync(25_000);
    at(0).start();
    expect(await started).toBe(at(0));
    expect(made.map((w) => w.terminated)).toEqual([false, true, true]);
  });

  it('gives up after five tries and two minutes', async () => {
    const started = expect(startedWorker(make, PREPARATION)).rejects.toBeInstanceOf(WorkerDiedError);
    await vi.advanceTimersByTimeAsync(120_000);
    await started;
    expect(made.map((w) => w.terminated)).toEqual(Array(5).fill(true));
  });

  it('fails when a script cannot be loaded', async () => {
    const started = expect(startedWorker(make, PREPARATION)).rejects.toThrow(
      /its script could not be loaded.*origin.*workerUrl/,
    );
    at(0).onerror?.({ message: '' } as ErrorEvent);
    await started;
    expect(at(0).terminated).toBe(true);
  });

  it('fails at once where a worker cannot be made', async () => {
    const refused = () => {
      throw new DOMException('of another origin', 'SecurityError');
    };
    await expect(startedWorker(refused, PREPARATION)).rejects.toThrow('of another origin');
    const first = makeOnce();
    const started = expect(startedWorker(first, PREPARATION)).rejects.toThrow('no more');
    await vi.advanceTimersByTimeAsync(10_000);
    await started;
    expect(at(0).terminated).toBe(true);
  });

  it('ends with its signal', async () => {
    const abort = new AbortController();
    const started = expect(startedWorker(make, PREPARATION, abort.signal)).rejects.toBeInstanceOf(CancelledError);
    abort.abort();
    await started;
    expect(at(0).terminated).toBe(true);
  });
});
