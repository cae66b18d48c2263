// The built playground with models and sample pictures beside it, as a static host would have them.
import { existsSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { modelsIndex } from './models_index.mjs';
import { serve } from './serve.mjs';

const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const SAMPLES = {
  'coffee.png': 'A cup of coffee',
  'camera.png': 'A man with a camera',
  'chelsea.png': 'A cat',
  'rocket.jpg': 'A rocket',
  'astronaut.png': 'An astronaut',
};

export const modelsFolder = path.join(process.env.ETWGPU_CACHE ?? '', 'models');

/** models/index.json and samples/index.json, by their paths below the page. */
function lists(models, samples) {
  const pictures = Object.entries(SAMPLES)
    .filter(([file]) => samples && existsSync(path.join(samples, file)))
    .map(([file, name]) => ({ name, url: `./samples/${file}` }));
  return { 'models/index.json': modelsIndex(models), 'samples/index.json': pictures };
}

/**
 * Serves the page in `base`. `samples`: a folder with pictures of scikit-image's. `intercept` and `isolation` as for
 * `serve`. Resolves to {url, close, requests}; `url` is the page's.
 */
export async function servePlayground({ models = modelsFolder, samples = '', base = '/', intercept, ...options } = {}) {
  const made = lists(models, samples);
  const server = await serve({
    ...options,
    mounts: {
      [base]: path.join(ROOT, 'playground/dist'),
      [`${base}models/`]: models,
      [`${base}tools/`]: path.join(ROOT, 'tools/browser'),
      ...(samples && { [`${base}samples/`]: samples }),
    },
    intercept: (request, response, headers) => {
      const list = made[new URL(request.url, 'http://localhost').pathname.slice(base.length)];
      if (!list) return intercept?.(request, response, headers);
      response.writeHead(200, { ...headers, 'Content-Type': 'application/json' }).end(JSON.stringify(list));
      return true;
    },
  });
  return { ...server, url: `${server.url}${base.slice(1)}` };
}

/** Puts conversations where the page keeps them; it shows them when it is loaded next. `page`: a driver's page. */
export function keepConversations(page, conversations) {
  return page.evaluate(
    (all) =>
      new Promise((resolve, reject) => {
        const opening = indexedDB.open('executorch-webgpu-playground');
        opening.onupgradeneeded = () => opening.result.createObjectStore('conversations');
        opening.onerror = () => reject(opening.error);
        opening.onsuccess = () => {
          const transaction = opening.result.transaction('conversations', 'readwrite');
          for (const c of all) transaction.objectStore('conversations').put(c, c.id);
          transaction.oncomplete = resolve;
        };
      }),
    conversations,
  );
}
