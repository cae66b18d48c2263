// What the tests of the package share: the models, a browser with a page, a server that can be made to fail.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { launch } from '../../../tools/browser/launch.mjs';
import { serve } from '../../../tools/serve.mjs';
import { writeStaleBuilds, writeVariants } from '../folders.mjs';
import { PICTURES } from '../pictures.mjs';
import { assert, Runner } from '../runner.mjs';

/** Of the harness and what it loads. */
export const HERE = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
export const ROOT = path.dirname(path.dirname(HERE));
export const MODELS = path.join(process.env.ETWGPU_CACHE ?? '', 'models');
export const FOLDER = '/models/efficientnet-lite0/';
export const LLM = '/models/smollm2-135m-instruct/';
export const PROGRAM = `${FOLDER}model.pte`;
// any version of the models does
if (![FOLDER, LLM].every((url) => existsSync(path.join(MODELS, '..', url, 'manifest.json')))) {
  execFileSync(path.join(ROOT, 'tools/models.sh'), ['--demo'], { stdio: 'inherit' });
}
execFileSync(path.join(ROOT, 'tools/fixtures.sh'), { stdio: 'inherit' });
/** In bytes. */
export const sizeOf = (url) => statSync(path.join(MODELS, '..', url)).size;

export const runner = new Runner({ seconds: 240 });
export const { test } = runner;

/** Where a test writes a model in parts. */
export const PARTS = path.join(ROOT, 'build/browser-tests/parts');
const STALE = path.join(ROOT, 'build/browser-tests/stale');
const VARIANTS = path.join(ROOT, 'build/browser-tests/variants');
const temporary = (name) => {
  const folder = mkdtempSync(path.join(os.tmpdir(), name));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  return folder;
};
/** Where tests write what pages ask for as /adapters/ and /kernels/. */
export const ADAPTERS = temporary('adapters-');
export const KERNELS = temporary('kernels-');
writeStaleBuilds(path.join(ROOT, 'web/dist/wasm'), STALE);
writeVariants(path.join(MODELS, '..', FOLDER), VARIANTS);

export const MOUNTS = {
  '/': HERE,
  '/web/': path.join(ROOT, 'web/dist'),
  '/models/': MODELS,
  '/pictures/': PICTURES,
  '/models/parts/': PARTS,
  '/fixtures/': path.join(ROOT, 'build/fixtures'),
  '/adapters/': ADAPTERS,
  '/kernels/': KERNELS,
  '/stale/': STALE,
  '/models/variants/': VARIANTS,
};

/** A browser, a server that can be made to fail, and a page with package.js. `launchOptions` as for `launch`. */
export async function withPage(browserName, launchOptions, body) {
  const server = await serve({ mounts: MOUNTS, isolation: false });
  let browser;
  try {
    browser = await launch(browserName, runner.log, launchOptions);
    const waitFor = async (page) => {
      // not by waitForFunction, which a strict policy forbids
      for (const end = Date.now() + 30_000; !(await page.evaluate(() => window.packageReady)); await sleep(20)) {
        assert(Date.now() < end, 'package.js was not loaded');
      }
    };
    const open = async (how, url = server.url) => {
      const page = await browser.open(`${url}package.html`, how);
      await waitFor(page);
      page.do = async (what, argument = {}) => {
        const { ok, error } = await page.evaluate(([w, a]) => window.tests.attempt(w, a), [what, argument]);
        if (error) throw Object.assign(new Error(`${error.class} (${error.code}): ${error.message}`), error);
        return ok;
      };
      page.fails = (what, argument) =>
        page.do(what, argument).then(
          (value) => assert(false, `no error, but ${JSON.stringify(value)}`),
          (error) => error,
        );
      return page;
    };
    const page = await open();
    const asked = () => server.log.splice(0).filter((r) => r.path.startsWith('/models/'));
    await body({ page, open, server, asked, waitFor: () => waitFor(page) });
  } catch (error) {
    runner.fail(`${browserName} could not be driven`, error.message);
  } finally {
    await browser?.close();
    await server.close();
  }
}

/** How a page loads the classifier on the CPU. */
export const wasm = { modelUrl: FOLDER, device: 'wasm' };
export const rangesOf = (asked, program) => asked.filter((r) => r.path === program).map((r) => r.range ?? 'all');
export const url = (page, file) => new URL(file, page.raw.url()).href;

/** A check that a load's model answers as one that nothing keeps. */
export async function sameAs(page, load) {
  const { checksum } = await page.do('once', { ...load, cache: 'none' });
  return (got) => assert(got.checksum === checksum, `checksum ${got.checksum}, ${checksum}`);
}
