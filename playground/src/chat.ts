import { ExecuTorchError, type ChatMessage, type Generation } from 'executorch-webgpu';
import { announce, element, Loader, memoryText, setUpTheme } from './common.js';
import { render } from './markdown.js';

const SUGGESTIONS = ['What is the capital of France?', 'Why is the sky blue?', 'Write a haiku about rain.'];
const MAX_TOKENS = 512;

setUpTheme();
const loader = new Loader();
const log = element('log');
const welcome = element('welcome');
const form = element<HTMLFormElement>('form');
const prompt = element<HTMLTextAreaElement>('prompt');
const send = element<HTMLButtonElement>('send');
const stop = element<HTMLButtonElement>('stop');
const newChat = element<HTMLButtonElement>('new-chat');
const loadButton = element<HTMLButtonElement>('load');

let messages: ChatMessage[] = [];
let current: Generation | undefined;
let busy = false;

function bubble(role: 'user' | 'assistant', text = ''): HTMLElement {
  const div = document.createElement('div');
  div.className = `message ${role}`;
  if (role === 'user') div.textContent = text;
  welcome.hidden = true;
  log.append(div);
  return div;
}

/** Follows the text unless the reader has scrolled up. */
function follow(change: () => void): void {
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function update(): void {
  send.hidden = busy;
  stop.hidden = !busy;
  newChat.hidden = messages.length === 0;
  loadButton.textContent = loader.session ? 'Reload' : 'Load';
}

async function load(): Promise<boolean> {
  loadButton.disabled = true;
  const session = await loader.load();
  loadButton.disabled = false;
  if (session) element('memory').textContent = await memoryText(session);
  update();
  return session !== undefined;
}

function note(target: HTMLElement, text: string): void {
  const p = document.createElement('p');
  p.className = 'note';
  p.textContent = text;
  target.append(p);
}

/** Streams an answer into the page; one paint a frame, however fast tokens come. */
async function answer(target: HTMLElement): Promise<void> {
  const session = loader.session;
  if (!session) return;
  let text = '';
  let tokens = 0;
  let frame = 0;
  let first = 0;
  const paint = () => {
    frame = 0;
    follow(() => target.replaceChildren(...render(text)));
    const seconds = (performance.now() - first) / 1000;
    if (tokens > 1) element('speed').textContent = `${((tokens - 1) / seconds).toFixed(1)} tokens/s`;
  };
  target.classList.add('waiting');
  current = session.generate(messages, {
    maxTokens: MAX_TOKENS,
    onToken: (token) => {
      if (tokens++ === 0) first = performance.now();
      text += token.text;
      announce('token', token);
      frame ||= requestAnimationFrame(paint);
    },
  });
  try {
    const result = await current;
    text = result.text;
    messages.push({ role: 'assistant', content: text });
    cancelAnimationFrame(frame);
    paint();
    const { decodeMs, decodeTokens } = result.timings;
    if (decodeTokens) element('speed').textContent = `${((1000 * decodeTokens) / decodeMs).toFixed(1)} tokens/s`;
    announce('answer', { result, info: session.info, memory: await session.memoryReport() });
    if (result.finishReason === 'length') note(target, 'The answer reached its longest length.');
    if (result.finishReason === 'aborted') note(target, 'Stopped.');
  } catch (error) {
    messages.pop();
    note(target, 'No answer.');
    loader.fail(error);
    if (error instanceof ExecuTorchError && error.code === 'device_lost') loader.session = undefined;
  } finally {
    cancelAnimationFrame(frame);
    current = undefined;
    target.classList.remove('waiting');
  }
  element('memory').textContent = loader.session ? await memoryText(loader.session) : '';
}

async function ask(text: string): Promise<void> {
  if (busy || text.trim() === '') return;
  busy = true;
  update();
  try {
    if (loader.session || (await load())) {
      messages.push({ role: 'user', content: text.trim() });
      bubble('user', text.trim());
      prompt.value = '';
      const target = bubble('assistant');
      log.scrollTop = log.scrollHeight;
      await answer(target);
    }
  } finally {
    busy = false;
    update();
    prompt.focus();
  }
}

form.addEventListener('submit', (event) => {
  event.preventDefault();
  void ask(prompt.value);
});
prompt.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});
addEventListener('keydown', (event) => {
  if (event.key === 'Escape') current?.stop();
});
stop.addEventListener('click', () => current?.stop());
loadButton.addEventListener('click', () => void load());
newChat.addEventListener('click', () => {
  current?.stop();
  messages = [];
  for (const message of log.querySelectorAll('.message')) message.remove();
  welcome.hidden = false;
  element('speed').textContent = '';
  update();
  prompt.focus();
});
for (const text of SUGGESTIONS) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = text;
  button.addEventListener('click', () => void ask(text));
  element('suggestions').append(button);
}

update();
const available = await loader.fill('text-generation');
loadButton.disabled = send.disabled = !available;
