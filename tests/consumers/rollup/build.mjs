// Rollup, like esbuild, leaves `new URL(…, import.meta.url)` alone.
import { cpSync, readdirSync } from 'node:fs';
import { nodeResolve } from '@rollup/plugin-node-resolve';
import { rollup } from 'rollup';

const bundle = await rollup({ input: 'main.ts', plugins: [nodeResolve()] });
await bundle.write({ dir: 'dist', format: 'es', entryFileNames: '[name].js' });
await bundle.close();
const PACKAGE = 'node_modules/executorch-webgpu/dist';
for (const name of readdirSync(PACKAGE).filter((file) => /^(worker\.js|shared-.*\.js|wasm)$/.test(file))) {
  cpSync(`${PACKAGE}/${name}`, `dist/${name}`, { recursive: true });
}
