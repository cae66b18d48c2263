// The list of conversations.
import { useState } from 'preact/hooks';
import { Dialog } from '../shell/controls.js';
import { Icon, type IconName } from '../shell/icons.js';
import { openChat } from '../shell/router.js';
import { live } from './answer.js';
import { change, conversations, current, keeps, remove } from './conversations.js';
import { exportConversation } from './export.js';
import type { Conversation } from './types.js';

function Row({ conversation, onMore, onOpen }: { conversation: Conversation; onMore: () => void; onOpen: () => void }) {
  const { id, title } = conversation;
  return (
    <li class="row">
      <a
        href={`#/chat/${encodeURIComponent(id)}`}
        aria-current={current.value?.id === id ? 'true' : undefined}
        onClick={onOpen}
      >
        <span dir="auto">{title}</span>
        {live.value?.conversationId === id && <span class="dot" aria-label="answering" role="img" />}
      </a>
      <button
        type="button"
        class="icon-button"
        aria-label={`Rename, export or delete “${title}”`}
        title="Rename, export, delete"
        onClick={onMore}
      >
        <Icon name="dots" />
      </button>
    </li>
  );
}

interface ActionProps {
  icon: IconName;
  text: string;
  bad?: boolean;
  onClick: () => void;
}
function Action({ icon, text, bad, onClick }: ActionProps) {
  return (
    <button type="button" class={bad ? 'bad' : ''} onClick={onClick}>
      <Icon name={icon} />
      {text}
    </button>
  );
}

/** Rename, export, delete: in a dialog, where there is room for words. */
function More({ conversation, onClose }: { conversation: Conversation; onClose: () => void }) {
  const [sure, setSure] = useState(false);
  const { id, title } = conversation;
  const rename = (event: SubmitEvent) => {
    event.preventDefault();
    const name = new FormData(event.currentTarget as HTMLFormElement).get('title');
    if (typeof name === 'string' && name.trim()) change(id, { title: name.trim() });
    onClose();
  };
  return (
    <>
      <form class="rename" onSubmit={rename}>
        <label>
          Name
          <input name="title" dir="auto" defaultValue={title} maxLength={120} autocomplete="off" />
        </label>
        <button type="submit">Rename</button>
      </form>
      <div class="stack">
        <Action icon="download" text="Save as Markdown" onClick={() => exportConversation(conversation, 'markdown')} />
        <Action icon="download" text="Save as JSON" onClick={() => exportConversation(conversation, 'json')} />
        {sure ? (
          <Action
            icon="trash"
            bad
            text="Really delete: this cannot be undone"
            onClick={() => (remove(id), onClose())}
          />
        ) : (
          <Action icon="trash" bad text="Delete" onClick={() => setSure(true)} />
        )}
      </div>
    </>
  );
}

export function Sidebar({ onOpen = () => {} }: { onOpen?: () => void }) {
  const [more, setMore] = useState<string>();
  const chosen = conversations.value.find((c) => c.id === more);
  return (
    <div class="sidebar-content">
      <button type="button" class="new-chat" onClick={() => (openChat(undefined), onOpen())}>
        <Icon name="plus" />
        New chat
      </button>
      {conversations.value.length === 0 ? (
        <p class="soft">Your conversations appear here. They are kept in this browser only.</p>
      ) : (
        <ul>
          {conversations.value.map((c) => (
            <Row key={c.id} conversation={c} onMore={() => setMore(c.id)} onOpen={onOpen} />
          ))}
        </ul>
      )}
      {!keeps.value && <p class="soft">This browser keeps no data for the page: conversations end with the tab.</p>}
      <Dialog title="Conversation" open={chosen !== undefined} onClose={() => setMore(undefined)}>
        {chosen && <More conversation={chosen} onClose={() => setMore(undefined)} />}
      </Dialog>
    </div>
  );
}
