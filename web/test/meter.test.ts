import { describe, expect, it } from 'vitest';
import type { Progress } from '../src/types.js';
import { Meter } from '../src/worker/meter.js';

const start = () => {
  const told: Progress[] = [];
  let now = 0;
  const meter = new Meter(
    (p) => told.push(p),
    () => now,
  );
  return { told, meter, later: (ms: number) => (now += ms) };
};

describe('Meter', () => {
  it('tells bytes, their origin and the time that is left', () => {
    const { told, meter, later } = start();
    meter.enter('runtime');
    meter.add(1000);
    meter.expect(100_000);
    meter.enter('download');
    for (let i = 1; i <= 4; ++i) {
      later(1000);
      meter.reach('a', 10_000 * i, 100_000, i <= 2);
    }
    expect(told.at(-1)).toEqual({ phase: 'download', loaded: 41_000, total: 101_000, cached: 20_000, secondsLeft: 6 });
    meter.finish();
    expect(told.at(-1)).toMatchObject({ phase: 'ready', loaded: 101_000, total: 101_000 });
  });

  it('never goes back: not for a file that is read again, nor after another tab has been waited for', () => {
    const { told, meter, later } = start();
    meter.expect(100);
    meter.enter('runtime');
    for (const step of [
      () => meter.wait(60),
      () => meter.enter('download'),
      () => meter.reach('a', 40, 100, true),
      () => meter.reach('a', 90, 100, false),
      () => meter.reach('a', 10, 100, false),
    ]) {
      later(100);
      step();
    }
    const loaded = told.map((p) => p.loaded);
    expect(loaded).toEqual([...loaded].sort((a, b) => a - b));
    expect(loaded.at(-1)).toBe(90);
  });

  it('is quiet between two reports, but tells the end', () => {
    const { told, meter, later } = start();
    meter.enter('download');
    for (let i = 1; i <= 1000; ++i) {
      later(1);
      meter.reach('a', i, 1000, false);
    }
    expect(told.length).toBeLessThan(25);
    expect(told.at(-1)?.loaded).toBe(1000);
  });
});
