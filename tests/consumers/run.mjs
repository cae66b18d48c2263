// The packed package as its users install it: in an empty folder, with bundlers and without, opened in Chromium; and under
// TypeScript's strict settings. Prints a line per test; the last line is {"passed": n, "failed": m}.
//
//   node tests/consumers/run.mjs [--only REGEX]       ETWGPU_TEST_FULL=1: also the bundlers that have to be installed
import { execFileSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { launch } from '../../tools/browser/launch.mjs';
import { serve } from '../../tools/serve.mjs';
import { Runner } from '../browser/runner.mjs';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.dirname(path.dirname(HERE));
const FULL = process.env.ETWGPU_TEST_FULL === '1';
const WORK = path.join(ROOT, 'build/consumers');
const MODELS = path.join(process.env.ETWGPU_CACHE ?? '', 'models');
const MOST_BYTES = 2.2e6;
const ANSWER = 'The capital of France is Paris.';
const TIMEOUT = 240_000;
const runner = new Runner({ seconds: 600 });
const { test } = runner;

/** @throws with what it has printed. */
function run(command, args, cwd) {
  try {
    return execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], timeout: TIMEOUT });
  } catch (error) {
    throw new Error(`${error.message}\n${error.stdout}${error.stderr}`);
  }
}

let tarball;
/** An empty folder with the package in it, by the command of the documentation. */
function project(name) {
  const folder = path.join(WORK, name);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ name, private: true, type: 'module' }));
  run('npm', ['install', '--silent', '--no-audit', '--no-fund', '--offline', tarball], folder);
  if (existsSync(path.join(HERE, name))) cpSync(path.join(HERE, name), folder, { recursive: true });
  return folder;
}

let browser;
/** What the page's title becomes. */
async function answerOf(folder) {
  browser ??= await launch('chromium', runner.log);
  const server = await serve({ mounts: { '/': folder, '/models/': MODELS }, isolation: false });
  try {
    const page = await browser.open(server.url);
    await page.raw.waitForFunction('document.title !== ""', undefined, { timeout: TIMEOUT });
    const title = await page.raw.title();
    await page.close();
    if (!ANSWER.startsWith(title) || title.length < 20) throw new Error(`the page answered "${title}"`);
    return { title, requests: server.requests };
  } finally {
    await server.close();
  }
}

/** Beside the project's own package, the tools of the repository or of this folder. */
function linkTools(folder, from, names) {
  for (const name of names) symlinkSync(path.join(from, 'node_modules', name), path.join(folder, 'node_modules', name));
}

async function bundled(name, from, tools, build) {
  await test(`${name}: built, and answers in a browser`, async () => {
    const folder = project(name);
    cpSync(path.join(HERE, 'main.ts'), path.join(folder, 'main.ts'));
    linkTools(folder, from, tools);
    build(folder);
    const dist = path.join(folder, 'dist');
    if (!existsSync(path.join(dist, 'index.html'))) cpSync(path.join(HERE, 'page.html'), path.join(dist, 'index.html'));
    const { requests } = await answerOf(dist);
    const wasm = requests.filter((r) => r.endsWith('.wasm'));
    if (wasm.length !== 1) throw new Error(`asked for ${wasm}`);
  });
}

/** A page around a sample; what the sample logs becomes the title. */
const START = `<!doctype html>
<meta charset="utf-8" />
<title></title>
<script>
  let said = '';
  console.log = (piece) => (said += piece);
</script>
<script type="importmap">
  { "imports": { "executorch-webgpu": "/node_modules/executorch-webgpu/dist/index.js" } }
</script>
<script type="module">
  CODE
  document.title = said;
</script>
`;

/** Of other packages, as far as the samples use them. */
const SHIMS = `declare module 'react' {
  export function useState<T>(initial: T): [T, (value: T | ((before: T) => T)) => void];
  export function useState<T>(): [T | undefined, (value: T | undefined) => void];
  export function useEffect(effect: () => void | (() => void), inputs: unknown[]): void;
}
declare module 'vue' {
  export function shallowRef<T>(): { value: T | undefined };
  export function onScopeDispose(dispose: () => void): void;
}
`;

