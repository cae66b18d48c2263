// Folders that only tests have a use for.
import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { assert } from './runner.mjs';

const BUILD_MARK = 'etwgpu-build:';

/** The classifier as a folder of two variants; no GPU has what the first one needs. */
export function writeVariants(from, folder) {
  cpSync(from, folder, { recursive: true });
  const manifest = JSON.parse(readFileSync(path.join(from, 'manifest.json'), 'utf8'));
  const [variant] = manifest.variants;
  manifest.variants = [
    { ...variant, name: 'large', limits: { maxBufferSize: 1e15 } },
    { ...variant, name: 'small' },
  ];
  writeFileSync(path.join(folder, 'manifest.json'), JSON.stringify(manifest));
}

/** The WebAssembly builds as those of another version of the package, which differ in their build's id. */
export function writeStaleBuilds(from, folder) {
  cpSync(from, folder, { recursive: true });
  for (const build of readdirSync(folder)) {
    const file = path.join(folder, build, 'etwgpu.wasm');
    const bytes = readFileSync(file);
    const at = bytes.indexOf(BUILD_MARK);
    assert(at > 0, `${build}: no ${BUILD_MARK}`);
    bytes.write('0123456789abcdef', at + BUILD_MARK.length);
    writeFileSync(file, bytes);
  }
}

/** A decoder of 96 tokens as a model folder: they are the letters of ASCII, and one more. */
export function writeShortModel(program, folder) {
  mkdirSync(folder, { recursive: true });
  cpSync(program, path.join(folder, 'model.pte'));
  const tokens = Array.from({ length: 96 }, (_, i) => (i < 95 ? String.fromCharCode(32 + i) : '<end>'));
  const vocab = Object.fromEntries(tokens.map((token, i) => [token, i]));
  const nothing = { normalizer: null, pre_tokenizer: null, post_processor: null, added_tokens: [] };
  const tokenizer = { ...nothing, decoder: { type: 'Fuse' }, model: { type: 'BPE', vocab, merges: [] } };
  writeFileSync(path.join(folder, 'tokenizer.json'), JSON.stringify(tokenizer));
  const files = ['model.pte', 'tokenizer.json'].map((name) => ({
    path: name,
    size: statSync(path.join(folder, name)).size,
  }));
  const variants = [{ name: 'int4', program: 'model.pte' }];
  const manifest = { format: 1, name: 'short', task: 'text-generation', files, variants };
  writeFileSync(path.join(folder, 'manifest.json'), JSON.stringify(manifest));
}
