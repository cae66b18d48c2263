// Headless browsers with WebGPU, on machines with and without a GPU: one small interface over two drivers.
//
//   const browser = await launch('chromium');
//   const page = await browser.open(url);           // {evaluate(fn, argument), screenshot(path), …}
//   await browser.close();
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const GPU = existsSync('/dev/dri') || existsSync('/dev/nvidia0');

const chromiumFlags = (gpu) => [
  '--no-sandbox',
  // without these Chromium has no adapter on a machine without a GPU
  ...(gpu ? ['--enable-unsafe-webgpu', '--enable-webgpu-developer-features'] : []),
  ...(gpu && !GPU ? ['--use-webgpu-adapter=swiftshader'] : []),
  // with shader-f16, which Chrome has on NVIDIA elsewhere, but on Linux only if asked to
  ...(gpu && GPU ? ['--enable-features=Vulkan', '--enable-dawn-features=vulkan_enable_f16_on_nvidia'] : []),
  '--no-first-run',
  '--use-fake-device-for-media-stream',
  '--disable-quic',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];
const FIREFOX_PREFS = {
  'dom.webgpu.enabled': true,
  'dom.webgpu.workers.enabled': true,
  'gfx.webgpu.ignore-blocklist': true,
  // nothing but our own server
  'app.update.enabled': false,
  'browser.safebrowsing.update.enabled': false,
  'datareporting.policy.dataSubmissionEnabled': false,
  'extensions.update.enabled': false,
  'network.captive-portal-service.enabled': false,
  'network.connectivity-service.enabled': false,
  'services.settings.server': 'http://127.0.0.1:9/',
  'toolkit.telemetry.enabled': false,
};

async function launchChromium(onConsole, { gpu = true }) {
  const { chromium } = await import('playwright-core');
  if (!process.env.CHROMIUM) throw new Error('CHROMIUM is not set: source tools/env.sh');
  const args = chromiumFlags(gpu);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, args });
  return {
    name: 'chromium',
    version: browser.version(),
    async open(url, { width = 1280, height = 800, dark = false, beside } = {}) {
      // `beside`: another page whose storage it shares; in Firefox all do
      const viewport = { width, height };
      const context =
        beside?.raw.context() ?? (await browser.newContext({ viewport, colorScheme: dark ? 'dark' : 'light' }));
      const page = await context.newPage();
      page.setDefaultTimeout(0);
      page.on('console', (message) => onConsole(message.text()));
      page.on('pageerror', (error) => onConsole(`error: ${error.message}`));
      await page.goto(url);
      return {
        raw: page,
        evaluate: (fn, argument) => page.evaluate(fn, argument),
        expose: (name, fn) => page.exposeFunction(name, fn),
        screenshot: (file) => page.screenshot({ path: file }),
        close: () => (beside ? page.close() : context.close()),
      };
    },
    close: () => browser.close(),
  };
}

async function launchFirefox(onConsole, { prefs = {} }) {
  const { default: puppeteer } = await import('puppeteer-core');
  if (!process.env.FIREFOX) throw new Error('FIREFOX is not set: source tools/env.sh');
  const profile = mkdtempSync(path.join(os.tmpdir(), 'etwgpu-firefox-'));
  const browser = await puppeteer.launch({
    browser: 'firefox',
    executablePath: process.env.FIREFOX,
    headless: true,
    userDataDir: profile,
    extraPrefsFirefox: { ...FIREFOX_PREFS, ...prefs },
    protocolTimeout: 0,
    // else Firefox keeps the body of every response for the driver: memory grows by what is downloaded
    networkEnabled: false,
  });
  return {
    name: 'firefox',
    version: (await browser.version()).replace(/^firefox\//i, ''),
    async open(url, { width = 1280, height = 800 } = {}) {
      const page = await browser.newPage();
      page.setDefaultTimeout(0);
      await page.setViewport({ width, height });
      page.on('console', (message) => onConsole(message.text()));
      page.on('pageerror', (error) => onConsole(`error: ${error.message}`));
      await page.goto(url);
      return {
        raw: page,
        evaluate: (fn, argument) => page.evaluate(fn, argument),
        expose: (name, fn) => page.exposeFunction(name, fn),
        screenshot: (file) => page.screenshot({ path: file }),
        close: () => page.close(),
      };
    },
    async close() {
      await browser.close();
      rmSync(profile, { recursive: true, force: true });
    },
  };
}

/**
 * `onConsole` gets what pages print and what they throw. `gpu: false`: a Chromium that finds no adapter, as on a machine
 * without a GPU. `prefs`: of Firefox, beside those above.
 */
export function launch(name, onConsole = () => {}, options = {}) {
  return name === 'firefox' ? launchFirefox(onConsole, options) : launchChromium(onConsole, options);
}
