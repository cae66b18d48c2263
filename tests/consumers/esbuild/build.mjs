// esbuild leaves `new URL(…, import.meta.url)` alone: the worker and the WebAssembly builds are copied beside the output.
import { cpSync, readdirSync } from 'node:fs';
import { build } from 'esbuild';

await build({
  entryPoints: ['main.ts'],
  bundle: true,
  format: 'esm',
  target: 'es2022',
  outdir: 'dist',
  logLevel: 'warning',
});
// by itself: what a bundle of a few small things has in it
await build({
  entryPoints: ['tensor.js'],
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  outdir: 'dist',
  logLevel: 'warning',
});
const PACKAGE = 'node_modules/executorch-webgpu/dist';
for (const name of readdirSync(PACKAGE).filter((file) => /^(worker\.js|shared-.*\.js|wasm)$/.test(file))) {
  cpSync(`${PACKAGE}/${name}`, `dist/${name}`, { recursive: true });
}
