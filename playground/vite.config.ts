import { defineConfig } from 'vite';

// Relative URLs: the built page can lie in any folder of any static host.
export default defineConfig({
  base: './',
  worker: { format: 'es' },
  build: {
    target: 'es2022',
    // the WebAssembly modules stay files of their own: a page loads one of four
    assetsInlineLimit: 0,
    rollupOptions: { input: ['index.html', 'classify.html'] },
  },
});
