// Rollup, like esbuild, leaves `new URL(…, import.meta.url)` alone.
import { cpSync } from 'node:fs';
import { nodeResolve } from '@rollup/plugin-node-resolve';
import { rollup } from 'rollup';

const bundle = await rollup({ input: 'main.ts', plugins: [nodeResolve()] });
await bundle.write({ dir: 'dist', format: 'es', entryFileNames: '[name].js' });
await bundle.close();
cpSync('node_modules/executorch-webgpu/dist', 'dist', { recursive: true });
