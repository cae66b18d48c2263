// Medians, spread and ratios of what bench.mjs has measured.

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

// tokens per CPU second of a run, by column
const COLUMNS = {
  'prefill 128': (run) => run.name === 'p128' && run.promptTokens / run.prefillCpu,
  'prefill 512': (run) => run.name === 'p512' && run.promptTokens / run.prefillCpu,
  'decode after 128': (run) => run.name === 'p128' && (run.newTokens - 1) / run.decodeCpu,
  'decode after 512': (run) => run.name === 'p512' && (run.newTokens - 1) / run.decodeCpu,
};

/** Per configuration: {id, peer, columns: {name: {median, min, max, n}}, …} over all rounds. */
export function summarise(configurations, results) {
  return configurations.map(({ id, peer = false }) => {
    const good = results.filter((result) => result.id === id && !result.error);
    const runs = good.flatMap((result) => result.runs);
    const columns = {};
    for (const [name, rate] of Object.entries(COLUMNS)) {
      const values = runs.map(rate).filter(Boolean);
      if (values.length) {
        columns[name] = {
          median: median(values),
          min: Math.min(...values),
          max: Math.max(...values),
          n: values.length,
        };
      }
    }
    return {
      id,
      peer,
      version: good[0]?.version,
      errors: results.filter((result) => result.id === id && result.error).map((result) => result.error),
      columns,
      loadCpu: good.length ? median(good.map((result) => result.loadCpu)) : undefined,
      rendererPeak: good.length ? median(good.map((result) => result.rendererPeak)) : undefined,
    };
  });
}

/** Ours over the better peer, by configuration and column. */
export function ratios(summary) {
  const best = {};
  for (const { peer, columns } of summary) {
    if (!peer) continue;
    for (const [name, { median: value }] of Object.entries(columns)) best[name] = Math.max(best[name] ?? 0, value);
  }
  return summary
    .filter(({ peer }) => !peer)
    .map(({ id, columns }) => ({
      id,
      ratios: Object.fromEntries(
        Object.entries(columns)
          .filter(([name]) => best[name])
          .map(([name, { median: value }]) => [name, value / best[name]]),
      ),
    }));
}

const cells = (values) => `| ${values.join(' | ')} |`;

export function markdown(summary) {
  const names = Object.keys(COLUMNS);
  const number = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
  const range = (column) =>
    column ? `${number(column.median)} (${number(column.min)}–${number(column.max)}, n ${column.n})` : '–';
  const head = (first, more = []) => [
    cells([first, ...names, ...more]),
    cells([first, ...names, ...more].map(() => '---')),
  ];
  const lines = head('tokens per CPU second: median (range)', ['load, CPU s', 'renderer peak, MiB']);
  for (const { id, columns, errors, loadCpu, rendererPeak } of summary) {
    const rest =
      errors.length && loadCpu === undefined
        ? [errors[0].slice(0, 80), '–']
        : [loadCpu?.toFixed(1) ?? '–', rendererPeak ? Math.round(rendererPeak / 2 ** 20) : '–'];
    lines.push(cells([id, ...names.map((name) => range(columns[name])), ...rest]));
  }
  lines.push('', ...head('times the better peer'));
  for (const { id, ratios: row } of ratios(summary)) {
    lines.push(cells([id, ...names.map((name) => (row[name] ? row[name].toFixed(1) : '–'))]));
  }
  return lines.join('\n');
}
