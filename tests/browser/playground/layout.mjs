// Where things are: on a phone on its side, where lines wrap, in scripts that are read from right to left.
import { keepConversations } from '../../../tools/playground.mjs';
import { assert } from '../runner.mjs';
import { Visitor } from './visitor.mjs';

const STATS = { model: 'smollm2-135m-instruct', device: 'GPU', tokens: 148, tokensPerSecond: 96.4, firstTokenMs: 41 };
const ARABIC = 'لماذا السماء زرقاء؟';

const conversation = (id, messages) => ({ id, title: id, created: 0, updated: 0, system: '', messages });
const CONVERSATIONS = [
  conversation('right-to-left', [
    { id: 'a', role: 'user', content: `${ARABIC}\nWhy is it blue, and not green?` },
    { id: 'b', role: 'assistant', content: `${ARABIC}\n\nIn English.\n\n- ${ARABIC}\n\n\`\`\`\nlet x;\n\`\`\`` },
  ]),
  conversation('tasks', [
    { id: 'a', role: 'assistant', content: '- [ ] to do\n- [x] done\n\n  and more\n- neither', stats: STATS },
  ]),
];

async function open(browser, server, id, size) {
  const visitor = await Visitor.open(browser, server, size);
  await keepConversations(visitor.raw, CONVERSATIONS);
  await visitor.raw.goto(`${visitor.url}#/chat/${id}`);
  await visitor.raw.reload();
  await visitor.raw.waitForSelector('.message');
  return visitor;
}

async function scripts(browser, server, test) {
  await test('layout: texts run in the direction of their script, code from left to right', async () => {
    const visitor = await open(browser, server, 'right-to-left');
    /** The distances of a line's text from both ends of its box: [left, right]. */
    const ends = (selector, line = 0) =>
      visitor.raw
        .locator(selector)
        .first()
        .evaluate((box, n) => {
          const range = document.createRange();
          range.selectNodeContents(box);
          const all = Array.from(range.getClientRects()); // several a line, where scripts change
          const top = [...new Set(all.map((rect) => rect.top))].sort((a, b) => a - b)[n];
          const parts = all.filter((rect) => rect.top === top);
          const { left, right } = box.getBoundingClientRect();
          return [Math.min(...parts.map((p) => p.left)) - left, right - Math.max(...parts.map((p) => p.right))];
        }, line);
    for (const [what, line, fromRight] of [
      ['.bubble', 0, true],
      ['.bubble', 1, false],
      ['.prose p', 0, true],
      ['.prose p + p', 0, false],
      ['.prose li', 0, true],
      ['.prose pre', 0, false],
    ]) {
      const [left, right] = await ends(what, line);
      assert(fromRight ? right < left : left <= right, `line ${line} of ${what} is ${left} and ${right} from its ends`);
    }
    for (const selector of ['.composer textarea', '#setting-system', '.rename input']) {
      if (selector === '#setting-system') await visitor.click('button', 'How it answers: settings');
      if (selector === '.rename input') await visitor.raw.locator('.row button').first().click();
      await visitor.raw.fill(selector, ARABIC);
      assert(await visitor.raw.locator(`${selector}:dir(rtl)`).count(), `${selector} is written from left to right`);
      if (selector === '#setting-system') await visitor.raw.keyboard.press('Escape');
    }
    await visitor.close();
  });
}

async function lines(browser, server, test) {
  await test('layout: the boxes of a task list are its bullets; no line of the statistics begins with a dot', async () => {
    const visitor = await open(browser, server, 'tasks', { width: 320, height: 640 });
    const items = await visitor.raw.locator('.prose li').evaluateAll((all) =>
      all.map((item) => {
        const bullet = getComputedStyle(item).listStyleType.replaceAll(/["\s]/g, '');
        return `${bullet} ${item.innerText.replace(/\s+/g, ' ').trim()}`;
      }),
    );
    assert(items.join() === '☐ to do,☑ done and more,disc neither', items);
    const { rows, first } = await visitor.raw.locator('.stats').evaluate(({ firstChild: text }) => {
      const at = (i) => {
        const range = document.createRange();
        range.setStart(text, i);
        range.setEnd(text, i + 1);
        return { letter: text.data[i], top: range.getBoundingClientRect().top };
      };
      const letters = Array.from(text.data, (_, i) => at(i)).filter(({ letter }) => letter.trim());
      const begin = letters.filter(({ top }, i) => top !== letters[i - 1]?.top);
      return { rows: begin.length, first: begin.map(({ letter }) => letter).join('') };
    });
    assert(rows > 1 && !first.includes('·'), `${rows} lines, which begin with ${first}`);
    await visitor.close();
  });
}

async function onItsSide(browser, server, test) {
  await test('layout: on a phone on its side all of the first page can be scrolled into view', async () => {
    for (const [width, height] of [
      [740, 360],
      [844, 390],
    ]) {
      const visitor = await Visitor.open(browser, server, { width, height });
      await visitor.raw.waitForSelector('.examples button:enabled');
      const wide = await visitor.raw.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert(wide <= 0, `at ${width} × ${height} the page is ${wide} pixels wider than the screen`);
      for (const selector of ['.welcome h1', '.model-card', '.examples', '.composer']) {
        const covered = await visitor.raw.locator(selector).evaluate((e) => {
          e.scrollIntoView({ block: 'center' });
          const { left, right, top, bottom } = e.getBoundingClientRect();
          const seen = (y) => e.contains(document.elementFromPoint((left + right) / 2, y));
          return [top + 1, (top + bottom) / 2, bottom - 2].filter((y) => !seen(y));
        });
        assert(covered.length === 0, `at ${width} × ${height} ${selector} is covered at ${covered}`);
      }
      await visitor.close();
    }
  });
}

export async function layoutTests(browser, server, test) {
  await scripts(browser, server, test);
  await lines(browser, server, test);
  await onItsSide(browser, server, test);
}
