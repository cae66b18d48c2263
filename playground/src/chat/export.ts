// Conversations as files.
import { saveFile } from '../shell/controls.js';
import type { Conversation } from './types.js';

export function toMarkdown({ title, system, messages }: Conversation): string {
  const parts = [`# ${title}`];
  if (system.trim()) parts.push(`> ${system.trim().replaceAll('\n', '\n> ')}`);
  for (const { role, content } of messages) parts.push(`**${role === 'user' ? 'You' : 'Model'}:**\n\n${content}`);
  return parts.join('\n\n') + '\n';
}

function fileName(title: string, ending: string): string {
  const stem = title
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, '-')
    .replace(/^-+|-+$/g, '');
  return `${stem || 'conversation'}.${ending}`;
}

export function exportConversation(conversation: Conversation, as: 'markdown' | 'json'): void {
  if (as === 'markdown') saveFile(fileName(conversation.title, 'md'), 'text/markdown', toMarkdown(conversation));
  else saveFile(fileName(conversation.title, 'json'), 'application/json', JSON.stringify(conversation, null, 2) + '\n');
}
