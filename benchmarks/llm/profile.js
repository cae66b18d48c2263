// Kernel times as a table, and as a trace that Perfetto and chrome://tracing open.

/**
 * Sums a profile by kernel, the slowest first. A row's floor is the time that its bytes or its arithmetic would take at
 * the machine's limits (`peak`: {bytesPerSecond, flops}), whichever is longer.
 */
export function byKernel(times, peak) {
  const rows = new Map();
  for (const { kernel, us, bytes = 0, flops = 0 } of times) {
    const row = rows.get(kernel) ?? { kernel, count: 0, us: 0, bytes: 0, flops: 0 };
    row.count += 1;
    row.us += us;
    row.bytes += bytes;
    row.flops += flops;
    rows.set(kernel, row);
  }
  const sorted = [...rows.values()].sort((a, b) => b.us - a.us);
  return peak ? sorted.map((row) => ({ ...row, floorUs: floorUs(row, peak) })) : sorted;
}

const floorUs = ({ bytes, flops }, peak) => 1e6 * Math.max(bytes / peak.bytesPerSecond, flops / peak.flops);

/** Lines of text: kernel, calls, µs, share, MB, GB/s, GFLOP, TFLOP/s and how much of the floor was reached. */
export function table(times, peak) {
  const rows = byKernel(times, peak);
  const total = rows.reduce((sum, { us }) => sum + us, 0);
  const width = Math.max(6, ...rows.map(({ kernel }) => kernel.length));
  const line = (...cells) => cells.map((cell, i) => (i ? String(cell).padStart(9) : cell.padEnd(width))).join(' ');
  const one = (row) =>
    line(
      row.kernel,
      row.count,
      row.us.toFixed(1),
      `${((100 * row.us) / (total || 1)).toFixed(1)} %`,
      (row.bytes / 1e6).toFixed(2),
      (row.bytes / 1e3 / (row.us || 1)).toFixed(0),
      (row.flops / 1e9).toFixed(2),
      (row.flops / 1e6 / (row.us || 1)).toFixed(1),
      row.floorUs === undefined ? '–' : `${((100 * row.floorUs) / (row.us || 1)).toFixed(0)} %`,
    );
  const sum = { kernel: 'all', count: times.length, us: total, bytes: 0, flops: 0, floorUs: peak && 0 };
  for (const row of rows) {
    sum.bytes += row.bytes;
    sum.flops += row.flops;
    if (peak) sum.floorUs += row.floorUs;
  }
  return [
    line('kernel', 'calls', 'µs', 'share', 'MB', 'GB/s', 'GFLOP', 'TFLOP/s', 'of floor'),
    ...[...rows, sum].map(one),
  ];
}

/** Trace events of profiles one after another: {name: times}; each becomes a thread of its own. */
export function traceEvents(profiles) {
  const events = [];
  Object.entries(profiles).forEach(([name, times], thread) => {
    events.push({ ph: 'M', pid: 1, tid: thread, name: 'thread_name', args: { name } });
    let at = 0;
    for (const { kernel, node, us, bytes, flops } of times) {
      events.push({
        ph: 'X',
        pid: 1,
        tid: thread,
        name: kernel,
        cat: 'gpu',
        ts: at,
        dur: us,
        args: { node, bytes, flops },
      });
      at += us;
    }
  });
  return { displayTimeUnit: 'ns', traceEvents: events };
}
