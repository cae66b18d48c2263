import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { ModelCard, ModelStrip, modelNews, ProblemView } from '../model/panel.js';
import { whole } from '../model/format.js';
import { Dialog, IconButton } from '../shell/controls.js';
import { Icon } from '../shell/icons.js';
import { openChat } from '../shell/router.js';
import { ask, busy, engine, live, news, problem, retry, stop, used } from './answer.js';
import { Composer } from './composer.js';
import { conversationsReady, current } from './conversations.js';
import { MessageView } from './message.js';
import { SettingsSheet } from './sheet.js';
import { Sidebar } from './sidebar.js';
import type { Conversation } from './types.js';

const EXAMPLES = ['What is the capital of France?', 'Why is the sky blue?', 'Give me three tips for sleeping well.'];
/** A reader this close to the end follows what comes, in CSS pixels. */
const NEAR_END = 80;

function Welcome() {
  return (
    <div class="welcome">
      <h1>Ask a model that runs on your device</h1>
      <p class="lead">Load it once, then ask. It computes in this tab; nothing that you write leaves it.</p>
      <ModelCard engine={engine} />
      <h2 class="visually-hidden">Examples</h2>
      <ul class="examples">
        {EXAMPLES.map((text) => (
          <li key={text}>
            <button type="button" disabled={!engine.model.value || busy.value} onClick={() => void ask(text)}>
              {text}
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** How full the model's memory is; nothing before it is known. */
function ContextMeter({ conversation }: { conversation: Conversation | undefined }) {
  const length = engine.session?.info.contextLength;
  const known = used.value?.conversationId === conversation?.id ? used.value?.tokens : undefined;
  if (!length || known === undefined) return null;
  const tokens = Math.min(known, length);
  const full = tokens / length;
  return (
    <div
      class={`meter ${full > 0.85 ? 'full' : ''}`}
      role="meter"
      aria-label="Context"
      aria-valuemin={0}
      aria-valuemax={length}
      aria-valuenow={tokens}
      aria-valuetext={`${tokens} of ${length} tokens`}
      title="How much of what the model can keep in mind is used"
    >
      <span class="meter-track">
        <i style={{ width: `${100 * full}%` }} />
      </span>
      <span>
        {whole(tokens)}
        <span class="meter-of"> of {whole(length)}</span>
      </span>
    </div>
  );
}

function useContextMeter(conversation: Conversation | undefined): void {
  const session = engine.session;
  useEffect(() => {
    if (!session || !conversation || busy.value || used.value?.conversationId === conversation.id) return;
    const messages = conversation.messages.map(({ role, content }) => ({ role, content }));
    session.tokenize(messages).then(
      (ids) => (used.value = { conversationId: conversation.id, tokens: ids.length }),
      () => undefined, // the meter stays away
    );
  }, [session, conversation?.id]);
}

function Toolbar({ conversation }: { conversation: Conversation | undefined }) {
  const [sheet, setSheet] = useState(false);
  const [list, setList] = useState(false);
  const [model, setModel] = useState(false);
  const { kind } = engine.state.value;
  return (
    <div class="toolbar">
      <IconButton icon="menu" label="Conversations" class="only-narrow" onClick={() => setList(true)} />
      {conversation && (
        <button type="button" class="model-button" onClick={() => setModel(true)}>
          <span class={`state ${kind}`} />
          <span>{engine.model.value?.title ?? 'No model'}</span>
        </button>
      )}
      <span class="spring" />
      <ContextMeter conversation={conversation} />
      {conversation && (
        <IconButton icon="plus" label="New chat" class="only-narrow" onClick={() => openChat(undefined)} />
      )}
      <IconButton icon="sliders" label="How it answers: settings" onClick={() => setSheet(true)} />
      <SettingsSheet open={sheet} onClose={() => setSheet(false)} />
      <Dialog title="Conversations" open={list} onClose={() => setList(false)} kind="left">
        <Sidebar onOpen={() => setList(false)} />
      </Dialog>
      <Dialog title="Model" open={model} onClose={() => setModel(false)}>
        <ModelCard engine={engine} />
      </Dialog>
    </div>
  );
}

function Messages({ conversation }: { conversation: Conversation }) {
  const { id, messages } = conversation;
  const own = problem.value?.conversationId === id ? problem.value.problem : undefined;
  const unanswered = messages.at(-1)?.role === 'user' && !busy.value;
  return (
    <>
      {messages.map((message, i) => (
        <MessageView key={message.id} message={message} last={i === messages.length - 1} />
      ))}
      {own && engine.state.value.kind !== 'failed' && <ProblemView problem={own} />}
      {unanswered && (
        <button type="button" class="small" onClick={() => void retry()}>
          <Icon name="retry" />
          Answer this
        </button>
      )}
    </>
  );
}

/** Scrolls along with what comes, unless the reader has scrolled up. */
function Log({ conversation }: { conversation: Conversation | undefined }) {
  const log = useRef<HTMLDivElement>(null);
  const [away, setAway] = useState(false);
  const follows = useRef(true);
  // on a small screen the welcome is longer than the screen, too: that is read from its beginning
  const toEnd = () => log.current?.scrollTo({ top: conversation ? log.current.scrollHeight : 0 });
  const onScroll = () => {
    const { scrollHeight, scrollTop, clientHeight } = log.current as HTMLDivElement;
    follows.current = scrollHeight - scrollTop - clientHeight < NEAR_END;
    setAway(!follows.current);
  };
  const text = live.value?.text;
  useLayoutEffect(() => {
    follows.current = true;
    toEnd();
  }, [conversation?.id, conversation?.messages.length]);
  // the last change, when an answer ends, brings lines below it
  useLayoutEffect(() => {
    if (follows.current) toEnd();
  }, [text, conversation]);
  return (
    <div class="log-frame">
      <div ref={log} class="log" onScroll={onScroll} tabIndex={0} role="region" aria-label="Conversation">
        <div class="column">{conversation ? <Messages conversation={conversation} /> : <Welcome />}</div>
      </div>
      {conversation && away && <IconButton icon="down" label="To the end" class="to-end" onClick={toEnd} />}
    </div>
  );
}

function useEscape(): void {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && busy.value && !document.querySelector('dialog[open]')) stop();
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, []);
}

export function ChatPage() {
  const conversation = current.value;
  useEscape();
  useContextMeter(conversation);
  if (!conversationsReady.value) return <main id="main" tabIndex={-1} class="chat" />;
  return (
    <>
      <aside class="sidebar" aria-label="Conversations">
        <Sidebar />
      </aside>
      <main id="main" tabIndex={-1} class="chat">
        <Toolbar conversation={conversation} />
        {conversation && <h1 class="visually-hidden">{conversation.title}</h1>}
        <Log conversation={conversation} />
        <div class="foot">
          <div class="column">
            {conversation && <ModelStrip engine={engine} />}
            <Composer conversationId={conversation?.id} />
            <p class="hint">Small models are often wrong. Nothing that you write is sent.</p>
          </div>
        </div>
        <p class="visually-hidden" role="status">
          {news.value || modelNews(engine)}
        </p>
      </main>
    </>
  );
}
