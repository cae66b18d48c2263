// The service worker as the page sees it: installed once, asked before it replaces a running version.
import { signal } from '@preact/signals';

/** A newer version of the page waits; calling it reloads into it. */
export const update = signal<(() => void) | undefined>(undefined);

/** The page works without a network from now on. */
export const offlineReady = signal(false);

/** Longest wait for `controlled`: a host may be slow, or its service worker broken. */
const PATIENCE_MS = 20_000;
let settle = (): void => undefined;
const settled = new Promise<void>((resolve) => (settle = resolve));

/**
 * Resolves when the service worker answers this page's requests, or there is none. What is fetched from then on is kept,
 * and workers get the policy that keeps them from other sites.
 */
export function controlled(): Promise<void> {
  return Promise.race([settled, new Promise<void>((resolve) => setTimeout(resolve, PATIENCE_MS))]);
}

const RELOADED = 'reloaded-for-isolation';

function watch(registration: ServiceWorkerRegistration): void {
  const offer = () => {
    const { waiting } = registration;
    if (!waiting || !navigator.serviceWorker.controller) return;
    update.value = () => {
      navigator.serviceWorker.addEventListener('controllerchange', () => location.reload(), { once: true });
      waiting.postMessage('update');
    };
  };
  offer();
  registration.addEventListener('updatefound', () => {
    registration.installing?.addEventListener('statechange', offer);
  });
}

/**
 * Isolation, which threads need, comes with the headers that the service worker sets: at the next load of the page. That
 * is done at once where nobody has touched the page yet, and only once. True where the page is about to go.
 */
function isolate(): boolean {
  if (crossOriginIsolated || navigator.userActivation?.hasBeenActive || sessionStorage.getItem(RELOADED)) return false;
  sessionStorage.setItem(RELOADED, '1');
  location.reload();
  return true;
}

export async function goOffline(): Promise<void> {
  try {
    if (!import.meta.env.PROD || !('serviceWorker' in navigator)) return;
    const registration = await navigator.serviceWorker.register('./sw.js', { scope: './' });
    watch(registration);
    await navigator.serviceWorker.ready;
    if (!navigator.serviceWorker.controller) {
      await new Promise<void>((resolve) => {
        navigator.serviceWorker.addEventListener('controllerchange', () => resolve(), { once: true });
      });
    }
    if (isolate()) return;
    offlineReady.value = true;
    document.documentElement.dataset.offline = 'ready';
  } catch (error) {
    // private windows and old browsers have none: the page works all the same, while there is a network
    console.info('no service worker:', error);
  } finally {
    settle();
  }
}
