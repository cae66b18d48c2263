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
 * right before it is delivered, so the first and the last three, after which nothing is started, are left out.
 */
export function perToken(tokens) {
  const steady = tokens.length > 8 ? tokens.slice(1, -3) : tokens;
  const [first, last] = [steady[0], steady.at(-1)];
  return Object.fromEntries(
    Object.keys(last ?? {}).map((name) => [name, (last[name] - first[name]) / (steady.length - 1)]),
  );
}
