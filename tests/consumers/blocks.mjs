// The code samples of the documentation: every fenced block of every page in the repository.
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = path.dirname(path.dirname(path.dirname(fileURLToPath(import.meta.url))));

/** What tests/docs/test_readme.py runs. */
export const ITS_PYTHON = ['python', 'sh'];

/** Blocks of a page, in order: {name, language, code}; a name is the page, the heading above, and a number if need be. */
export function blocksOf(page, text) {
  const blocks = [];
  const counts = new Map();
  let heading = '';
  let open;
  for (const line of text.split('\n')) {
    const fence = /^\s*(```+|~~~+)(.*)$/.exec(line);
    if (open) {
      if (fence && fence[1].startsWith(open.mark) && fence[2].trim() === '') {
        blocks.push({ name: open.name, language: open.language, code: open.lines.join('\n') + '\n' });
        open = undefined;
      } else open.lines.push(line);
    } else if (fence) {
      const title = `${page}: ${heading}`;
      const count = (counts.get(title) ?? 0) + 1;
      counts.set(title, count);
      open = { name: count > 1 ? `${title} (${count})` : title, mark: fence[1], language: fence[2].trim(), lines: [] };
    } else heading = /^#+ (.*)$/.exec(line)?.[1] ?? heading;
  }
  if (open) throw new Error(`${open.name}: the block has no end`);
  return blocks;
}

/** Of all pages that git knows. */
export function allBlocks() {
  const list = execFileSync('git', ['ls-files', '*.md'], { cwd: ROOT, encoding: 'utf8' });
  return list
    .trim()
    .split('\n')
    .flatMap((page) => blocksOf(page, readFileSync(path.join(ROOT, page), 'utf8')));
}

/** @throws where a block has no runner, or a runner no block. `names`: of the runners. */
export function checkRunners(blocks, names) {
  const ours = blocks.filter(({ language }) => !ITS_PYTHON.includes(language)).map(({ name }) => name);
  const without = ours.filter((name) => !names.includes(name));
  const unused = names.filter((name) => !ours.includes(name));
  if (without.length)
    throw new Error(`nothing runs these samples: ${without.join('; ')} (tests/consumers/samples.mjs)`);
  if (unused.length) throw new Error(`these samples are gone: ${unused.join('; ')}`);
}
