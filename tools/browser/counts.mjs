// What the instrumentation of a worker says, from Node.

/** In a page: asks the instrumented worker. Firefox and Chromium deliver to the page that the worker belongs to. */
export function askInstrument(page) {
  return page.evaluate(
    () =>
      new Promise((resolve) => {
        const channel = new BroadcastChannel('etwgpu-instrument');
        channel.onmessage = ({ data }) => {
          if (typeof data !== 'object') return;
          channel.close();
          resolve(data);
        };
        channel.postMessage('get');
      }),
  );
}

/** The largest increase of each counter between two tokens of the last generation: what one decoded token costs. */
export function perToken(snapshots) {
  const most = {};
  for (let i = 1; i < snapshots.length; ++i) {
    for (const [name, value] of Object.entries(snapshots[i])) {
      most[name] = Math.max(most[name] ?? 0, value - snapshots[i - 1][name]);
    }
  }
  return most;
}
