export default {
  base: './',
  worker: { format: 'es' },
  build: { target: 'es2022' },
  // in development, the package's worker must stay beside its script
  optimizeDeps: { exclude: ['executorch-webgpu'] },
};
