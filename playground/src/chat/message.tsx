// One message, with what can be done with it.
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { CopyButton, IconButton } from '../shell/controls.js';
import { joined, milliseconds, plural } from '../model/format.js';
import { busy, edit, live, retry } from './answer.js';
import { Markdown } from './markdown.js';
import type { Message, Stats } from './types.js';

const ENDED = {
  length: 'The answer reached its longest length.',
  stopped: 'Stopped.',
  failed: 'The answer was interrupted.',
};

function statsText({ device, tokens, tokensPerSecond, firstTokenMs }: Stats): string {
  const speed = tokensPerSecond === undefined ? [] : [`${tokensPerSecond.toFixed(1)} tokens/s`];
  return joined([...speed, plural(tokens, 'token'), `first after ${milliseconds(firstTokenMs)}`, device]);
}

interface EditorProps {
  text: string;
  onDone: () => void;
  onSave: (text: string) => void;
}
function Editor({ text, onDone, onSave }: EditorProps) {
  const area = useRef<HTMLTextAreaElement>(null);
  // before the first paint: who types at once types here
  useLayoutEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(text.length, text.length);
  }, []);
  const save = () => {
    const changed = area.current?.value ?? '';
    if (changed.trim() === '') return;
    onDone();
    onSave(changed);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Escape') {
      event.stopPropagation();
      onDone();
    } else if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      save();
    }
  };
  return (
    <div class="editor">
      <textarea ref={area} dir="auto" aria-label="Your message" defaultValue={text} onKeyDown={onKeyDown} />
      <div class="editor-buttons">
        <button type="button" class="small" onClick={onDone}>
          Cancel
        </button>
        <button type="button" class="small primary" onClick={save}>
          Send again
        </button>
      </div>
    </div>
  );
}

function UserMessage({ message }: { message: Message }) {
  const [editing, setEditing] = useState(false);
  if (editing) {
    return (
      <Editor text={message.content} onDone={() => setEditing(false)} onSave={(text) => void edit(message.id, text)} />
    );
  }
  return (
    <>
      <div class="bubble" dir="auto">
        {message.content}
      </div>
      <div class="actions">
        <IconButton icon="edit" label="Edit your message" disabled={busy.value} onClick={() => setEditing(true)} />
        <CopyButton label="Copy your message" text={() => message.content} />
      </div>
    </>
  );
}

function LiveAnswer() {
  const { text, tokensPerSecond } = live.value ?? { text: '' };
  return (
    <>
      <div class="prose streaming" dir="auto">
        <Markdown text={text} />
      </div>
      <div class="actions">
        <span class="stats">{tokensPerSecond === undefined ? ' ' : `${tokensPerSecond.toFixed(1)} tokens/s`}</span>
      </div>
    </>
  );
}

function Answer({ message, last }: { message: Message; last: boolean }) {
  return (
    <>
      <div class="prose" dir="auto">
        <Markdown text={message.content} />
        {message.ended && <p class="note">{ENDED[message.ended]}</p>}
      </div>
      <div class="actions">
        <CopyButton label="Copy the answer" text={() => message.content} />
        {last && (
          <IconButton
            icon="retry"
            label="Try again, for a different answer"
            disabled={busy.value}
            onClick={() => void retry()}
          />
        )}
        {message.stats && <span class="stats">{statsText(message.stats)}</span>}
      </div>
    </>
  );
}

export function MessageView({ message, last }: { message: Message; last: boolean }) {
  const isLive = live.value?.messageId === message.id;
  return (
    <article class={`message ${message.role}`} aria-label={message.role === 'user' ? 'You' : 'Model'}>
      {message.role === 'user' ? (
        <UserMessage message={message} />
      ) : isLive ? (
        <LiveAnswer />
      ) : (
        <Answer message={message} last={last} />
      )}
    </article>
  );
}
