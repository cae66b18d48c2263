// What a page's quality is measured by (Lighthouse names the same): it paints before anything heavy is fetched, nothing
// moves, nothing is cut off, whatever is to be pressed can be hit, and the console has no errors.
import { keepConversations } from '../../../tools/playground.mjs';
import { assert } from '../runner.mjs';
import { noShift, Visitor } from './visitor.mjs';

const FULL = process.env.ETWGPU_TEST_FULL === '1';
const PAGES = ['#/', '#/chat/x', '#/pictures', '#/models', '#/device'];
const WIDTHS = FULL ? [320, 390, 820, 1440] : [320];
/** In CSS pixels, on a side: WCAG 2.2, 2.5.8. */
const LEAST_TARGET = 24;
const HEAVY = /\.(wasm|mjs|pte)$|\/worker[^/]*\.js$/;

/** What a page learns of from its server, and how long after it is painted, in milliseconds: nothing may move then. */
const LISTS = /\/(models|samples)\/index\.json$/;
const LATE = 300;

const LONG = 'https://example.com/a-word-that-is-longer-than-any-line-of-a-small-screen-can-be';

const CONVERSATION = {
  id: 'x',
  title: 'A long name of a conversation, longer than a small screen is wide',
  created: 0,
  updated: 0,
  system: '',
  messages: [
    {
      id: 'a',
      role: 'user',
      content: LONG,
    },
    {
      id: 'b',
      role: 'assistant',
      content: `# ${LONG}\n\n1. *${LONG}*\n   - [ ] \`${LONG}\`\n\n> ${LONG}

| ${LONG} | b | c | d |\n|---|---|---|---|\n| 1 | 2 | 3 | ${LONG} |

\`\`\`\nlet x = "a line of code that has to be scrolled";\n\`\`\``,
      stats: { model: 'x', device: 'GPU', tokens: 1048, tokensPerSecond: 1296.4, firstTokenMs: 12345 },
    },
    { id: 'c', role: 'assistant', content: '', ended: 'stopped' },
  ],
};

/** What opens each dialog of a conversation: one click after the other, of those that this width has. */
const DIALOGS = [
  ['[aria-label^="How it answers"]'],
  ['.only-narrow[aria-label="Conversations"]', '.row button'],
  ['.model-button'],
  ['.promise'],
];

/** Runs in the page. */
function measure(least) {
  const [paint] = performance.getEntriesByName('first-contentful-paint');
  // what is wider than its place and scrolls, where only code and tables may
  const wide = Array.from(document.querySelectorAll('html, body *'))
    .filter((e) => e.scrollWidth > e.clientWidth && !e.matches('pre, .table'))
    .filter((e) => e.matches('html') || /auto|scroll/.test(getComputedStyle(e).overflowX))
    .map((e) => `${e.tagName}.${e.className} by ${e.scrollWidth - e.clientWidth}`);
  const visible = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const inLine = (e) => getComputedStyle(e).display === 'inline'; // a link in a text is as high as its line
  const small = Array.from(document.querySelectorAll('a, button, select, summary, input:not([type=radio])'), (e) => {
    const { width, height, left, right } = e.getBoundingClientRect();
    const name = e.getAttribute('aria-label') ?? e.innerText ?? e.id;
    if (!visible(e) || inLine(e) || e.matches('.visually-hidden, .skip-link')) return undefined;
    if (right > innerWidth + 1 || left < -1) return `${name} is cut off`;
    return width < least || height < least ? `${name} has ${width} × ${height}` : undefined;
  }).filter(Boolean);
  return {
    painted: paint?.startTime,
    wide,
    small,
    heads: document.querySelectorAll('h1').length,
    named: document.title.length > 0 && document.documentElement.lang === 'en',
    images: Array.from(document.images).filter((image) => !image.hasAttribute('alt')).length,
  };
}

function fits(where, { wide, small }) {
  assert(wide.length === 0, `${where} scrolls sideways: ${wide.join('; ')}`);
  assert(small.length === 0, `${where}: ${small.join('; ')}`);
}

/** At the conversation, where `onePage` has been. */
async function dialogs(visitor, width) {
  await visitor.raw.goto(`${visitor.url}${PAGES[1]}`);
  await visitor.raw.waitForSelector('.message');
  for (const steps of DIALOGS) {
    for (const selector of steps) {
      const button = visitor.raw.locator(`${selector}:visible`).first();
      if ((await button.count()) === 0) continue;
      await button.click();
      await visitor.raw.waitForSelector('dialog[open]');
      fits(`${selector} at ${width}`, await visitor.raw.evaluate(measure, LEAST_TARGET));
    }
    for (; await visitor.raw.locator('dialog[open]').count(); await visitor.raw.waitForTimeout(50)) {
      await visitor.raw.keyboard.press('Escape');
    }
  }
}

async function onePage(visitor, hash, requests, width) {
  await visitor.raw.goto('about:blank');
  requests.length = 0;
  await visitor.raw.goto(`${visitor.url}${hash}`);
  await visitor.raw.waitForSelector('main h1', { state: 'attached' });
  await visitor.raw.waitForTimeout(LATE + 250); // what the page does on its own comes now
  const where = `${hash} at ${width}`;
  const heavy = requests.filter((url) => HEAVY.test(new URL(url).pathname));
  assert(heavy.length === 0, `${where} asks for ${heavy} before anybody wants a model`);
  const found = await visitor.raw.evaluate(measure, LEAST_TARGET);
  assert(found.painted > 0, `${where} has painted nothing`);
  fits(where, found);
  assert(found.heads === 1 && found.named && found.images === 0, { where, ...found });
  await noShift(visitor, where);
}

export async function qualityTests(browser, server, test) {
  for (const width of WIDTHS) {
    await test(`quality: at ${width} pixels every page paints first, keeps still and has nothing cut off`, async () => {
      const visitor = await Visitor.open(browser, server, { query: '', width, height: 844 });
      const requests = [];
      const errors = [];
      // not those of the service worker, which keeps the page's files once it is shown
      visitor.raw.on('request', (request) => requests.push(request.url()));
      visitor.raw.on('console', (message) => message.type() === 'error' && errors.push(message.text()));
      visitor.raw.on('pageerror', (error) => errors.push(error.message));
      await visitor.raw.context().route(LISTS, async (route) => {
        await new Promise((resolve) => setTimeout(resolve, LATE));
        await route.continue();
      });
      await keepConversations(visitor.raw, [CONVERSATION]);
      for (const hash of PAGES) await onePage(visitor, hash, requests, width);
      await dialogs(visitor, width);
      assert(errors.length === 0, `the console has ${errors.join('; ')}`);
      await visitor.close();
    });
  }
  await test('quality: where the lists do not come, or an address is none, what there is can be used', async () => {
    const visitor = await Visitor.open(browser, server, { query: '' });
    await visitor.raw.context().route(LISTS, () => {}); // never answered
    for (const hash of ['#/', '#/pictures']) {
      await visitor.raw.goto('about:blank');
      await visitor.raw.goto(`${visitor.url}${hash}`);
      await visitor.raw.locator('.model-card-device select').waitFor(); // visible
    }
    await visitor.raw.context().unroute(LISTS);
    await visitor.raw.goto(`${visitor.url}?model=http://#/`);
    await visitor.raw.locator('.load-button:enabled').waitFor();
    await visitor.close();
  });
}
