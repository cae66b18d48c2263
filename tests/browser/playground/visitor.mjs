// A visitor of the playground, for its tests.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { servePlayground } from '../../../tools/playground.mjs';
import { PICTURES } from '../pictures.mjs';
import { assert } from '../runner.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Until colours have changed with the theme. */
const FADE_MS = 250;

/** In a sub-folder, as on a host that several sites share. */
export const BASE = '/some/folder/';
export const QUESTION = 'What is the capital of France?';
/** For one step, in milliseconds: loading a model on a busy machine. */
export const TIMEOUT = 90_000;

export const serve = (options) => servePlayground({ base: BASE, samples: PICTURES, ...options });

/** A visitor: a fresh browser profile and a page. */
export class Visitor {
  constructor(page, url) {
    this.raw = page.raw;
    this.close = page.close;
    this.url = url;
  }
  /** `gpu`: false hides WebGPU. */
  static async open(browser, server, { query = '?device=wasm', hash = '', gpu = true, ...options } = {}) {
    const page = await browser.open('about:blank', options);
    const visitor = new Visitor(page, `${server.url}${query}`);
    page.raw.setDefaultTimeout(TIMEOUT);
    await page.raw.context().addInitScript(watchPage);
    if (!gpu)
      await page.raw.context().addInitScript(() => Object.defineProperty(navigator, 'gpu', { value: undefined }));
    await page.raw.goto(`${visitor.url}${hash}`);
    await page.raw.waitForSelector('main h1');
    return visitor;
  }
  click = (role, name) =>
    this.raw
      .getByRole(role, { name, exact: typeof name === 'string' })
      .first()
      .click();
  text = (selector) => this.raw.locator(selector).last().innerText();
  /** Waits until no answer is under way. */
  answered = () => this.raw.waitForSelector('#send');
  /** Does what begins an answer, and waits for its end. A short one may be over before anybody polls for `#stop`. */
  async asking(action) {
    const begun = this.raw.evaluate(
      () =>
        new Promise((resolve) => {
          const observer = new MutationObserver(() => {
            if (!document.querySelector('#stop')) return;
            observer.disconnect();
            resolve();
          });
          observer.observe(document.body, { childList: true, subtree: true });
        }),
    );
    await action();
    await begun;
    await this.answered();
  }
  /** How many minor things axe finds, in the theme that is shown. @throws for serious ones. */
  async axe(what) {
    await this.raw.waitForTimeout(FADE_MS);
    if (!(await this.raw.evaluate('"axe" in window'))) await this.raw.evaluate(AXE);
    const violations = await this.raw.evaluate(async () => {
      const found = await window.axe.run(document, { resultTypes: ['violations'] });
      return found.violations.map(({ id, impact, nodes }) => ({
        id,
        impact,
        where: nodes.map((n) => n.target.join(' ')),
      }));
    });
    const bad = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
    assert(bad.length === 0, `${what}: ${JSON.stringify(bad)}`);
    return violations.length;
  }
  /** The same in both themes. */
  async axeInBoth(what) {
    for (const colorScheme of ['dark', 'light']) {
      await this.raw.emulateMedia({ colorScheme });
      await this.axe(`${what}, ${colorScheme}`);
    }
  }
  answers = () => this.raw.locator('.message.assistant .prose').allInnerTexts();
  /** Polls: the page's policy forbids what `waitForFunction` does. */
  async until(condition) {
    for (const end = Date.now() + TIMEOUT; Date.now() < end; await this.raw.waitForTimeout(50)) {
      if (await this.raw.evaluate(condition)) return;
    }
    throw new Error(`never came true: ${condition}`);
  }
  /** Sets the longest answer, in tokens: the tests ask many questions. */
  async limit(tokens) {
    await this.click('button', 'How it answers: settings');
    await this.raw.locator('#setting-maxTokens').fill(String(tokens));
    await this.raw.keyboard.press('Tab');
    await this.raw.keyboard.press('Escape');
    await this.raw.waitForSelector('dialog[open]', { state: 'detached' });
  }
}

/** Runs in every page before its scripts: what the tests ask for later, and what keeps them cheap. */
function watchPage() {
  // one thread: where other programs use the processors, two that wait for each other take four times as long
  Object.defineProperty(navigator, 'hardwareConcurrency', { value: 1 });
  window.shifts = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const moved = entry.sources.map(({ node }) => node?.className ?? node?.nodeName).join(', ');
      if (!entry.hadRecentInput) window.shifts.push({ value: entry.value, moved });
    }
  }).observe({ type: 'layout-shift', buffered: true });
}

/** Far below what anybody notices (0.1 counts as good): what is left is text that grows as it comes. */
const MOST_SHIFT = 0.02;
export const noShift = async (visitor, what) => {
  const shifts = await visitor.raw.evaluate(() => window.shifts);
  const total = shifts.reduce((sum, { value }) => sum + value, 0);
  assert(total <= MOST_SHIFT, `${what} moved by ${total}: ${JSON.stringify(shifts)}`);
};
