// The demo in the terminal: serves the playground, opens it in a headless Chromium, asks a question on WebGPU and on the
// CPU, streams the answers, writes build/demo/report.json. `--serve` only serves, for a browser of your own.
//
//   node tools/demo.mjs [--serve] [--port N] [--models FOLDER] [--samples FOLDER]
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { askInstrument, perToken } from './browser/counts.mjs';
import { launch } from './browser/launch.mjs';
import { modelsFolder, servePlayground } from './playground.mjs';

const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const PROMPT = 'What is the capital of France?';
const MODEL = 'smollm2-135m-instruct';

const { values: options } = parseArgs({
  options: {
    serve: { type: 'boolean', default: false },
    port: { type: 'string', default: '0' },
    models: { type: 'string', default: modelsFolder },
    samples: { type: 'string', default: '' },
  },
});
const say = (text) => console.log(`demo: ${text}`);

const startServer = () => servePlayground({ ...options, port: Number(options.port) });

/** Asks on the page as a person would; the page's events bring token ids and timings along. */
async function ask(browser, url, device, print) {
  const page = await browser.open(`${url}?device=${device}&instrument=${encodeURIComponent('./tools/instrument.js')}`);
  try {
    const phases = new Set();
    await page.expose('onPiece', (text) => print(text));
    await page.expose('onPhase', (phase) => {
      if (!phases.has(phase)) say(`${device}: ${phase}`);
      phases.add(phase);
    });
    await page.raw.waitForSelector('#prompt');
    // greedy, without the page's penalty for repetition: the figures are those of plain decoding
    await page.evaluate(() => localStorage.setItem('sampling', JSON.stringify({ repetitionPenalty: 1 })));
    await page.raw.reload();
    await page.raw.waitForSelector('#prompt');
    const answer = await page.evaluate(
      ({ prompt }) =>
        new Promise((resolve, reject) => {
          addEventListener('playground:token', ({ detail }) => window.onPiece(detail.text));
          addEventListener('playground:progress', ({ detail }) => window.onPhase(detail.phase));
          addEventListener('playground:answer', ({ detail }) => resolve(detail));
          addEventListener('playground:error', ({ detail }) => reject(new Error(detail)));
          document.getElementById('prompt').value = prompt;
          document.getElementById('form').requestSubmit();
        }),
      { prompt: PROMPT },
    );
    const counted = await askInstrument(page);
    return report(browser, device, answer, counted);
  } finally {
    await page.close();
  }
}

const perSecond = (count, ms) => (ms > 0 ? Number(((1000 * count) / ms).toFixed(2)) : null);

function report(browser, device, { result, info, memory }, counted) {
  const { timings } = result;
  const token = perToken(counted.tokens);
  const gpu = device === 'webgpu';
  return {
    device: info.device,
    browser: `${browser.name} ${browser.version}`,
    adapter: gpu
      ? [info.adapter.vendor, info.adapter.architecture, info.adapter.description].filter(Boolean).join(' ')
      : null,
    tier: gpu ? gpuTier(info.adapter) : `${info.wasmTier}, ${info.threads} threads`,
    prompt: PROMPT,
    text: result.text,
    token_ids: result.tokenIds,
    load_s: Number((info.loadMs / 1000).toFixed(2)),
    prefill_tok_s: perSecond(timings.promptTokens - timings.reusedTokens, timings.prefillMs),
    decode_tok_s: perSecond(timings.decodeTokens, timings.decodeMs),
    dispatches_per_token: token.dispatches ?? 0,
    submits_per_token: token.submits ?? 0,
    empty_submits_per_token: token.emptySubmits ?? 0,
    read_back_bytes_per_token: token.readBackBytes ?? 0,
    objects_created_per_token: (token.buffers ?? 0) + (token.bindGroups ?? 0) + (token.pipelines ?? 0),
    peak_wasm_heap_bytes: memory.wasmHeap,
    gpu_bytes: counted.gpuBytes,
  };
}

const gpuTier = (adapter) => (adapter.subgroups ? 'subgroups' : adapter.f16 ? 'f16' : 'baseline');

/** What a page downloads before the model: the largest of the builds that are there. */
function transfer() {
  const assets = path.join(ROOT, 'web/dist');
  const scripts = readdirSync(assets).filter((f) => f.endsWith('.js'));
  const sizes = readdirSync(path.join(assets, 'wasm')).map((build) => {
    const files = [
      ...scripts.map((f) => path.join(assets, f)),
      ...['etwgpu.mjs', 'etwgpu.wasm'].map((f) => path.join(assets, 'wasm', build, f)),
    ];
    return {
      build,
      raw_bytes: files.reduce((sum, f) => sum + statSync(f).size, 0),
      gzip_bytes: files.reduce((sum, f) => sum + gzipSync(readFileSync(f), { level: 9 }).length, 0),
    };
  });
  const largest = sizes.reduce((a, b) => (b.gzip_bytes > a.gzip_bytes ? b : a));
  return { raw_bytes: largest.raw_bytes, gzip_bytes: largest.gzip_bytes, builds: sizes };
}

async function demo() {
  const server = await startServer();
  say(`the page is at ${server.url}`);
  const log = [];
  const browser = await launch('chromium', (line) => log.push(line));
  say(`opened Chromium ${browser.version}`);
  const devices = [];
  try {
    for (const device of ['webgpu', 'wasm']) {
      say(`asking on ${device}: ${PROMPT}`);
      let started = false;
      const entry = await ask(browser, server.url, device, (text) => {
        if (!started) process.stdout.write('\n  ');
        started = true;
        process.stdout.write(text);
      });
      process.stdout.write('\n\n');
      say(
        `${device}: ${entry.decode_tok_s} tokens/s after ${entry.prefill_tok_s} tokens/s of prompt; loaded in ${entry.load_s} s` +
          (device === 'webgpu'
            ? `; ${entry.dispatches_per_token} dispatches and ${entry.submits_per_token} submit a token`
            : ''),
      );
      devices.push(entry);
    }
  } catch (error) {
    for (const line of log.slice(-20)) console.error(`  [page] ${line}`);
    throw error;
  } finally {
    await browser.close();
    await server.close();
  }
  const folder = path.join(ROOT, 'build/demo');
  mkdirSync(folder, { recursive: true });
  const file = path.join(folder, 'report.json');
  writeFileSync(file, JSON.stringify({ devices, runtime_transfer: transfer() }, null, 2) + '\n');
  say(`wrote ${path.relative(process.cwd(), file)}`);
  say('to try it in your own browser: make serve, then open the address that it prints');
}

if (!existsSync(path.join(options.models, MODEL, 'manifest.json'))) {
  throw new Error(`there is no ${MODEL} in ${options.models}: tools/demo.sh exports it`);
}
if (options.serve) {
  const { url } = await startServer();
  say(`open ${url} (Ctrl-C ends it)`);
} else {
  await demo();
}
