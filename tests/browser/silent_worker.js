// A worker that never starts, as seen of browsers under load: the first one of a page. The next ones are the package's.
await new Promise((silent) => {
  void navigator.locks.request('first worker', { ifAvailable: true }, (lock) =>
    lock ? new Promise(() => {}) : silent(),
  );
});
await import('/web/worker.js');
