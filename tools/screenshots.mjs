// Every page of the playground at three widths, light and dark, into build/screenshots.
//
//   node tools/screenshots.mjs [--only REGEX] [--samples FOLDER]
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { launch } from './browser/launch.mjs';
import { modelsIndex } from './models_index.mjs';
import { keepConversations, modelsFolder, servePlayground } from './playground.mjs';

const ROOT = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const FOLDER = path.join(ROOT, 'build/screenshots');
const SIZES = [
  { width: 390, height: 844 },
  { width: 820, height: 1180 },
  { width: 1440, height: 900 },
];
const { values: options } = parseArgs({
  options: { only: { type: 'string', default: '' }, samples: { type: 'string', default: '' } },
});

const ANSWER = `Light from the sun has all colours. Air scatters **short waves** far more than long ones:

- blue light is scattered about *five times* as much as red,
- violet even more, but our eyes see less of it.

\`\`\`python
def scattering(wavelength_nm):
    """Rayleigh: the fourth power of the wavelength."""
    return (400 / wavelength_nm) ** 4
\`\`\`

So the sky looks blue, and the evening sun, whose light has crossed much more air, looks red.`;

/** Conversations as a reader would have them; times long ago, so that a run's own comes first. */
const conversation = (id, title, messages, updated) => ({ id, title, created: 0, updated, system: '', messages });
const CONVERSATIONS = [
  conversation(
    'sky',
    'Why is the sky blue?',
    [
      { id: 'a', role: 'user', content: 'Why is the sky blue?' },
      {
        id: 'b',
        role: 'assistant',
        content: ANSWER,
        stats: { model: 'smollm2-135m-instruct', device: 'GPU', tokens: 148, tokensPerSecond: 96.4, firstTokenMs: 41 },
      },
      { id: 'c', role: 'user', content: 'And at night?' },
      { id: 'd', role: 'assistant', content: 'At night there is no', ended: 'stopped' },
    ],
    3,
  ),
  conversation('trip', 'Three days in Lisbon with two children and a dog', [], 2),
  conversation('haiku', 'Write a haiku about rain.', [], 1),
];

const press = (name) => (page) => page.raw.getByRole('button', { name }).first().click();
const click = (selector) => (page) => page.raw.locator(selector).first().click();
const scrollTo = (selector) => (page) => page.raw.locator(selector).evaluate((e) => e.scrollIntoView());
const waitFor = (selector) => (page) => page.raw.waitForSelector(selector);

/** A file that is no picture. */
const noPicture = (page) =>
  page.raw.setInputFiles('#file', { name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('hello') });

/**
 * What is to be seen: a place of the site and what is done there first. `broken`: the host has lost the models; `slow`:
 * it takes its time.
 */
const SCENES = [
  { name: 'chat-welcome', hash: '#/' },
  { name: 'chat-conversation', hash: '#/chat/sky', conversations: true },
  {
    name: 'chat-settings',
    hash: '#/chat/sky',
    conversations: true,
    steps: [click('button[aria-label^="How it answers"]')],
  },
  { name: 'chat-answering', hash: '#/', steps: [click('.examples button'), waitFor('.message.assistant .prose p')] },
  { name: 'pictures', hash: '#/pictures' },
  { name: 'pictures-result', hash: '#/pictures', steps: [click('.samples button'), waitFor('.results .value')] },
  { name: 'models', hash: '#/models' },
  { name: 'device', hash: '#/device' },
  { name: 'device-tests', hash: '#/device', steps: [scrollTo('section[aria-label="Self-test"]')] },
  {
    name: 'device-tested',
    hash: '#/device',
    withoutGpu: true,
    steps: [
      press('Run the self-test'),
      waitFor('.test-row:nth-child(2) .good'),
      scrollTo('section[aria-label="Self-test"]'),
    ],
  },
  {
    name: 'device-measured',
    hash: '#/device',
    steps: [press('Measure'), waitFor('.numbers'), scrollTo('section[aria-label="Benchmark"]')],
  },
  {
    name: 'chat-loading',
    hash: '#/',
    slow: true,
    steps: [press(/Download and start/), waitFor('.loading :text("left")')],
  },
  { name: 'chat-error', hash: '#/', broken: true, steps: [press(/Download and start/), waitFor('.problem')] },
  {
    name: 'chat-conversation-error',
    hash: '#/chat/sky',
    conversations: true,
    broken: true,
    steps: [press(/Download and start/), waitFor('.problem'), click('.problem summary')],
  },
  { name: 'pictures-error', hash: '#/pictures', steps: [noPicture, waitFor('.problem')] },
  {
    name: 'models-downloaded',
    hash: '#/models',
    steps: [press('Download'), waitFor('.model-row:has-text("on this device")')],
  },
  { name: 'privacy', hash: '#/', steps: [click('.promise')] },
];

async function shoot(browser, server, scene, size, dark) {
  const page = await browser.open(`${server.url}?device=wasm`, { ...size, dark });
  page.raw.setDefaultTimeout(60_000);
  lost = scene.broken === true;
  for (const model of modelsIndex(modelsFolder)) {
    const program = new URL(`${model.url}model.pte`, server.url).pathname;
    if (scene.slow) server.faults[program] = { bytesPerSecond: 12e6 };
    else delete server.faults[program];
  }
  try {
    if (scene.withoutGpu) {
      await page.raw.addInitScript(() => Object.defineProperty(navigator, 'gpu', { value: undefined }));
    }
    if (scene.conversations) await keepConversations(page.raw, CONVERSATIONS);
    await page.raw.goto(`${server.url}?device=wasm${scene.hash}`);
    if (scene.conversations || scene.withoutGpu) await page.raw.reload();
    await page.raw.waitForSelector('h1');
    await page.raw.waitForTimeout(500);
    for (const step of scene.steps ?? []) await step(page);
    await page.raw.waitForTimeout(400);
    await page.screenshot(path.join(FOLDER, `${scene.name}-${size.width}-${dark ? 'dark' : 'light'}.png`));
  } finally {
    await page.close();
  }
}

mkdirSync(FOLDER, { recursive: true });
let lost = false; // the models, on their host
const intercept = (request, response, headers) => {
  if (!lost || !/\.pte$/.test(request.url)) return false;
  response.writeHead(404, headers).end();
  return true;
};
const server = await servePlayground({ samples: options.samples, intercept });
const browser = await launch('chromium', (line) => console.log(`  [page] ${line}`));
try {
  for (const scene of SCENES) {
    for (const size of SIZES) {
      for (const dark of [false, true]) {
        const name = `${scene.name}-${size.width}-${dark ? 'dark' : 'light'}`;
        if (new RegExp(options.only).test(name)) await shoot(browser, server, scene, size, dark);
      }
    }
  }
} finally {
  await browser.close();
  await server.close();
}
console.log(`screenshots: in ${path.relative(process.cwd(), FOLDER)}`);
