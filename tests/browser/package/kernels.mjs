// The WGSL of every kernel variant, as the browser's own compiler sees it: tools/validate_wgsl.py asks Chromium's alone.
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { assert } from '../runner.mjs';
import { KERNELS, ROOT, test } from './setting.mjs';

/** Runs in the page. Which of the modules have errors, and how many need what the device does not have. */
async function compile(names) {
  const adapter = await navigator.gpu.requestAdapter();
  const enabled = { f16: 'shader-f16', subgroups: 'subgroups' };
  const requiredFeatures = Object.values(enabled).filter((feature) => adapter.features.has(feature));
  const device = await adapter.requestDevice({ requiredFeatures });
  const result = { compiled: 0, skipped: 0, errors: [] };
  for (const name of names) {
    const code = await (await fetch(`/kernels/${name}`)).text();
    const needs = Array.from(code.matchAll(/^enable (\w+);/gm), ([, extension]) => enabled[extension]);
    if (needs.some((feature) => !device.features.has(feature))) {
      ++result.skipped;
      continue;
    }
    const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
    const error = messages.find(({ type }) => type === 'error');
    if (error) result.errors.push(`${name}: ${error.message}`);
    ++result.compiled;
  }
  device.destroy();
  return result;
}

export async function kernels({ page }, label) {
  await test(`${label}: accepts the WGSL of every variant`, async () => {
    execFileSync(path.join(ROOT, 'tools/wgsl_variants'), [KERNELS]);
    const { compiled, skipped, errors } = await page.evaluate(compile, readdirSync(KERNELS));
    assert(errors.length === 0, `${errors.length} of ${compiled}: ${errors[0]}`);
    assert(compiled > 500, `only ${compiled} were compiled`);
    return `${compiled}; ${skipped} need what it does not have`;
  });
}
