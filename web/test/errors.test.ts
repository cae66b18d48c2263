import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import * as errors from '../src/errors.js';

describe('errors', () => {
  it('has the codes of the runtime, in its order', () => {
    const header = readFileSync(new URL('../../runtime/core/status.h', import.meta.url), 'utf8');
    const body = /enum class Code : uint8_t \{([^}]*)\}/.exec(header)?.[1] ?? '';
    const names = body.replace(/\/\/.*/g, '').match(/\w+/g);
    expect(names).toEqual([...errors.RUNTIME_CODES]);
  });

  it('crosses the worker as its own class', () => {
    for (const code of errors.RUNTIME_CODES.slice(1) as errors.ErrorCode[]) {
      const original = errors.makeError(code, `about ${code}`);
      const wire = structuredClone(errors.toWire(original));
      const back = errors.fromWire(wire);
      expect(back).toBeInstanceOf(errors.ExecuTorchError);
      expect(back.constructor).toBe(original.constructor);
      expect(back).toMatchObject({ code, message: `about ${code}` });
    }
    expect(errors.makeError('device_lost', '')).toBeInstanceOf(errors.DeviceLostError);
    expect(errors.makeError('device_lost', '')).not.toBeInstanceOf(errors.GpuError);
  });

  it('names itself as its class is exported', () => {
    const byName = errors as unknown as Record<string, unknown>;
    for (const code of [
      ...errors.RUNTIME_CODES.slice(1),
      'worker_died',
      'disposed',
      'build_mismatch',
      'integrity',
      'package_missing',
      'unsupported_browser',
    ] as errors.ErrorCode[]) {
      const error = errors.makeError(code, '');
      expect(byName[code === 'cancelled' ? 'CancelledError' : error.name]).toBe(error.constructor);
    }
  });

  it('is documented, each with its code, a cause and a cure', () => {
    const page = readFileSync(new URL('../../docs/web/errors.md', import.meta.url), 'utf8');
    const rows = [...page.matchAll(/^\| `(\w+)` +\| `(\w+)` +\| (.+?) +\| (.+?) +\|$/gm)];
    const documented = new Map(rows.map(([, name, code]) => [name, code]));
    const classes = Object.entries(errors).filter(
      ([name, value]) => typeof value === 'function' && value.prototype instanceof errors.ExecuTorchError && name,
    );
    expect(classes.length).toBeGreaterThan(15);
    expect([...documented.keys()].sort()).toEqual(classes.map(([name]) => name).sort());
    for (const [name, code] of documented) {
      const made = errors.makeError(code as errors.ErrorCode, '');
      expect(made.constructor).toBe((errors as unknown as Record<string, unknown>)[name as string]);
    }
  });

  it('calls a cancellation what the platform calls it', () => {
    expect(errors.fromWire({ code: 'cancelled', message: '' }).name).toBe('AbortError');
    expect(errors.toWire(new DOMException('stopped', 'AbortError')).code).toBe('cancelled');
  });

  it('knows an allocation failure from a bug', () => {
    expect(errors.toWire(new RangeError('Array buffer allocation failed')).code).toBe('out_of_memory');
    expect(errors.toWire(new TypeError('x is undefined'))).toEqual({
      code: 'internal',
      message: 'TypeError: x is undefined',
    });
    expect(errors.toWire('text').code).toBe('internal');
  });
});
