// How prefill and decode are measured, for whatever runtime: wall-clock at the caller, every token delivered to it.
//
// A session of runtimes/*.js has
//   generate(ids, count, onToken)   runs the prompt `ids`, then decodes until `count` tokens were delivered by
//                                   onToken(id); ids that the cache shares with the last call's prompt are not run again,
//                                   where the runtime can do that
//   vocabulary                      ids are below it
//   describe(), dispose(), and optionally memory(), profile(context), encoded()

/** Tokens that are decoded before the clock starts: by then as many steps are in flight as ever will be. */
const LEAD = 8;

export const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

/** Ids without a short period, the first of them by `round`: another round shares nothing with what is cached. */
export function promptOf(length, vocabulary, round = 0) {
  const span = Math.min(vocabulary - 50, 20000);
  return Array.from({ length }, (_, i) => 50 + ((i * 7919 + (i === 0 ? round : 0)) % span));
}

/**
 * Repeats `once(round)` until it has run `warmups` times and for `heatMs` (a GPU's clock drops within milliseconds of idling, and
 * takes a while to come back), then `rounds` times for the result; fewer, but at least one, after `budgetMs`.
 */
async function repeat(once, { warmups, rounds, heatMs, budgetMs }) {
  const began = performance.now();
  const elapsed = () => performance.now() - began;
  const results = [];
  for (let i = 0; i < warmups || elapsed() < heatMs; ++i) {
    if (i > 0 && elapsed() > budgetMs) break;
    await once(rounds + i);
  }
  for (let i = 0; i < rounds; ++i) {
    if (i > 0 && elapsed() > 2 * budgetMs) break;
    results.push(await once(i));
  }
  return results;
}

const summary = (rates) => ({ rate: median(rates), low: Math.min(...rates), high: Math.max(...rates), rates });

/** Tokens a second of a prompt of `context` tokens, from the call to the delivery of the first token. */
export async function measurePrefill(session, context, options) {
  const ids = [];
  const times = await repeat(async (round) => {
    const prompt = promptOf(context, options.vocabulary, round);
    const began = performance.now();
    let first;
    await session.generate(prompt, 1, (token) => {
      first ??= performance.now();
      ids[round] = token;
    });
    return first - began;
  }, options);
  return {
    kind: 'prefill',
    context,
    ms: median(times),
    ids: ids.slice(0, times.length),
    ...summary(times.map((ms) => (1000 * context) / ms)),
  };
}

/** Tokens a second of decoding after a prompt of `context` tokens, which stays in the cache between the rounds. */
export async function measureDecode(session, context, options) {
  const prompt = promptOf(context, options.vocabulary);
  let ids;
  let gaps;
  const encodings = [];
  const rates = await repeat(async () => {
    const times = [];
    ids = [];
    session.encoded?.();
    await session.generate(prompt, options.tokens + LEAD, (token) => {
      times.push(performance.now());
      ids.push(token);
    });
    const from = Math.min(LEAD, times.length - 2);
    gaps = times.slice(from + 1).map((time, i) => time - times[from + i]);
    const encoded = session.encoded?.();
    if (encoded) encodings.push((1000 * encoded.ms) / encoded.submits);
    return (1000 * (times.length - 1 - from)) / (times.at(-1) - times[from]);
  }, options);
  return {
    kind: 'decode',
    context,
    ids,
    slowestGapMs: Math.max(...gaps),
    ...(encodings.length > 0 && { encodeUs: median(encodings) }),
    ...summary(rates),
  };
}

/**
 * Milliseconds from `abort()` to the end of the call, while a prompt of `context` tokens is run: at tenths of the time that it
 * takes. The session answers the next prompt afterwards.
 */
export async function measureAbort(session, context, { vocabulary }) {
  const prefill = async (round, signal) => {
    const began = performance.now();
    await session
      .generate(promptOf(context, vocabulary, round), 1, () => {}, signal)
      .catch((error) => {
        if (error.name !== 'AbortError') throw error;
      });
    return performance.now() - began;
  };
  for (let i = 0; i < 3; ++i) await prefill(2000 + i);
  const whole = await prefill(2003);
  const waits = [];
  for (let tenth = 1; tenth < 10; ++tenth) {
    const controller = new AbortController();
    let aborted;
    setTimeout(
      () => {
        aborted = performance.now();
        controller.abort();
      },
      (whole * tenth) / 10,
    );
    await prefill(2003 + tenth, controller.signal);
    if (aborted !== undefined) waits.push(performance.now() - aborted);
  }
  await prefill(2100);
  return { kind: 'abort', context, wholeMs: whole, slowestMs: Math.max(...waits), waits };
}
