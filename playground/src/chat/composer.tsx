// Where messages are written. The field keeps its own text: a script may fill it and send the form, as tools/demo.mjs does.
import { useEffect, useRef } from 'preact/hooks';
import { Icon } from '../shell/icons.js';
import { ask, busy, stop } from './answer.js';

export function Composer({ conversationId }: { conversationId: string | undefined }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const send = (event?: Event) => {
    event?.preventDefault();
    const text = area.current?.value ?? '';
    if (busy.value || text.trim() === '') return;
    if (area.current) area.current.value = '';
    void ask(text);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  // on a phone the keyboard would cover what is to be read first
  useEffect(() => {
    if (matchMedia('(hover: hover)').matches) area.current?.focus({ preventScroll: true });
  }, [conversationId]);
  return (
    <form id="form" class="composer" onSubmit={send}>
      <label class="visually-hidden" for="prompt">
        Your message
      </label>
      <textarea
        id="prompt"
        ref={area}
        rows={1}
        dir="auto"
        placeholder="Ask something"
        autocomplete="off"
        enterkeyhint="send"
        onKeyDown={onKeyDown}
      />
      {busy.value ? (
        <button id="stop" class="round" type="button" aria-label="Stop" title="Stop (Esc)" onClick={stop}>
          <Icon name="stop" />
        </button>
      ) : (
        <button id="send" class="primary round" type="submit" aria-label="Send" title="Send (Enter)">
          <Icon name="send" />
        </button>
      )}
    </form>
  );
}
