// What the tests of this folder share: the packed package, folders that have it installed, pages that are opened.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { serve } from '../../tools/serve.mjs';
import { allBlocks } from './blocks.mjs';

export const HERE = path.dirname(fileURLToPath(import.meta.url));
export const ROOT = path.dirname(path.dirname(HERE));
export const WORK = path.join(ROOT, 'build/consumers');
export const MODELS = path.join(process.env.ETWGPU_CACHE ?? '', 'models');
export const TIMEOUT = 240_000;
const ANSWER = 'The capital of France is Paris.';

/** Of one command. @throws with what it has printed. */
export function run(command, args, cwd) {
  try {
    return execFileSync(command, args, { cwd, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], timeout: TIMEOUT });
  } catch (error) {
    throw new Error(`${error.message}\n${error.stdout}${error.stderr}`);
  }
}

let tarball;
/** Packs the package once, as `make package` does. @returns the path of the .tgz. */
export function packed() {
  if (tarball) return tarball;
  rmSync(WORK, { recursive: true, force: true });
  mkdirSync(WORK, { recursive: true });
  run('make', ['npm-package'], ROOT);
  const folder = path.join(ROOT, 'build/dist');
  const [name, ...others] = readdirSync(folder).filter((file) => file.endsWith('.tgz'));
  if (!name || others.length) throw new Error(`${folder} has ${[name, ...others]}`);
  tarball = path.join(folder, name);
  return tarball;
}

/** The command by which the documentation says to install the package. */
export const INSTALL = 'docs/web/README.md: executorch-webgpu for web developers';

/** An empty folder with the package in it, by the command of the documentation, and what lies here under that name. */
export function project(name) {
  const folder = path.join(WORK, name);
  const file = packed();
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify({ name, private: true, type: 'module' }));
  const [command, ...words] = allBlocks()
    .find((block) => block.name === INSTALL)
    .code.trim()
    .split(' ');
  const args = words.map((word) => (word === 'executorch-webgpu' ? file : word));
  run(command, [...args, '--silent', '--no-audit', '--no-fund', '--offline'], folder);
  if (existsSync(path.join(HERE, name))) cpSync(path.join(HERE, name), folder, { recursive: true });
  return folder;
}

/** Beside the project's own package, the tools of the repository or of this folder. */
export function linkTools(folder, from, names) {
  for (const name of names) symlinkSync(path.join(from, 'node_modules', name), path.join(folder, 'node_modules', name));
}

/** What the page's title becomes. */
export async function titleOf(browser, url) {
  const page = await browser.open(url);
  try {
    await page.raw.waitForFunction('document.title !== ""', undefined, { timeout: TIMEOUT });
    return await page.raw.title();
  } finally {
    await page.close();
  }
}

/** @throws where it is not the model's answer, or less than half of it. */
export function checkAnswer(text) {
  if (!ANSWER.startsWith(text) || text.length < 20) throw new Error(`the page answered "${text}"`);
}

/** Characters: tensors, halves, and the classes of errors. */
const MOST_OF_A_TENSOR = 4000;

/** @throws where the bundle of tensor.js has more of the package in it than that needs. */
export function checkSmall(code) {
  const found = ['Worker(', 'etwgpu.', 'requestAdapter', 'caches'].filter((part) => code.includes(part));
  if (found.length || !code.includes('Float32Array')) throw new Error(`the bundle has ${found}`);
  if (code.length > MOST_OF_A_TENSOR) throw new Error(`${code.length} characters`);
  return `${code.length} characters`;
}

/** Opens a folder as a plain static host serves it; the page has the answer in its title. */
export async function answerOf(browser, folder) {
  const server = await serve({ mounts: { '/': folder, '/models/': MODELS }, isolation: false });
  try {
    const title = await titleOf(browser, server.url);
    checkAnswer(title);
    return { title, requests: server.requests };
  } finally {
    await server.close();
  }
}
