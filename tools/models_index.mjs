// The list of models that the playground reads, models/index.json, out of the model folders in a folder.
//
//   node tools/models_index.mjs FOLDER          writes FOLDER/index.json, for a static host
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** A line of the model card such as `- Licence: Apache-2.0`. */
const fact = (card, name) => new RegExp(`^- ${name}: (.+)$`, 'm').exec(card)?.[1];

function entry(folder, name) {
  if (/\.partial(\.\d+)?$/.test(name)) return undefined; // an export that is under way or was interrupted
  const manifestFile = path.join(folder, name, 'manifest.json');
  if (!existsSync(manifestFile)) return undefined;
  const manifest = JSON.parse(readFileSync(manifestFile, 'utf8'));
  // logits of all positions are for measuring; nobody wants to chat with them
  if (manifest.variants.some((variant) => variant.metadata?.logits_all)) return undefined;
  const cardFile = path.join(folder, name, 'README.md');
  const card = existsSync(cardFile) ? readFileSync(cardFile, 'utf8') : '';
  return {
    name: manifest.name,
    title: /^# (.+?)(?: for executorch-webgpu)?$/m.exec(card)?.[1] ?? manifest.name,
    task: manifest.task,
    url: `./models/${name}/`,
    size: manifest.files.reduce((sum, file) => sum + file.size, 0),
    licence: fact(card, 'Licence'),
    source: fact(card, 'Weights'),
  };
}

/** The smallest of a task comes first: it is what the playground offers to a newcomer. */
export function modelsIndex(folder) {
  return readdirSync(folder)
    .map((name) => entry(folder, name))
    .filter((found) => found !== undefined)
    .sort((a, b) => a.size - b.size);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const folder = process.argv[2] ?? '';
  if (!existsSync(folder)) throw new Error('models_index: which folder?');
  writeFileSync(path.join(folder, 'index.json'), JSON.stringify(modelsIndex(folder), null, 2) + '\n');
}
