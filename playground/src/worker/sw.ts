// The service worker: keeps the page's own files for use without a network, and makes the page cross-origin isolated on
// hosts that cannot set headers, which threads need. It keeps no model: the package's cache does.
declare const self: ServiceWorkerGlobalScope;
declare const __FILES__: string[];
declare const __VERSION__: string;
declare const __ORIGINS__: string;

const PAGE = `page-${__VERSION__}`;
/** The runtime's builds; their names change with their contents. */
const RUNTIME = 'runtime';
/** Lists and sample pictures: fresh where there is a network, else as last seen. */
const LISTS = 'lists';
const scope = new URL(self.registration.scope);

/** `connect-src` holds for the workers' requests as well: a document's policy does not reach them. */
const HEADERS = {
  'Cross-Origin-Opener-Policy': 'same-origin',
  'Cross-Origin-Embedder-Policy': 'require-corp',
  'Cross-Origin-Resource-Policy': 'same-origin',
};
const CONNECT = `connect-src 'self' ${__ORIGINS__}`.trimEnd();

function isolated(response: Response, policy: boolean): Response {
  if (response.type === 'opaque' || response.type === 'opaqueredirect') return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  if (policy) headers.append('Content-Security-Policy', CONNECT);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}

async function install(): Promise<void> {
  const cache = await caches.open(PAGE);
  // `reload`: never an older copy out of the browser's own cache
  await cache.addAll(['./', ...__FILES__].map((file) => new Request(new URL(file, scope), { cache: 'reload' })));
  // the page has asked for these before this worker could see it; a host need not have them
  const lists = await caches.open(LISTS);
  await Promise.allSettled(
    ['models/index.json', 'samples/index.json'].map((file) => lists.add(new URL(file, scope).href)),
  );
}

async function activate(): Promise<void> {
  for (const name of await caches.keys()) {
    if (name.startsWith('page-') && name !== PAGE) await caches.delete(name);
  }
  await self.clients.claim();
}

async function cacheFirst(request: Request, name: string): Promise<Response> {
  const cache = await caches.open(name);
  const found = await cache.match(request, { ignoreSearch: request.mode === 'navigate', ignoreVary: true });
  if (found) return found;
  const response = await fetch(request);
  if (response.status === 200 && request.mode !== 'navigate') await cache.put(request, response.clone());
  return response;
}

async function networkFirst(request: Request): Promise<Response> {
  const cache = await caches.open(LISTS);
  try {
    const response = await fetch(request);
    if (response.status === 200) await cache.put(request, response.clone());
    return response;
  } catch (error) {
    const found = await cache.match(request, { ignoreVary: true });
    if (found) return found;
    throw error;
  }
}

/** Whose answer a request gets; undefined leaves it to the browser. */
function route(request: Request): Promise<Response> | undefined {
  const url = new URL(request.url);
  if (request.method !== 'GET' || url.origin !== scope.origin || !url.pathname.startsWith(scope.pathname)) return;
  const path = url.pathname.slice(scope.pathname.length);
  if (request.mode === 'navigate') return path === '' || path === 'index.html' ? page(request) : undefined;
  if (path === 'models/index.json' || path.startsWith('samples/')) return networkFirst(request);
  const runtime = /\.(wasm|mjs)$/.test(path) && path.startsWith('assets/');
  if (!runtime && !__FILES__.includes(path)) return undefined;
  const worker = request.destination === 'worker' || runtime;
  return cacheFirst(request, runtime ? RUNTIME : PAGE).then((response) => isolated(response, worker));
}

async function page(request: Request): Promise<Response> {
  const cache = await caches.open(PAGE);
  return isolated((await cache.match(scope.href)) ?? (await fetch(request)), false);
}

self.addEventListener('install', (event) => event.waitUntil(install()));
self.addEventListener('activate', (event) => event.waitUntil(activate()));
self.addEventListener('fetch', (event) => {
  const answer = route(event.request);
  if (answer) event.respondWith(answer);
});
// the page asks for this when its reader agrees to the new version
self.addEventListener('message', (event) => {
  if (event.data === 'update') void self.skipWaiting();
});

export {};
