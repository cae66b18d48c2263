// Samples that need a project of their own: a page, a bundler, a framework, an extension, a service worker.
import { createHash } from 'node:crypto';
import { cpSync, linkSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { serve } from '../../tools/serve.mjs';
import { assert } from '../browser/runner.mjs';
import { answerOf, checkAnswer, HERE, linkTools, MODELS, project, ROOT, run, TIMEOUT, titleOf } from './project.mjs';

const FIRST = 'docs/web/README.md: executorch-webgpu for web developers (2)';
const IMPORT_MAP = 'docs/web/recipes.md: Bundlers (2)';
const VITE_CONFIG = 'docs/web/recipes.md: Bundlers';
const LLM = 'smollm2-135m-instruct';
/** Recipes in one Vite project: the file that each becomes, and what its page's title must be in the end. */
const RECIPES = {
  'docs/web/recipes.md: In a worker of your own': { name: 'worker', title: /Paris/ },
  'docs/web/recipes.md: React': { name: 'react', title: /^\d+ ready$/ },
  'docs/web/recipes.md: Vue': { name: 'vue', title: /^\d+ ready$/ },
};

/** Runs something once for each key, whoever asks. */
const done = new Map();
function once(key, make) {
  if (!done.has(key)) done.set(key, make());
  return done.get(key);
}

/** JavaScript of TypeScript: only the types are gone. */
export async function withoutTypes(code) {
  const { default: ts } = await import('typescript');
  const { ESNext } = ts.ScriptTarget;
  const compilerOptions = { target: ESNext, module: ts.ModuleKind.ESNext, removeComments: false };
  return ts.transpileModule(code, { compilerOptions }).outputText;
}

/** A page around a sample; what the sample logs becomes the title. */
const pageOf = (importMap, code) => `<!doctype html>
<meta charset="utf-8" />
<title></title>
<script>
  let said = '';
  console.log = (piece) => (said += piece);
</script>
${importMap}
<script type="module">
  ${code}
  document.title = said;
</script>
`;

async function startFolder(name, bench, code = bench.code(FIRST)) {
  const folder = project(name);
  writeFileSync(path.join(folder, 'index.html'), pageOf(bench.code(IMPORT_MAP), await withoutTypes(code)));
  return folder;
}

/** The first sample, or the import map around it, in a page from a folder with nothing else. */
export function start({ code, language }, bench) {
  const sample = language === 'ts' ? code : bench.code(FIRST);
  return once(sample, async () => {
    await answerOf(await bench.chromium(), await startFolder('start', bench, sample));
    return `${sample.trim().split('\n').length} lines`;
  });
}

const scriptPage = (name) => `<!doctype html>
<html lang="en">
  <meta charset="utf-8" />
  <title></title>
  <main></main>
  <script type="module" src="./${name}.js"></script>
</html>
`;

/** One Vite project with the recipes in it, configured by the recipe for Vite. */
function viteProject(bench) {
  return once('vite project', () => {
    const folder = project('recipes');
    cpSync(path.join(HERE, 'samples'), folder, { recursive: true });
    linkTools(folder, HERE, ['react', 'react-dom', 'vue']);
    writeFileSync(path.join(folder, 'vite.config.mjs'), bench.code(VITE_CONFIG));
    for (const [sample, { name }] of Object.entries(RECIPES)) {
      writeFileSync(path.join(folder, `recipe-${name}.ts`), bench.code(sample));
      writeFileSync(path.join(folder, `${name}.html`), scriptPage(name));
    }
    return folder;
  });
}

/** React, Vue, a worker: built by Vite, each opened. */
export async function frameworks(sample, bench) {
  const folder = viteProject(bench);
  const { build } = await import('vite');
  await once('vite build', () =>
    build({
      root: folder,
      logLevel: 'warn',
      build: {
        rolldownOptions: { input: Object.values(RECIPES).map(({ name }) => path.join(folder, `${name}.html`)) },
      },
    }),
  );
  const { name, title } = RECIPES[sample.name];
  const server = await serve({ mounts: { '/': path.join(folder, 'dist'), '/models/': MODELS }, isolation: false });
  try {
    const said = await titleOf(await bench.chromium(), `${server.url}${name}.html`);
    assert(title.test(said), `the page says "${said}"`);
    return said;
  } finally {
    await server.close();
  }
}

/** In development, which is what half of it is for. */
export async function viteConfig(_, bench) {
  const folder = viteProject(bench);
  const { createServer } = await import('vite');
  const models = await serve({ mounts: { '/models/': MODELS } });
  const development = await createServer({
    root: folder,
    logLevel: 'warn',
    server: { host: '127.0.0.1', port: 0, proxy: { '/models/': models.url } },
  });
  try {
    await development.listen();
    const url = development.resolvedUrls.local[0];
    const said = await titleOf(await bench.chromium(), `${url}react.html`);
    assert(RECIPES['docs/web/recipes.md: React'].title.test(said), `the page says "${said}"`);
    return 'in development';
  } finally {
    await development.close();
    await models.close();
  }
}

const NEXT_PAGE = `'use client';
import { useEffect } from 'react';
import { useAnswer } from './recipe';

export default function Page() {
  const answer = useAnswer('What is the capital of France?');
  useEffect(() => {
    if (answer.endsWith('.')) document.title = answer;
  }, [answer]);
  return <p>{answer}</p>;
}
`;

export async function next({ code }, bench) {
  const folder = project('next');
  writeFileSync(path.join(folder, 'app/recipe.js'), await withoutTypes(code));
  writeFileSync(path.join(folder, 'app/page.jsx'), NEXT_PAGE);
  linkTools(
    folder,
    HERE,
    readdirSync(path.join(HERE, 'node_modules')).filter((n) => !n.startsWith('.')),
  );
  run(process.execPath, ['build.mjs'], folder);
  await answerOf(await bench.chromium(), path.join(folder, 'dist'));
  return 'a static export';
}

/** The headers for threads: the page is isolated, and the CPU path has threads. */
export async function headers({ code }, bench) {
  const folder = await startFolder('headers', bench);
  const sent = Object.fromEntries(
    code
      .trim()
      .split('\n')
      .map((line) => line.split(': ')),
  );
  const server = await serve({ mounts: { '/': folder, '/models/': MODELS }, isolation: false, headers: sent });
  const page = await (await bench.chromium()).open(`${server.url}index.html`);
  try {
    const info = await page.evaluate(async () => {
      const { ExecuTorchRuntime } = await import('executorch-webgpu');
      const session = await ExecuTorchRuntime.loadModel({ modelUrl: '/models/efficientnet-lite0/', threads: 2 });
      return { isolated: crossOriginIsolated, path: session.info.path };
    });
    assert(info.isolated && info.path === 'wasm-threads', info);
    return info.path;
  } finally {
    await page.close();
    await server.close();
  }
}

/** The service worker: after a visit the page answers though nothing serves it. */
export async function offline({ code }, bench) {
  const folder = await startFolder('offline', bench);
  writeFileSync(path.join(folder, 'sw.js'), await withoutTypes(code));
  const server = await serve({ mounts: { '/': folder, '/models/': MODELS }, isolation: false });
  const page = await (await bench.chromium()).open(server.url);
  const answered = () => page.raw.waitForFunction('document.title !== ""', undefined, { timeout: TIMEOUT });
  try {
    await answered();
    await page.evaluate(async () => {
      await navigator.serviceWorker.register('/sw.js');
      await navigator.serviceWorker.ready;
    });
    await page.raw.reload(); // from now on the service worker sees what is used
    await answered();
    await server.close();
    await page.raw.reload();
    await answered();
    checkAnswer(await page.raw.title());
  } finally {
    await page.close();
    await server.close();
  }
}

function copyLinked(from, to) {
  mkdirSync(to, { recursive: true });
  for (const { name } of readdirSync(from, { withFileTypes: true }).filter((entry) => entry.isFile())) {
    try {
      linkSync(path.join(from, name), path.join(to, name));
    } catch {
      cpSync(path.join(from, name), path.join(to, name)); // another file system
    }
  }
}

/** The first sample in an extension's own page, with the manifest of the recipe. */
export async function extension({ code }, bench) {
  const folder = project('extension');
  const packed = path.join(folder, 'packed');
  cpSync(path.join(folder, 'node_modules/executorch-webgpu/dist'), packed, { recursive: true });
  copyLinked(path.join(MODELS, LLM), path.join(packed, 'models', LLM));
  writeFileSync(path.join(packed, 'manifest.json'), code);
  writeFileSync(path.join(folder, 'sample.js'), `${await withoutTypes(bench.code(FIRST))}\ndocument.title = said;\n`);
  writeFileSync(path.join(folder, 'main.js'), "import './said.js';\nimport './sample.js';\n");
  writeFileSync(path.join(folder, 'said.js'), "window.said = '';\nconsole.log = (piece) => (window.said += piece);\n");
  const { rolldown } = await import('rolldown');
  const bundle = await rolldown({ input: path.join(folder, 'main.js'), platform: 'browser' });
  await bundle.write({ dir: packed, format: 'esm', entryFileNames: 'main.js' });
  await bundle.close();
  writeFileSync(path.join(packed, 'page.html'), readFileSync(path.join(HERE, 'page.html')));
  const { chromium } = await import('playwright-core');
  const profile = mkdtempSync(path.join(os.tmpdir(), 'etwgpu-extension-'));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: process.env.CHROMIUM,
    headless: true,
    ignoreDefaultArgs: ['--disable-extensions'],
    args: ['--no-sandbox', '--no-first-run', `--disable-extensions-except=${packed}`, `--load-extension=${packed}`],
  });
  try {
    const page = await context.newPage();
    await page.goto(`chrome-extension://${extensionId(packed)}/page.html`);
    // the extension's policy forbids what waitForFunction does
    for (const end = Date.now() + TIMEOUT; (await page.title()) === '' && Date.now() < end;) await sleep(100);
    checkAnswer(await page.title());
  } finally {
    await context.close();
    rmSync(profile, { recursive: true, force: true });
  }
}

/** Chromium names an extension that is not packed by its folder. */
function extensionId(folder) {
  const digest = createHash('sha256').update(folder).digest('hex').slice(0, 32);
  return Array.from(digest, (digit) => String.fromCharCode(97 + parseInt(digit, 16))).join('');
}
