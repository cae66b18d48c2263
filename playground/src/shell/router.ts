// Pages by the address's hash, so that the site needs nothing of its host: `#/pictures`, `#/chat/ID`.
import { signal } from '@preact/signals';

export type PageName = 'chat' | 'pictures' | 'models' | 'device';

export interface Route {
  page: PageName;
  /** Of a conversation. */
  id?: string;
}

const TITLES: Record<PageName, string> = { chat: 'Chat', pictures: 'Pictures', models: 'Models', device: 'Device' };

function parse(): Route {
  const [page = '', id] = location.hash.replace(/^#\/?/, '').split('/');
  if (page === 'pictures' || page === 'models' || page === 'device') return { page };
  return page === 'chat' && id ? { page: 'chat', id: decodeURIComponent(id) } : { page: 'chat' };
}

export const route = signal<Route>(parse());

/** Marks the current page in the header, which is static HTML. */
function mark(): void {
  const { page } = route.value;
  document.title = `${TITLES[page]} · executorch-webgpu`;
  for (const link of document.querySelectorAll<HTMLAnchorElement>('.bar nav a')) {
    const own = link.hash === (page === 'chat' ? '#/' : `#/${page}`);
    if (own) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
}

export function startRouter(): void {
  addEventListener('hashchange', () => {
    const before = route.value.page;
    route.value = parse();
    mark();
    // keyboards and screen readers go on at the new page's beginning
    if (before !== route.value.page) document.getElementById('main')?.focus({ preventScroll: true });
  });
  document.querySelector('.skip-link')?.addEventListener('click', (event) => {
    event.preventDefault();
    document.getElementById('main')?.focus();
  });
  mark();
}

/** Goes to a conversation, or to an empty one; `replace` leaves no step to go back to. */
export function openChat(id: string | undefined, replace = false): void {
  const hash = id === undefined ? '#/' : `#/chat/${encodeURIComponent(id)}`;
  if (!replace) {
    location.hash = hash;
    return;
  }
  history.replaceState(null, '', hash);
  route.value = parse();
}
