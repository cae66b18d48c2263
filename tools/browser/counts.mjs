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

/**
 * What one decoded token costs, on average over the tokens of one generation. With several in flight a token is not paid for
 * right before it is delivered: what is counted between the first and the last one is divided by the read-backs begun in that
 * time, one a token. A generation that reads nothing back (the CPU's) is divided by its tokens.
 */
export function perToken(tokens) {
  const [first, last] = [tokens[0], tokens.at(-1)];
  const steps = last?.readBacks - first?.readBacks || tokens.length - 1;
  return Object.fromEntries(Object.keys(last ?? {}).map((name) => [name, (last[name] - first[name]) / steps]));
}
