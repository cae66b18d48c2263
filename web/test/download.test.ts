import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';

const builds = new URL('../dist/wasm/', import.meta.url);

describe('what a page downloads of the runtime', () => {
  const names = readdirSync(builds);

  it('is one of four builds', () => {
    expect(names).toHaveLength(4);
  });

  it.each(names)('%s: at most 450 KB of .wasm and .mjs, compressed by gzip', (name) => {
    const folder = new URL(`${name}/`, builds);
    const size = (file: string) => gzipSync(readFileSync(new URL(file, folder))).length;
    expect(size('etwgpu.wasm')).toBeGreaterThan(100_000);
    expect(size('etwgpu.wasm') + size('etwgpu.mjs')).toBeLessThanOrEqual(450_000);
  });
});
