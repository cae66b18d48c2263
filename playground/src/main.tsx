import { render } from 'preact';
import { ChatPage } from './chat/page.js';
import { loadConversations } from './chat/conversations.js';
import { DevicePage } from './device/page.js';
import { loadCatalog } from './model/catalog.js';
import { refreshKept } from './model/cache.js';
import { askCapabilities } from './model/engine.js';
import { loadOwn } from './model/own.js';
import { ModelsPage } from './models/page.js';
import { PicturesPage } from './pictures/page.js';
import { BarEnd } from './shell/bar.js';
import { goOffline } from './shell/offline.js';
import { route, startRouter, type PageName } from './shell/router.js';

const PAGES: Record<PageName, () => preact.JSX.Element> = {
  chat: ChatPage,
  pictures: PicturesPage,
  models: ModelsPage,
  device: DevicePage,
};

function App() {
  const Page = PAGES[route.value.page];
  return <Page />;
}

function mount(id: string, node: preact.JSX.Element): void {
  const root = document.getElementById(id);
  if (!root) throw new Error(`the page has no #${id}`);
  root.replaceChildren();
  render(node, root);
}

startRouter();
mount('bar-end', <BarEnd />);
mount('app', <App />);
await Promise.all([loadConversations(), loadCatalog(), loadOwn(), refreshKept()]);
// what follows may wait for a graphics driver or a network
void askCapabilities();
void goOffline();
