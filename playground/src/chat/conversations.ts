// The conversations: in memory as signals, kept in IndexedDB. Where that is switched off they last as long as the page.
import { computed, signal } from '@preact/signals';
import { createStore, del, set, values } from 'idb-keyval';
import { openChat, route } from '../shell/router.js';
import { system } from './settings.js';
import type { Conversation, Message } from './types.js';

const TITLE_LENGTH = 60;
const store = createStore('executorch-webgpu-playground', 'conversations');

/** All of them, the one that changed last first. */
export const conversations = signal<readonly Conversation[]>([]);
export const conversationsReady = signal(false);
/** False once the browser has refused to keep them. */
export const keeps = signal(true);
/** The one on the page; undefined for a new one. */
export const current = computed(() => conversations.value.find((c) => c.id === route.value.id));

export const newId = (): string => crypto.randomUUID();

export async function loadConversations(): Promise<void> {
  try {
    const kept = await values<Conversation>(store);
    conversations.value = kept.sort((a, b) => b.updated - a.updated);
  } catch {
    keeps.value = false;
  }
  conversationsReady.value = true;
}

function write(conversation: Conversation): void {
  set(conversation.id, conversation, store).catch(() => (keeps.value = false));
}

/** Begins a conversation and shows it. */
export function create(firstMessage: string): Conversation {
  const now = Date.now();
  const line = firstMessage.trim().split('\n')[0] ?? '';
  const title = line.length > TITLE_LENGTH ? `${line.slice(0, TITLE_LENGTH - 1)}…` : line;
  const made: Conversation = { id: newId(), title, created: now, updated: now, system: system.value, messages: [] };
  conversations.value = [made, ...conversations.value];
  write(made);
  openChat(made.id, true);
  return made;
}

/** Replaces fields; the order follows the last change of messages. */
export function change(id: string, fields: Partial<Omit<Conversation, 'id'>>): void {
  const touched = fields.messages ? { updated: Date.now() } : {};
  conversations.value = conversations.value
    .map((c) => (c.id === id ? { ...c, ...fields, ...touched } : c))
    .sort((a, b) => b.updated - a.updated);
  const changed = find(id);
  if (changed) write(changed);
}

export function find(id: string): Conversation | undefined {
  return conversations.value.find((c) => c.id === id);
}

export function setMessage(id: string, message: Message): void {
  const conversation = find(id);
  if (!conversation) return;
  change(id, { messages: conversation.messages.map((m) => (m.id === message.id ? message : m)) });
}

export function remove(id: string): void {
  conversations.value = conversations.value.filter((c) => c.id !== id);
  del(id, store).catch(() => (keeps.value = false));
  if (route.value.id === id) openChat(undefined, true);
}
