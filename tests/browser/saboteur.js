// Loaded into the worker before anything else (debug.instrument): what a page cannot do to its worker, it does to itself
// when BroadcastChannel('saboteur') says so. With ?no-estimate in its address the worker's browser does not tell how
// much room there is, as when something else fills the disk meanwhile: writing is what fails then.
if (new URL(import.meta.url).searchParams.has('no-estimate')) {
  Object.defineProperty(navigator.storage, 'estimate', { value: undefined });
}
const deeds = {
  // no event tells of this, as when the browser is out of memory
  close: () => self.close(),
  throw: () => {
    throw new Error('boom');
  },
};
const channel = new BroadcastChannel('saboteur');
channel.onmessage = ({ data }) => deeds[data]();
