import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';

const builds = new URL('../dist/wasm/', import.meta.url);

describe('what a page downloads of the runtime', () => {
  const names = readdirSync(builds);

  it('is one of four builds', () => {
    expect(names).toHaveLength(4);
  });

  // all scripts, as the demo's report counts them, whatever a page uses of them
  const dist = new URL('../dist/', import.meta.url);
  const size = (file: URL) => gzipSync(readFileSync(file)).length;
  const scripts = readdirSync(dist)
    .filter((file) => file.endsWith('.js'))
    .reduce((sum, file) => sum + size(new URL(file, dist)), 0);

  it.each(names)('%s: at most 450 KB with the scripts, compressed by gzip', (name) => {
    const [wasm, glue] = ['wasm', 'mjs'].map((ending) => size(new URL(`${name}/etwgpu.${ending}`, builds)));
    expect(wasm).toBeGreaterThan(100_000);
    expect((wasm ?? 0) + (glue ?? 0) + scripts).toBeLessThanOrEqual(450_000);
  });
});
