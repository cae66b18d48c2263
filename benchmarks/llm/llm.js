// One page load measures configurations of one model: llm.html?model=/models/NAME/&only=f16,f32. See README.md.
import { configurations } from './configurations.js';
import { byKernel, table, traceEvents } from './profile.js';
import { measureAbort, measureBorder, measureDecode, measurePrefill } from './protocol.js';

const query = new URLSearchParams(location.search);
const list = (name, fallback) => (query.get(name) ?? fallback).split(',').filter(Boolean);
const number = (name, fallback) => Number(query.get(name) ?? fallback);

const options = {
  model: query.get('model') ?? '/models/smollm2-135m-instruct/',
  tokens: number('tokens', 128),
  warmups: number('warmups', 3),
  rounds: number('rounds', 5),
  heatMs: number('heat', 700),
  budgetMs: number('budget', 20000),
  tune: number('tune', 0),
  threads: query.has('threads') ? number('threads') : navigator.hardwareConcurrency,
};
const contexts = list('contexts', '128,512,2048,8192').map(Number);
const borders = list('borders', '').map(Number);
const aborted = list('abort', '').map(Number);
// What the machine could do: `bandwidth` in GB/s and `tflops`; the floors of a profile are computed of them.
const peak = query.has('bandwidth') && {
  bytesPerSecond: 1e9 * number('bandwidth'),
  flops: 1e12 * number('tflops', Infinity),
};

// Tasks of the page's own thread that take over 50 ms, in milliseconds.
const longTasks = [];
if (globalThis.PerformanceObserver?.supportedEntryTypes.includes('longtask')) {
  new PerformanceObserver((entries) => {
    for (const { duration } of entries.getEntries()) longTasks.push(Math.round(duration));
  }).observe({ type: 'longtask' });
}

const log = (line) => {
  document.getElementById('log').textContent += line + '\n';
  console.log(line);
};

/** Saves beside the results where whoever serves this page takes files; else it stays in the report. */
async function saveFile(report, name, content) {
  if (globalThis.__save) await globalThis.__save(name, new Blob([content]));
  else (report.files ??= {})[name] = content;
}

async function measureConfiguration(configuration, report) {
  const adapter = await import(`./runtimes/${configuration.runtime}.js`);
  const began = performance.now();
  const session = await adapter.load({ ...configuration, ...options });
  const result = { name: configuration.name, loadMs: performance.now() - began, ...session.describe() };
  report.configurations.push(result);
  const protocol = { ...options, vocabulary: session.vocabulary };
  log(`${configuration.name}: loaded in ${result.loadMs.toFixed(0)} ms, ${JSON.stringify(session.describe())}`);
  const add = (row) => {
    report.rows.push({ configuration: configuration.name, ...row });
    const { kind, context, rates, encodeUs } = row;
    const [rate, low, high] = [row.rate, row.low, row.high].map((value) => Number(value.toPrecision(4)));
    const shown = { configuration: configuration.name, kind, context, rate, low, high, n: rates.length, encodeUs };
    log(`ROW ${JSON.stringify(shown)}`);
  };
  for (const context of contexts) {
    add(await measurePrefill(session, context, protocol));
    add(await measureDecode(session, context, protocol));
  }
  for (const border of borders) add(await measureBorder(session, border, protocol));
  for (const context of aborted) {
    const row = await measureAbort(session, context, protocol);
    result.aborts = [...(result.aborts ?? []), row];
    log(`ABORT ${JSON.stringify({ configuration: configuration.name, ...row })}`);
  }
  result.memory = await session.memory?.();
  result.longTasks = longTasks.splice(0);
  log(`LONGTASKS ${configuration.name} ${JSON.stringify(result.longTasks)}`);
  if (query.has('profile') && session.profile) {
    for (const context of list('profile', '').map(Number)) {
      const profiles = await session.profile(context);
      for (const [name, times] of Object.entries(profiles)) {
        (result.profiles ??= []).push({ context, name, kernels: byKernel(times, peak) });
        log(`PROFILE ${configuration.name} ${name} ${context}\n${table(times, peak).join('\n')}`);
      }
      await saveFile(report, `trace-${configuration.name}-${context}.json`, JSON.stringify(traceEvents(profiles)));
    }
  }
  await session.dispose();
}

async function main() {
  const report = {
    suite: 'llm',
    time: new Date().toISOString(),
    userAgent: navigator.userAgent,
    cores: navigator.hardwareConcurrency,
    options,
    configurations: [],
    rows: [],
    failures: [],
  };
  for (const name of list('only', 'f16,f32,no-matrix,baseline,wasm')) {
    try {
      await measureConfiguration(configurations(name), report);
    } catch (error) {
      log(`${name}: ${error?.stack ?? error}`);
      report.failures.push({ configuration: name, error: String(error?.stack ?? error) });
    }
  }
  return report;
}

window.result = main();
window.result.then((report) => console.log('DONE ' + JSON.stringify(report)));
