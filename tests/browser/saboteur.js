// Loaded into the worker before anything else (debug.instrument): what a page cannot do to its worker, it does to itself
// when BroadcastChannel('saboteur') says so. With ?no-estimate in its address the worker's browser does not tell how
// much room there is, as when something else fills the disk meanwhile: writing is what fails then. With ?hardware its
// adapter does not look like one in software; with ?largest-buffer=BYTES the GPU makes no larger buffers; with ?memory=GB
// the device has that much.
const asked = new URL(import.meta.url).searchParams;
if (asked.has('no-estimate')) Object.defineProperty(navigator.storage, 'estimate', { value: undefined });
if (asked.has('memory')) Object.defineProperty(navigator, 'deviceMemory', { value: Number(asked.get('memory')) });
if (asked.has('hardware')) {
  for (const key of ['vendor', 'architecture', 'description']) {
    Object.defineProperty(GPUAdapterInfo.prototype, key, { get: () => 'made up' });
  }
  Object.defineProperty(GPUAdapterInfo.prototype, 'isFallbackAdapter', { get: () => false });
}
if (asked.has('largest-buffer')) {
  const largest = Number(asked.get('largest-buffer'));
  const { createBuffer } = GPUDevice.prototype;
  GPUDevice.prototype.createBuffer = function (descriptor) {
    const size = descriptor.size > largest ? this.limits.maxBufferSize + 4 : descriptor.size;
    return createBuffer.call(this, { ...descriptor, size });
  };
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
