// Every sample of the documentation, run as it stands in a folder with nothing but the installed package. A sample
// without a runner fails the tests, and so does a runner without a sample.
//
//   node tests/consumers/samples.mjs       only checks that each has one
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { assert } from '../browser/runner.mjs';
import { allBlocks, checkRunners } from './blocks.mjs';
import { extension, frameworks, headers, next, offline, start, viteConfig } from './projects.mjs';
import { ROOT } from './project.mjs';
import { SamplePages } from './pages.mjs';

/** Of a folder's tree: that it is so. */
function tree({ code, name }) {
  const page = name.slice(0, name.indexOf(':'));
  const paths = Array.from(code.matchAll(/(?:^|\s)((?:[\w-]+\/)+[\w.-]*|[\w-]+\.html)/gm), ([, found]) => found);
  assert(paths.length >= 8, `only ${paths.length} paths`);
  const missing = paths.filter(
    (p) => ![ROOT, path.dirname(path.join(ROOT, page))].some((r) => existsSync(path.join(r, p))),
  );
  assert(missing.length === 0, `these are not there: ${missing}`);
  return `${paths.length} paths`;
}

const inPage = (what) => (sample, bench) => bench.pages[what](sample);

/** By the name of a block: what runs it. They take ({name, code}, bench) and may return a note. */
const RUNNERS = {
  'README.md: In a page': start,
  'web/README.md: executorch-webgpu': start,
  'docs/architecture.md: Architecture': tree,
  'playground/README.md: The code': tree,
  'docs/web/README.md: executorch-webgpu for web developers (2)': start,
  'docs/web/README.md: What happens in `loadModel`': inPage('loading'),
  'docs/web/README.md: Where a model may come from': inPage('sources'),
  'docs/web/README.md: What a session does': inPage('tensors'),
  'docs/web/README.md: What a session does (2)': inPage('talking'),
  'docs/web/README.md: What a session does (3)': inPage('classifying'),
  'docs/web/README.md: Tensors in GPU buffers': inPage('buffers'),
  'docs/web/README.md: Answers of a given form': inPage('grammar'),
  'docs/web/README.md: Conversations that go on': inPage('conversation'),
  'docs/web/README.md: Tuned to the device': inPage('tuned'),
  'docs/web/README.md: What is kept': inPage('cache'),
  'docs/web/errors.md: Errors': inPage('recovery'),
  'docs/web/hosting.md: Hosting': headers,
  'docs/web/recipes.md: Bundlers': viteConfig,
  'docs/web/recipes.md: Bundlers (2)': start,
  'docs/web/recipes.md: In a worker of your own': frameworks,
  'docs/web/recipes.md: React': frameworks,
  'docs/web/recipes.md: Vue': frameworks,
  'docs/web/recipes.md: Next': next,
  'docs/web/recipes.md: A LoRA adapter': inPage('adapter'),
  'docs/web/recipes.md: Browser extension': extension,
  'docs/web/recipes.md: Offline': offline,
  'docs/web/recipes.md: Camera': inPage('camera'),
};
/** This one runs everywhere. */
const FIVE_LINES = 'docs/web/README.md: executorch-webgpu for web developers (2)';

export async function sampleTests(test, chromium, full) {
  const blocks = allBlocks();
  await test('documentation: every sample has something that runs it', () => {
    checkRunners(blocks, Object.keys(RUNNERS));
    return `${blocks.length} blocks`;
  });
  const bench = { blocks, chromium, code: (name) => blocks.find((block) => block.name === name).code };
  bench.pages = new SamplePages(bench);
  try {
    for (const block of blocks) {
      const runner = RUNNERS[block.name];
      if (!runner || (!full && block.name !== FIVE_LINES)) continue;
      await test(`documentation: ${block.name}`, async () => {
        return runner(block, bench);
      });
    }
  } finally {
    await bench.pages.close();
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) checkRunners(allBlocks(), Object.keys(RUNNERS));
