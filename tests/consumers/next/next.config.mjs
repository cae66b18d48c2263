import path from 'node:path';

export default {
  output: 'export',
  distDir: 'dist',
  // Next itself is linked from another folder of the repository
  turbopack: { root: path.resolve(import.meta.dirname, '../../..') },
};
