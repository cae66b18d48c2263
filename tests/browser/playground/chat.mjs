// The first visit, answers, conversations.
import { readFileSync } from 'node:fs';
import { assert } from '../runner.mjs';
import { noShift, QUESTION, Visitor } from './visitor.mjs';

const FULL = process.env.ETWGPU_TEST_FULL === '1';

async function firstVisit(browser, server, test) {
  let visitor;
  await test('first visit: paints without the runtime', async () => {
    const requests = [];
    const page = await browser.open('about:blank');
    page.raw.on('request', (request) => requests.push(request.url()));
    await page.raw.goto(server.url);
    await page.raw.waitForSelector('.examples button:enabled');
    const early = requests.filter((url) => /\.(wasm|mjs|pte)$|worker/.test(url));
    assert(early.length === 0, `before anybody asked for a model: ${early}`);
    await page.close();
  });
  await test('two clicks to an answer, with the size said before', async () => {
    visitor = await Visitor.open(browser, server);
    await visitor.limit(16);
    const load = visitor.raw.getByRole('button', { name: /Download and start · 99 MB/ });
    await load.click();
    await visitor.click('button', QUESTION);
    await visitor.raw.waitForSelector('.stats:has-text("tokens/s")');
    await visitor.answered();
    const [answer] = await visitor.answers();
    assert(/Paris/.test(answer), `the answer is "${answer}"`);
    const stats = await visitor.text('.stats');
    assert(/tokens\/s\s· \d+ tokens?\s· first after .*\s· CPU/.test(stats), stats);
    const meter = await visitor.text('.meter');
    assert(/^\d+ of 2,048$/.test(meter.trim()), `the context meter says "${meter}"`);
    await noShift(visitor, 'loading and answering');
  });
  return visitor;
}

async function conversations(visitor, test) {
  await test('stop keeps what is there; Esc is enough', async () => {
    await visitor.limit(400);
    await visitor.raw.fill('#prompt', 'Tell me a very long story about a whale.');
    await visitor.raw.keyboard.press('Shift+Enter');
    await visitor.raw.keyboard.type('Please.');
    await visitor.raw.keyboard.press('Enter');
    await visitor.until(() => document.querySelector('.streaming')?.textContent.length > 20);
    await visitor.raw.keyboard.press('Escape');
    await visitor.answered();
    assert((await visitor.text('.note')) === 'Stopped.', `the note is "${await visitor.text('.note')}"`);
    const asked = await visitor.text('.bubble');
    assert(asked.endsWith('whale.\nPlease.'), `asked "${asked}"`);
    const [, answer] = await visitor.answers();
    assert(answer.length > 20, `kept "${answer}"`);
  });
  await test('a reload keeps the conversation, and the answer that was stopped', async () => {
    const before = await visitor.answers();
    await visitor.raw.reload();
    await visitor.raw.waitForSelector('.message');
    const after = await visitor.answers();
    assert(JSON.stringify(after) === JSON.stringify(before), `${before} became ${after}`);
  });
  await test('retry gives another answer in its place', async () => {
    await visitor.limit(16);
    const before = await visitor.answers();
    await visitor.asking(() => visitor.click('button', 'Try again, for a different answer'));
    const after = await visitor.answers();
    assert(after.length === before.length && after[0] === before[0], `${before.length} answers became ${after.length}`);
    assert(after[1] !== before[1] && after[1].length > 0, `the answer is still "${after[1]}"`);
  });
  await test('an edited message drops what came after it', async () => {
    await visitor.click('button', 'Edit your message');
    const editor = visitor.raw.locator('.editor textarea');
    assert((await editor.inputValue()) === QUESTION, `the editor has "${await editor.inputValue()}"`);
    await editor.fill('What is the capital of Germany?');
    await visitor.asking(() => editor.press('Enter'));
    const answers = await visitor.answers();
    assert(answers.length === 1 && /Berlin/.test(answers[0]), `answers: ${JSON.stringify(answers)}`);
  });
}

async function keeping(visitor, test) {
  const more = () => visitor.raw.locator('.sidebar .row button').first().click();
  await test('conversations are renamed, saved and deleted', async () => {
    await more();
    await visitor.raw.getByLabel('Name', { exact: true }).fill('Capitals');
    await visitor.click('button', 'Rename');
    await visitor.raw.waitForSelector('.row a:has-text("Capitals")');
    await more();
    for (const [button, file, words] of [
      ['Save as Markdown', 'capitals.md', /^# Capitals\n\n\*\*You:\*\*\n\nWhat is the capital of Germany\?/],
      ['Save as JSON', 'capitals.json', /"role": "assistant"/],
    ]) {
      const [download] = await Promise.all([visitor.raw.waitForEvent('download'), visitor.click('button', button)]);
      assert(download.suggestedFilename() === file, download.suggestedFilename());
      const text = readFileSync(await download.path(), 'utf8');
      assert(words.test(text), `${file} has ${text}`);
    }
    await visitor.click('button', 'Delete');
    await visitor.click('button', 'Really delete: this cannot be undone');
    await visitor.raw.waitForSelector('.welcome');
    await visitor.raw.reload();
    await visitor.raw.waitForSelector('.welcome');
    assert((await visitor.raw.locator('.row').count()) === 0, 'the conversation came back');
  });
}

/** The longest answer, in tokens, as a visitor has it who changed nothing. */
const LONGEST = 512;

async function examples(visitor, test) {
  await test('the examples are answered to an end, and not in circles', async () => {
    await visitor.limit(LONGEST);
    const buttons = visitor.raw.locator('.examples button:enabled');
    await buttons.first().waitFor();
    const count = await buttons.count();
    assert(count === 3, `${count} examples`);
    const lengths = [];
    for (let i = FULL ? 0 : count - 1; i < count; i++) {
      await visitor.asking(() => buttons.nth(i).click());
      const [answer] = await visitor.answers();
      assert((await visitor.raw.locator('.note').count()) === 0, `"${answer}" was cut off`);
      const sentences = answer.split(/(?<=[.!?])\s+/).filter((sentence) => sentence.length > 20);
      assert(new Set(sentences).size === sentences.length, `"${answer}" repeats itself`);
      lengths.push(answer.length);
      await visitor.raw.evaluate(() => (location.hash = '#/'));
      await buttons.first().waitFor();
    }
    return `${lengths} characters`;
  });
}

export async function chatTests(browser, server, test) {
  const visitor = await firstVisit(browser, server, test);
  if (!visitor) return;
  await conversations(visitor, test);
  await keeping(visitor, test);
  await examples(visitor, test);
  await visitor.close();
}
