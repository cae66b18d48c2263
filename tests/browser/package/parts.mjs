// A model folder for a host that limits the size of a file.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

/** Writes the model folder `from` once more into `to`, its program in three files. */
export function writeParts(from, to) {
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to, { recursive: true });
  const manifest = JSON.parse(readFileSync(path.join(from, 'manifest.json'), 'utf8'));
  const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');
  for (const file of manifest.files) {
    const bytes = readFileSync(path.join(from, file.path));
    if (file.path !== 'model.pte') {
      writeFileSync(path.join(to, file.path), bytes);
      continue;
    }
    // not at multiples of anything
    file.parts = [0, 7_000_003, 13_000_001].map((start, i, all) => {
      const part = bytes.subarray(start, all[i + 1]);
      const name = `model.${i}`;
      writeFileSync(path.join(to, name), part);
      const starts = Array.from({ length: Math.ceil(part.length / manifest.chunk_bytes) }, (_, n) => n);
      const chunks = starts.map((n) => sha256(part.subarray(n * manifest.chunk_bytes, (n + 1) * manifest.chunk_bytes)));
      return { path: name, size: part.length, sha256: sha256(part), chunks };
    });
  }
  writeFileSync(path.join(to, 'manifest.json'), JSON.stringify(manifest));
}
