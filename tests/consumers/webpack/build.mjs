import { promisify } from 'node:util';
import webpack from 'webpack';

const compiler = webpack({
  mode: 'production',
  entry: './main.ts',
  // the file is plain JavaScript but for its name
  module: { rules: [{ test: /\.ts$/, type: 'javascript/esm' }] },
  output: { path: `${import.meta.dirname}/dist`, filename: 'main.js', module: true },
  experiments: { outputModule: true },
  performance: { hints: false },
});
const stats = await promisify(compiler.run.bind(compiler))();
console.log(stats.toString({ preset: 'errors-warnings' }));
process.exit(stats.hasErrors() || stats.hasWarnings() ? 1 : 0);
