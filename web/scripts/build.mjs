// Builds web/dist: types by tsc, two scripts by rolldown, and the WebAssembly builds out of ../build/wasm-*.
import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';
import { minifySync } from 'rolldown/utils';

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const dist = path.join(root, 'dist');
const BUILDS = ['relaxed', 'simd128', 'relaxed-threads', 'simd128-threads'];
// For work on one build alone: those that are missing are left out.
const partial = process.env.ETWGPU_PARTIAL_BUILD === '1';

function wasmBuilds() {
  const found = BUILDS.map((name) => ({ name, folder: path.join(root, '../build', `wasm-${name}`) })).filter(
    ({ folder }) => existsSync(path.join(folder, 'etwgpu.wasm')),
  );
  if (found.length === 0 || (found.length < BUILDS.length && !partial)) {
    throw new Error(
      `only these WebAssembly builds are there: ${found.map((b) => b.name).join(', ') || 'none'}; run make wasm`,
    );
  }
  return found;
}

/** The id that CMake baked in, found in the binary. */
function buildId(file) {
  const match = /etwgpu-build:[0-9a-f]{16}/.exec(readFileSync(file, 'latin1'));
  if (!match) throw new Error(`${file} has no build id`);
  return match[0];
}

const builds = wasmBuilds();
const ids = new Set(builds.map(({ folder }) => buildId(path.join(folder, 'etwgpu.wasm'))));
if (ids.size > 1 && !partial) throw new Error(`the WebAssembly builds differ: ${[...ids].join(', ')}; run make wasm`);

/** jinja writes templates out again, too: 1.3 KB of the download that nothing here calls. */
const withoutFormatter = {
  name: 'without-formatter',
  transform(code, id) {
    if (!/huggingface.jinja.dist/.test(id)) return null;
    const call = 'return format(this.parsed';
    if (code.split(call).length !== 2) throw new Error(`${id}: Template.format has changed`);
    return { code: code.replace(call, 'return (this.parsed'), map: null };
  },
};

rmSync(dist, { recursive: true, force: true });
execFileSync(process.execPath, [path.join(root, '../node_modules/typescript/bin/tsc'), '-p', 'tsconfig.types.json'], {
  cwd: root,
  stdio: 'inherit',
});
const bundle = await rolldown({
  input: {
    index: path.join(root, 'src/index.ts'),
    tasks: path.join(root, 'src/tasks/index.ts'),
    openai: path.join(root, 'src/openai.ts'),
    worker: path.join(root, 'src/worker.ts'),
  },
  platform: 'browser',
  plugins: [withoutFormatter],
  tsconfig: path.join(root, 'tsconfig.json'),
  transform: { define: { ETWGPU_BUILD_ID: JSON.stringify([...ids][0]) } },
});
await bundle.write({
  dir: dist,
  format: 'esm',
  minify: true,
  sourcemap: true,
  chunkFileNames: 'shared-[hash].js',
  // one file of what several need, not one for each set of them: smaller, and fewer requests
  codeSplitting: { groups: [{ name: 'shared', test: /[\\/]src[\\/](?!worker)/, minShareCount: 2 }] },
});
await bundle.close();
// types of what nobody can import
rmSync(path.join(dist, 'worker'), { recursive: true });
writeFileSync(path.join(dist, 'worker.d.ts'), 'export {};\n');

// what the package contains of others, and under which licences
copyFileSync(path.join(root, '../LICENSE'), path.join(root, 'LICENSE'));
const notices = ['@huggingface/jinja', '@huggingface/tokenizers'].map((name) => {
  const folder = path.join(root, '../node_modules', name);
  const { version, license } = JSON.parse(readFileSync(path.join(folder, 'package.json'), 'utf8'));
  return `${name} ${version} (${license})\n\n${readFileSync(path.join(folder, 'LICENSE'), 'utf8')}`;
});
writeFileSync(
  path.join(root, 'THIRD-PARTY-NOTICES.txt'),
  `dist/ contains the following packages.\n\n${notices.join(`\n${'-'.repeat(80)}\n\n`)}`,
);

for (const { name, folder } of builds) {
  const to = path.join(dist, 'wasm', name);
  mkdirSync(to, { recursive: true });
  copyFileSync(path.join(folder, 'etwgpu.wasm'), path.join(to, 'etwgpu.wasm'));
  // Emscripten leaves the names of what is local: a quarter of the file
  const glue = minifySync('etwgpu.mjs', readFileSync(path.join(folder, 'etwgpu.mjs'), 'utf8'), { module: true });
  if (glue.errors.length > 0) throw new Error(`${name}/etwgpu.mjs: ${glue.errors[0].message}`);
  writeFileSync(path.join(to, 'etwgpu.mjs'), glue.code);
}
console.log(`web: dist with ${builds.map((b) => b.name).join(', ')} of ${[...ids].join(', ')}`);
