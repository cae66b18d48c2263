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

/** Tokens on each side of a border: with the LEAD before them no more than a split of the attention, 32. */
const BORDER_TOKENS = 24;

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

/**
 * Decodes `tokens` tokens after the prompt and LEAD more, and returns their rate in tokens a second, all the ids, the longest
 * gap in milliseconds and, where the session says so, the µs of encoding a token.
 */
async function decodeOnce(session, prompt, tokens) {
  const times = [];
  const ids = [];
  session.encoded?.();
  await session.generate(prompt, tokens + LEAD, (token) => {
    times.push(performance.now());
    ids.push(token);
  });
  const from = Math.min(LEAD, times.length - 2);
  const encoded = session.encoded?.();
  return {
    rate: (1000 * (times.length - 1 - from)) / (times.at(-1) - times[from]),
    ids,
    slowestGapMs: Math.max(...times.slice(from + 1).map((time, i) => time - times[from + i])),
    ...(encoded && { encodeUs: (1000 * encoded.ms) / encoded.submits }),
  };
}

/** Tokens a second of decoding after a prompt of `context` tokens, which stays in the cache between the rounds. */
export async function measureDecode(session, context, options) {
  const prompt = promptOf(context, options.vocabulary);
  const rounds = await repeat(() => decodeOnce(session, prompt, options.tokens), options);
  const { ids, slowestGapMs, encodeUs } = rounds.at(-1);
  return {
    kind: 'decode',
    context,
    ids,
    slowestGapMs,
    ...(encodeUs !== undefined && { encodeUs: median(rounds.map((round) => round.encodeUs)) }),
    ...summary(rounds.map(({ rate }) => rate)),
  };
}

/**
 * Whether decoding becomes slower where the cache grows past `border` positions: the rate of the BORDER_TOKENS tokens from
 * there on over that of those up to there, measured in turns, so that a change of the GPU's clock meets both.
 */
export async function measureBorder(session, border, options) {
  const sideOf = (first) => promptOf(Math.max(1, first - LEAD), options.vocabulary);
  const [below, above] = [sideOf(border - BORDER_TOKENS), sideOf(border)];
  const turns = await repeat(
    async () => ({
      below: (await decodeOnce(session, below, BORDER_TOKENS)).rate,
      above: (await decodeOnce(session, above, BORDER_TOKENS)).rate,
    }),
    { ...options, rounds: 5 * options.rounds },
  );
  return {
    kind: 'border',
    context: border,
    below: median(turns.map((turn) => turn.below)),
    above: median(turns.map((turn) => turn.above)),
    ...summary(turns.map((turn) => turn.above / turn.below)),
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