/** The TypeScript of docs/web, each block a module; those for service workers in a folder of their own. */
function samples(folder) {
  const docs = path.join(ROOT, 'docs/web');
  const files = readdirSync(docs).map((name) => path.join(docs, name));
  let count = 0;
  for (const name of ['page', 'worker']) mkdirSync(path.join(folder, name), { recursive: true });
  writeFileSync(path.join(folder, 'page/shims.d.ts'), SHIMS);
  for (const file of files) {
    for (const [, code] of readFileSync(file, 'utf8').matchAll(/^```ts\n(.*?)^```/gms)) {
      const name = `${path.basename(file, '.md')}-${++count}.ts`;
      writeFileSync(path.join(folder, code.includes('"webworker"') ? 'worker' : 'page', name), `${code}\nexport {};\n`);
    }
  }
  return count;
}

function typeCheck(folder, { module = 'ESNext', moduleResolution = 'bundler', dom = 'DOM' } = {}) {
  const lib = ['ES2023', dom, `${dom}.Iterable`, 'ESNext.Disposable'];
  const strict = { strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false, noEmit: true, types: [] };
  const compilerOptions = { module, moduleResolution, target: 'ES2022', lib, ...strict };
  writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }));
  run(process.execPath, [path.join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', folder]);
}

async function main() {
  rmSync(WORK, { recursive: true, force: true });
  mkdirSync(WORK, { recursive: true });
  await test('the packed package is small and complete', () => {
    run('npm', ['pack', '--silent', '--workspace=web', '--pack-destination', WORK], ROOT);
    tarball = path.join(
      WORK,
      readdirSync(WORK).find((name) => name.endsWith('.tgz')),
    );
    const { size } = statSync(tarball);
    if (size > MOST_BYTES) throw new Error(`${size} bytes`);
    const names = run('tar', ['tzf', tarball]);
    for (const build of ['relaxed', 'simd128', 'relaxed-threads', 'simd128-threads']) {
      if (!names.includes(`dist/wasm/${build}/etwgpu.wasm`)) throw new Error(`without ${build}`);
    }
    for (const file of ['LICENSE', 'THIRD-PARTY-NOTICES.txt', 'README.md', 'dist/index.js.map', 'dist/index.d.ts']) {
      if (!names.includes(`package/${file}`)) throw new Error(`without ${file}`);
    }
    return `${(size / 1e6).toFixed(2)} MB`;
  });
  for (const [module, moduleResolution] of [
    ['ESNext', 'bundler'],
    ['Node16', 'node16'],
  ]) {
    await test(`types: strict, moduleResolution ${moduleResolution}`, () =>
      typeCheck(project('types'), { module, moduleResolution }));
  }
  await test('documentation: every TypeScript sample type-checks', () => {
    const folder = project('samples');
    const count = samples(folder);
    typeCheck(path.join(folder, 'page'));
    typeCheck(path.join(folder, 'worker'), { dom: 'WebWorker' });
    if (count < 10) throw new Error(`only ${count} samples were found`);
    return `${count} samples`;
  });
  await test('documentation: the first sample answers in a browser, from a folder with nothing else', async () => {
    const folder = project('start');
    const [, code] = /^```ts\n(.*?)^```/ms.exec(readFileSync(path.join(ROOT, 'docs/web/README.md'), 'utf8'));
    writeFileSync(
      path.join(folder, 'index.html'),
      START.replace('CODE', () => code),
    );
    await answerOf(folder);
    return `${code.trim().split('\n').length} lines`;
  });
  await test('plain HTML with an import map: answers in a browser', async () => {
    const { requests } = await answerOf(project('plain'));
    const own = requests.filter((r) => !r.startsWith('/models/'));
    return `${own.length} files of the package`;
  });
  await bundled('vite', ROOT, ['vite'], (folder) =>
    run(process.execPath, [path.join(ROOT, 'node_modules/vite/bin/vite.js'), 'build', '--logLevel', 'warn'], folder),
  );
  if (FULL) {
    run('npm', ['ci', '--silent', '--no-audit', '--no-fund'], HERE);
    for (const name of ['webpack', 'esbuild', 'rollup', 'next']) {
      await bundled(
        name,
        HERE,
        readdirSync(path.join(HERE, 'node_modules')).filter((n) => !n.startsWith('.')),
        (folder) => run(process.execPath, ['build.mjs'], folder),
      );
    }
  }
}

await main();
await browser?.close();
runner.end();
