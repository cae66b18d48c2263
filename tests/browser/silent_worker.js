// A worker that never starts, as seen of browsers under load: the first one of a page. With ?threads it starts, and hangs as
// Firefox does now and then: where it makes a worker. The next ones are the package's.
const first = await new Promise((answer) => {
  void navigator.locks.request(import.meta.url, { ifAvailable: true }, (lock) => {
    answer(lock !== null);
    return lock && new Promise(() => {});
  });
});
if (first) {
  if (!import.meta.url.endsWith('?threads')) await new Promise(() => {});
  const never = new Int32Array(new SharedArrayBuffer(4));
  self.Worker = class {
    constructor() {
      Atomics.wait(never, 0, 0);
    }
  };
}
await import('/web/worker.js');
