// Asking and answering: the conversation's messages go to the model, its words come back one frame at a time.
import { computed, signal } from '@preact/signals';
import type { ChatMessage, Generation, GenerateResult, Session } from 'executorch-webgpu';
import { announce, engines } from '../model/engine.js';
import { rate } from '../model/format.js';
import type { Problem } from '../model/problem.js';
import { change, create, current, find, newId, setMessage } from './conversations.js';
import { generateOptions } from './settings.js';
import type { Conversation, Message, Stats } from './types.js';

export const engine = engines['text-generation'];

interface Live {
  conversationId: string;
  messageId: string;
  text: string;
  tokensPerSecond?: number;
}
/** The answer under way. */
export const live = signal<Live | undefined>(undefined);
export const busy = computed(() => live.value !== undefined);
/** An error that is not the model's loading: shown below the conversation it came up in. */
export const problem = signal<{ conversationId: string; problem: Problem } | undefined>(undefined);
/** What screen readers hear: that an answer begins, and all of it when it is there. */
export const news = signal('');
/** Tokens of the conversation in the model's memory. */
export const used = signal<{ conversationId: string; tokens: number } | undefined>(undefined);

/** Interrupted answers are kept this often, in milliseconds. */
const KEEP_EVERY = 1000;

let generation: Generation | undefined;
let stopped = false;
const attempts = new Map<string, number>();

export function stop(): void {
  stopped = true;
  generation?.stop();
  if (!generation) engine.cancel();
}

function prompt(conversation: Conversation, upTo: string): ChatMessage[] {
  const end = conversation.messages.findIndex((m) => m.id === upTo);
  const messages = conversation.messages.slice(0, end).map(({ role, content }) => ({ role, content }));
  return conversation.system.trim() ? [{ role: 'system', content: conversation.system }, ...messages] : messages;
}

/** Runs the model; at most one change of the page a frame, however fast tokens come. */
async function stream(session: Session, conversation: Conversation, message: Message): Promise<GenerateResult> {
  let text = '';
  let tokens = 0;
  let first = 0;
  let frame = 0;
  let kept = performance.now();
  const show = () => {
    frame = 0;
    const now = performance.now();
    const speed = rate(tokens - 1, now - first);
    live.value = {
      conversationId: conversation.id,
      messageId: message.id,
      text,
      ...(speed !== undefined && { tokensPerSecond: speed }),
    };
    if (now - kept < KEEP_EVERY) return;
    kept = now;
    setMessage(conversation.id, { ...message, content: text, ended: 'stopped' });
  };
  generation = session.generate(prompt(conversation, message.id), {
    ...generateOptions(attempts.get(conversation.id) ?? 0),
    onToken: (token) => {
      if (tokens++ === 0) first = performance.now();
      text += token.text;
      announce('token', token);
      frame ||= requestAnimationFrame(show);
    },
  });
  if (stopped) generation.stop();
  try {
    return await generation;
  } finally {
    generation = undefined;
    cancelAnimationFrame(frame);
  }
}

function statsOf(session: Session, { timings, tokenIds }: GenerateResult): Stats {
  const speed = rate(timings.decodeTokens, timings.decodeMs);
  return {
    model: session.info.manifest?.name ?? '',
    device: session.device === 'webgpu' ? 'GPU' : 'CPU',
    tokens: tokenIds.length,
    ...(speed !== undefined && { tokensPerSecond: speed }),
    firstTokenMs: timings.prefillMs,
  };
}

const ENDED = { stop: undefined, length: 'length', aborted: 'stopped' } as const;

async function finish(session: Session, id: string, message: Message, result: GenerateResult): Promise<void> {
  const ended = ENDED[result.finishReason];
  setMessage(id, { ...message, content: result.text, stats: statsOf(session, result), ...(ended && { ended }) });
  used.value = { conversationId: id, tokens: result.timings.promptTokens + result.tokenIds.length };
  news.value = `Answer: ${result.text}`;
  announce('answer', { result, info: session.info, memory: await session.memoryReport() });
}

/** Adds an empty answer to the conversation and fills it. What is there when it fails is kept. */
async function answer(id: string): Promise<void> {
  const conversation = find(id);
  if (!conversation || busy.value) return;
  const message: Message = { id: newId(), role: 'assistant', content: '' };
  stopped = false;
  problem.value = undefined;
  change(id, { messages: [...conversation.messages, message] });
  live.value = { conversationId: id, messageId: message.id, text: '' };
  news.value = 'The model is answering.';
  try {
    const session = await engine.ready();
    const asked = find(id);
    if (!session || !asked || stopped) dropIfEmpty(id, message.id);
    else await finish(session, id, message, await stream(session, asked, message));
  } catch (error) {
    problem.value = { conversationId: id, problem: engine.fail(error) };
    const text = live.value?.text ?? '';
    setMessage(id, { ...message, content: text, ended: 'failed' });
    dropIfEmpty(id, message.id);
    news.value = '';
  } finally {
    live.value = undefined;
  }
}

function dropIfEmpty(id: string, messageId: string): void {
  const messages = find(id)?.messages ?? [];
  if (messages.find((m) => m.id === messageId)?.content === '') {
    change(id, { messages: messages.filter((m) => m.id !== messageId) });
  }
}

export async function ask(text: string): Promise<void> {
  const content = text.trim();
  if (busy.value || content === '') return;
  const { id, messages } = current.value ?? create(content);
  attempts.delete(id);
  change(id, { messages: [...messages, { id: newId(), role: 'user', content }] });
  await answer(id);
}

/** Answers the last message again, differently. */
export async function retry(): Promise<void> {
  const conversation = current.value;
  if (!conversation || busy.value) return;
  const { id, messages } = conversation;
  const answered = messages.at(-1)?.role === 'assistant';
  if (answered) attempts.set(id, (attempts.get(id) ?? 0) + 1);
  change(id, { messages: answered ? messages.slice(0, -1) : messages });
  await answer(id);
}

/** Replaces a message of the reader's; what came after it is dropped, and it is answered anew. */
export async function edit(messageId: string, text: string): Promise<void> {
  const conversation = current.value;
  const content = text.trim();
  if (!conversation || busy.value || content === '') return;
  const { id, messages } = conversation;
  const at = messages.findIndex((m) => m.id === messageId);
  const message = messages[at];
  if (!message) return;
  attempts.delete(id);
  change(id, { messages: [...messages.slice(0, at), { ...message, content }] });
  await answer(id);
}
