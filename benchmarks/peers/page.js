// Loads one runtime and measures it. `cpuSeconds()` is the driver's: it reads /proc when it is called.
//
// An adapter (runtimes/*.js) exports
//   version: string or a function of the session
//   load(configuration) -> session with
//     generate({ids, text}, count, onToken) -> anything worth recording; onToken() once per new token
//     dispose()
// and optionally profile() -> rows for --profile.

async function measure(session, prompt, count) {
  const times = [];
  let firstCpu;
  const before = await cpuSeconds();
  const start = performance.now();
  const extra = await session.generate(prompt, count, () => {
    times.push(performance.now());
    // Not awaited: the runtime goes on. The driver says when it looked, and how late that was goes into the result.
    if (times.length === 1) firstCpu = cpuSeconds();
  });
  const after = await cpuSeconds();
  const wall = performance.now() - start;
  const first = await firstCpu;
  if (!first) throw new Error('no token was generated');
  const firstAt = performance.timeOrigin + times[0];
  const tree = after.tree - before.tree;
  return {
    promptTokens: prompt.ids.length,
    newTokens: times.length,
    prefillCpu: first.tree - before.tree,
    decodeCpu: after.tree - first.tree,
    prefillMs: times[0] - start,
    decodeMs: times.at(-1) - times[0],
    markLateMs: first.at - firstAt,
    othersCpu: after.machine - before.machine - tree, // what everybody else used meanwhile
    wallMs: wall,
    extra,
  };
}

window.bench = async (configuration, prompts) => {
  const adapter = await import(`./runtimes/${configuration.runtime}.js`);
  const before = await cpuSeconds();
  const start = performance.now();
  const session = await adapter.load(configuration);
  const result = {
    loadMs: performance.now() - start,
    loadCpu: (await cpuSeconds()).tree - before.tree,
    version: adapter.version(session),
    warm: await measure(session, prompts.warm[0], 4),
    runs: [],
  };
  for (const [name, count, repetitions] of configuration.plan) {
    for (let i = 0; i < repetitions; ++i) {
      const run = await measure(session, prompts[name][i % prompts[name].length], count);
      if (run.newTokens !== count) throw new Error(`${run.newTokens} tokens instead of ${count}`);
      result.runs.push({ name, ...run });
      report(`${name} ${i + 1}/${repetitions}`);
    }
  }
  if (configuration.profile && session.profile)
    result.profile = await session.profile(prompts[configuration.plan[0][0]][0]);
  await session.dispose();
  return result;
};
window.ready = true;
