import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { defineConfig, type Plugin } from 'vite';

/** Other places that models may come from: `ETWGPU_MODEL_ORIGINS='https://models.example' npm run build`. */
const MODEL_ORIGINS = process.env.ETWGPU_MODEL_ORIGINS ?? '';

/** What the page may do. `connect-src` is the promise that nothing is sent, kept by the browser. */
const POLICY = {
  'default-src': "'none'",
  'script-src': "'self' 'wasm-unsafe-eval'",
  'style-src': "'self'",
  'img-src': "'self' blob: data:",
  'media-src': "'self' blob:",
  'connect-src': `'self' ${MODEL_ORIGINS}`.trimEnd(),
  'worker-src': "'self'",
  'manifest-src': "'self'",
  'base-uri': "'none'",
  'form-action': "'none'",
};

/** Writes the policy into the built page; a development server's page needs inline scripts. */
function contentPolicy(): Plugin {
  const content = Object.entries(POLICY)
    .map(([name, value]) => `${name} ${value}`)
    .join('; ');
  return {
    name: 'content-policy',
    apply: 'build',
    transformIndexHtml: () => [
      { tag: 'meta', attrs: { 'http-equiv': 'Content-Security-Policy', content }, injectTo: 'head-prepend' },
    ],
  };
}

/**
 * Tells the service worker which files make the page, and a version made of their contents. The runtime's builds are not
 * among them: a page needs one of four, which is kept when it is first used.
 */
function offlineFiles(): Plugin {
  return {
    name: 'offline-files',
    apply: 'build',
    enforce: 'post',
    generateBundle: {
      order: 'post',
      handler(_, bundle) {
        const worker = bundle['sw.js'];
        if (worker?.type !== 'chunk') this.error('the bundle has no sw.js');
        const hash = createHash('sha256');
        const files = [];
        for (const [name, file] of Object.entries(bundle)) {
          if (file === worker || /\.(map|wasm|mjs)$/.test(name)) continue;
          files.push(name);
          hash.update(name).update(file.type === 'chunk' ? file.code : file.source);
        }
        for (const name of readdirSync('public')) {
          files.push(name);
          hash.update(name).update(readFileSync(`public/${name}`));
        }
        const list = JSON.stringify(files.sort());
        worker.code = worker.code
          .replaceAll('__FILES__', () => list)
          .replaceAll('__VERSION__', () => JSON.stringify(hash.digest('hex').slice(0, 12)))
          .replaceAll('__ORIGINS__', () => JSON.stringify(MODEL_ORIGINS));
      },
    },
  };
}

// Relative URLs: the built page can lie in any folder of any static host.
export default defineConfig({
  base: './',
  plugins: [contentPolicy(), offlineFiles()],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  worker: { format: 'es' },
  build: {
    target: 'es2022',
    // the WebAssembly modules stay files of their own: a page loads one of four
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: {
      input: { index: 'index.html', sw: 'src/worker/sw.ts' },
      output: { entryFileNames: ({ name }) => (name === 'sw' ? 'sw.js' : 'assets/[name]-[hash].js') },
    },
  },
});
