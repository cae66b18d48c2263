// The package as `make package` packs it and its users install it: in an empty folder, opened in Chromium, and under
// TypeScript's strict settings. Prints a line per test; the last line is {"passed": n, "failed": m}.
//
//   node tests/consumers/run.mjs [--only REGEX]       ETWGPU_TEST_FULL=1: also with bundlers, and every sample of the
//                                                     documentation
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { launch } from '../../tools/browser/launch.mjs';
import { Runner } from '../browser/runner.mjs';
import { allBlocks } from './blocks.mjs';
import { answerOf, checkSmall, HERE, linkTools, packed, project, ROOT, run } from './project.mjs';
import { sampleTests } from './samples.mjs';

const FULL = process.env.ETWGPU_TEST_FULL === '1';
const MOST_BYTES = 2.2e6;
const runner = new Runner({ seconds: 600 });
const { test } = runner;

let browser;
/** Without a GPU: what these tests show does not depend on it. */
const chromium = async () => (browser ??= await launch('chromium', runner.log, { gpu: false }));

async function bundled(name, from, tools, build) {
  await test(`${name}: built, and answers in a browser`, async () => {
    const folder = project(name);
    for (const file of ['main.ts', 'tensor.js']) cpSync(path.join(HERE, file), path.join(folder, file));
    linkTools(folder, from, tools);
    build(folder);
    const dist = path.join(folder, 'dist');
    if (!existsSync(path.join(dist, 'index.html'))) cpSync(path.join(HERE, 'page.html'), path.join(dist, 'index.html'));
    const small = path.join(dist, 'tensor.js');
    const note = existsSync(small) ? `a tensor alone: ${checkSmall(readFileSync(small, 'utf8'))}` : '';
    const { requests } = await answerOf(await chromium(), dist);
    const wasm = requests.filter((r) => r.endsWith('.wasm'));
    if (wasm.length !== 1) throw new Error(`asked for ${wasm}`);
    return note;
  });
}

/** The TypeScript of the documentation, each block a module; those for service workers in a folder of their own. */
function samples(folder) {
  for (const name of ['page', 'worker']) mkdirSync(path.join(folder, name), { recursive: true });
  cpSync(path.join(HERE, 'samples/shims.d.ts'), path.join(folder, 'page/shims.d.ts'));
  const blocks = allBlocks().filter(({ language }) => language === 'ts');
  for (const [i, { code }] of blocks.entries()) {
    const kind = code.includes('"webworker"') ? 'worker' : 'page';
    writeFileSync(path.join(folder, kind, `sample-${i}.ts`), `${code}\nexport {};\n`);
  }
  return blocks.length;
}

const TYPESCRIPT = path.join(ROOT, 'node_modules/typescript');

function typeCheck(
  folder,
  { module = 'ESNext', moduleResolution = 'bundler', dom = 'DOM', typescript = TYPESCRIPT } = {},
) {
  const lib = ['ES2023', dom, `${dom}.Iterable`, 'ESNext.Disposable'];
  const strict = { strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false, noEmit: true, types: [] };
  const compilerOptions = { module, moduleResolution, target: 'ES2022', lib, ...strict };
  writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
  run(process.execPath, [path.join(typescript, 'bin/tsc'), '-p', folder]);
}

async function types() {
  for (const [module, moduleResolution] of [
    ['ESNext', 'bundler'],
    ['Node16', 'node16'],
  ]) {
    await test(`types: strict, moduleResolution ${moduleResolution}`, () =>
      typeCheck(project('types'), { module, moduleResolution }));
  }
  if (!FULL) return; // tests/docs/test_readme.py does so with the settings of a reader in a hurry
  await test('types: strict, with a TypeScript whose DOM has no WebGPU', () =>
    typeCheck(project('types'), { typescript: path.join(HERE, 'node_modules/typescript-5') }));
  await test('documentation: every TypeScript sample type-checks', () => {
    const folder = project('typed-samples');
    const count = samples(folder);
    typeCheck(path.join(folder, 'page'));
    typeCheck(path.join(folder, 'worker'), { dom: 'WebWorker' });
    if (count < 10) throw new Error(`only ${count} samples were found`);
    return `${count} samples`;
  });
}

async function bundlers() {
  await test('plain HTML with an import map: answers in a browser', async () => {
    const { requests } = await answerOf(await chromium(), project('plain'));
    const own = requests.filter((r) => !r.startsWith('/models/'));
    return `${own.length} files of the package`;
  });
  await test('what only makes a tensor is bundled without runtime and worker', async () => {
    const folder = project('shaken');
    const input = path.join(folder, 'tensor.js');
    cpSync(path.join(HERE, 'tensor.js'), input);
    const { rolldown } = await import('rolldown');
    const bundle = await rolldown({ input, platform: 'browser' });
    const { output } = await bundle.generate({ format: 'esm', minify: true });
    await bundle.close();
    return checkSmall(output.map(({ code }) => code).join(''));
  });
  if (!FULL) return;
  await bundled('vite', ROOT, ['vite'], (folder) =>
    run(process.execPath, [path.join(ROOT, 'node_modules/vite/bin/vite.js'), 'build', '--logLevel', 'warn'], folder),
  );
  for (const name of ['webpack', 'esbuild', 'rollup', 'next']) {
    await bundled(
      name,
      HERE,
      readdirSync(path.join(HERE, 'node_modules')).filter((n) => !n.startsWith('.')),
      (folder) => run(process.execPath, ['build.mjs'], folder),
    );
  }
}

await test('the packed package is small and complete', () => {
  const { size } = statSync(packed());
  if (size > MOST_BYTES) throw new Error(`${size} bytes`);
  const names = run('tar', ['tzf', packed()]);
  for (const build of ['relaxed', 'simd128', 'relaxed-threads', 'simd128-threads']) {
    if (!names.includes(`dist/wasm/${build}/etwgpu.wasm`)) throw new Error(`without ${build}`);
  }
  const docs = Array.from(
    readFileSync(path.join(ROOT, 'web/README.md'), 'utf8').matchAll(/`(docs\/[^`]+)`/g),
    (m) => m[1],
  );
  if (docs.length < 6) throw new Error(`the README names ${docs}`);
  const others = ['LICENSE', 'THIRD-PARTY-NOTICES.txt', 'README.md', 'dist/index.js.map', 'dist/index.d.ts'];
  for (const file of [...docs, ...others]) {
    if (!names.includes(`package/${file}`)) throw new Error(`without ${file}`);
  }
  return `${(size / 1e6).toFixed(2)} MB`;
});
if (FULL) run('npm', ['ci', '--silent', '--no-audit', '--no-fund'], HERE);
await types();
await bundlers();
await sampleTests(test, chromium, FULL);
await browser?.close();
runner.end();
