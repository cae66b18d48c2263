// Tables and a plot of what llm.js has measured:
//
//   node benchmarks/llm/report.mjs RESULT.json|DIR… [--out DIR]
//
// prints markdown, and with --out writes report.md, rows.jsonl and plot.svg.
import { mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { plot } from './plot.mjs';

// Llama-3.2-1B Q4_0 natively on one H200 (llama-bench, CUDA, graphs and flash attention); there is no wheel with CUDA on
// PyPI to run beside the browser, so these are figures measured before.
export const LLAMA_CPP = {
  name: 'llama.cpp CUDA, native (measured before)',
  prefill: { 512: 46924, 2048: 51270, 8192: 49563 },
  decode: { 128: 999, 512: 986, 2048: 957, 8192: 862 },
};

const PEERS = /^(onnxruntime|transformers|wllama|llama\.cpp)/;

/** All reports in files and folders. */
export function readReports(places) {
  const files = places.flatMap((place) =>
    statSync(place).isDirectory()
      ? readdirSync(place)
          .filter((name) => name.endsWith('.json') && !name.startsWith('trace-'))
          .map((name) => path.join(place, name))
      : [place],
  );
  return files.map((file) => JSON.parse(readFileSync(file))).filter((report) => report.suite === 'llm');
}

/** One series a model and configuration: {name, model, prefill, decode and border: {context: row}}. */
export function series(reports) {
  const all = new Map();
  for (const report of reports) {
    const model = report.options.model.replace(/\/$/, '').split('/').pop();
    for (const row of report.rows) {
      const key = `${model} ${row.configuration}`;
      if (!all.has(key)) all.set(key, { name: row.configuration, model, prefill: {}, decode: {}, border: {} });
      all.get(key)[row.kind][row.context] = row;
    }
  }
  return [...all.values()];
}

const cells = (values) => `| ${values.join(' | ')} |`;
const whole = (value) => (value >= 100 ? Math.round(value).toLocaleString('en') : value.toFixed(1));
const rate = (row) => (row ? `${whole(row.rate)} (${whole(row.low)}–${whole(row.high)})` : '–');
const contextsOf = (list, kind) =>
  [...new Set(list.flatMap((one) => Object.keys(one[kind]).map(Number)))].sort((a, b) => a - b);

function rateTable(list, kind) {
  const contexts = contextsOf(list, kind);
  const lines = [
    cells([`${kind}, tokens/s: median (range)`, ...contexts]),
    cells(['---', ...contexts.map(() => '---')]),
  ];
  for (const one of list) {
    lines.push(cells([`${one.model}: ${one.name}`, ...contexts.map((context) => rate(one[kind][context]))]));
  }
  if (contexts.some((context) => LLAMA_CPP[kind][context]))
    lines.push(cells([LLAMA_CPP.name, ...contexts.map((c) => (LLAMA_CPP[kind][c] ? whole(LLAMA_CPP[kind][c]) : '–'))]));
  return lines;
}

/** Decoding from a border on over decoding up to it. */
function borderTable(list) {
  const borders = contextsOf(list, 'border');
  if (!borders.length) return [];
  const share = (row) => (row ? `${(100 * row.rate).toFixed(1)} %` : '–');
  return [
    '',
    cells(['decode past a border, of that up to it', ...borders]),
    cells(['---', ...borders.map(() => '---')]),
    ...list
      .filter(({ border }) => Object.keys(border).length)
      .map(({ model, name, border }) => cells([`${model}: ${name}`, ...borders.map((at) => share(border[at]))])),
  ];
}

/** Ours over another series, where both have a row. */
function ratioTable(list, base) {
  const lines = [];
  for (const kind of ['prefill', 'decode']) {
    const contexts = contextsOf([base], kind);
    lines.push('', cells([`${kind}: times ${base.name}`, ...contexts]), cells(['---', ...contexts.map(() => '---')]));
    for (const one of list) {
      if (one === base) continue;
      const values = contexts.map((c) => (one[kind][c] ? (one[kind][c].rate / base[kind][c].rate).toFixed(1) : '–'));
      if (values.some((value) => value !== '–')) lines.push(cells([`${one.model}: ${one.name}`, ...values]));
    }
  }
  return lines;
}

/** How far the ids of the series of one model are the same. */
function agreement(list) {
  const lines = [];
  for (const model of new Set(list.map((one) => one.model))) {
    const [reference, ...others] = list.filter((one) => one.model === model);
    for (const other of others) {
      for (const context of contextsOf([reference, other], 'decode')) {
        const a = reference.decode[context]?.ids;
        const b = other.decode[context]?.ids;
        if (!a || !b) continue;
        const n = Math.min(a.length, b.length);
        const at = a.slice(0, n).findIndex((id, i) => id !== b[i]);
        lines.push(
          `- ${model} after ${context}: ${other.name} = ${reference.name} for ${at < 0 ? `all ${n}` : `${at} of ${n}`} tokens`,
        );
      }
    }
  }
  return lines;
}

export function markdown(reports) {
  const list = series(reports);
  const lines = [...rateTable(list, 'prefill'), '', ...rateTable(list, 'decode'), ...borderTable(list)];
  const ours = list.filter(({ name }) => !PEERS.test(name));
  for (const base of list.filter(({ name }) => name === 'wasm' || /^(onnxruntime|llama\.cpp)/.test(name)))
    lines.push(...ratioTable(ours, base));
  const ttft = list.filter((one) => one.prefill[512]);
  if (ttft.length)
    lines.push(
      '',
      ...ttft.map(
        (one) => `- ${one.model}: ${one.name}: first token of 512 after ${one.prefill[512].ms.toFixed(1)} ms`,
      ),
    );
  lines.push('', ...agreement(ours), '');
  for (const report of reports) {
    for (const { name, loadMs, memory, runtime, version, adapter, threads } of report.configurations) {
      const bytes = Object.entries(memory ?? {}).map(([key, value]) => `${key} ${(value / 1e6).toFixed(0)}`);
      const where = adapter ? `${adapter.vendor} ${adapter.architecture}` : `${threads ?? '?'} threads`;
      lines.push(
        `- ${name}: ${runtime} ${version ?? ''} on ${where}, loaded in ${(loadMs / 1000).toFixed(1)} s; ${bytes.length ? `MB: ${bytes.join(', ')}` : ''}`,
      );
    }
    for (const { configuration, error } of report.failures)
      lines.push(`- ${configuration} failed: ${error.slice(0, 200)}`);
  }
  lines.push('', `${reports[0]?.userAgent ?? ''}, ${reports[0]?.cores ?? '?'} cores, ${reports[0]?.time ?? ''}`);
  return lines.join('\n');
}

function main() {
  const { values, positionals } = parseArgs({ options: { out: { type: 'string' } }, allowPositionals: true });
  const reports = readReports(positionals);
  const text = markdown(reports);
  console.log(text);
  if (!values.out) return;
  mkdirSync(values.out, { recursive: true });
  writeFileSync(path.join(values.out, 'report.md'), text + '\n');
  const rows = reports.flatMap((report) => report.rows.map((row) => ({ model: report.options.model, ...row })));
  writeFileSync(path.join(values.out, 'rows.jsonl'), rows.map((row) => JSON.stringify(row) + '\n').join(''));
  writeFileSync(path.join(values.out, 'plot.svg'), plot(series(reports), LLAMA_CPP));
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) main();
