// Tokens a second over the context, prefill and decode side by side, as SVG. Both axes are logarithmic.

const WIDTH = 460;
const HEIGHT = 340;
const LEFT = 62;
const TOP = 34;
const COLOURS = ['#2563eb', '#16a34a', '#dc2626', '#9333ea', '#ea580c', '#0891b2', '#4d7c0f', '#be185d', '#57534e'];

const escape = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');

/** Powers of ten (and 2, 5 times them) within the bounds. */
function ticks(low, high) {
  const list = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; ++power) {
    for (const step of [1, 2, 5]) {
      const value = step * 10 ** power;
      if (value >= low && value <= high) list.push(value);
    }
  }
  return list;
}

function panel(title, lines, offset) {
  const points = lines.flatMap((line) => line.points);
  if (points.length === 0) return '';
  const contexts = [...new Set(points.map(([context]) => context))].sort((a, b) => a - b);
  const low = 0.8 * Math.min(...points.map(([, rate]) => rate));
  const high = 1.25 * Math.max(...points.map(([, rate]) => rate));
  const span = Math.log(contexts.at(-1) / contexts[0]) || 1;
  const x = (context) => LEFT + ((WIDTH - LEFT - 20) * Math.log(context / contexts[0])) / span;
  const y = (rate) => TOP + HEIGHT - (HEIGHT * Math.log(rate / low)) / Math.log(high / low);
  const parts = [`<text x="${LEFT}" y="18" font-weight="bold">${escape(title)}</text>`];
  for (const value of ticks(low, high)) {
    parts.push(
      `<line x1="${LEFT}" x2="${WIDTH - 20}" y1="${y(value)}" y2="${y(value)}" stroke="#e5e5e5"/>`,
      `<text x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${value.toLocaleString('en')}</text>`,
    );
  }
  // neighbours such as 2,047 and 2,049 go without a label beside 2,048
  const round = (context) => context % 128 === 0;
  const crowded = (context) =>
    contexts.some((other) => other !== context && round(other) && Math.abs(x(other) - x(context)) < 8);
  for (const context of contexts.filter((one) => round(one) || !crowded(one))) {
    parts.push(`<text x="${x(context)}" y="${TOP + HEIGHT + 18}" text-anchor="middle">${context}</text>`);
  }
  for (const { colour, dashed, points: line } of lines) {
    const sorted = [...line].sort((a, b) => a[0] - b[0]);
    const path = sorted.map(([context, rate]) => `${x(context).toFixed(1)},${y(rate).toFixed(1)}`).join(' ');
    parts.push(
      `<polyline points="${path}" fill="none" stroke="${colour}" stroke-width="2"${dashed ? ' stroke-dasharray="5 4"' : ''}/>`,
    );
    for (const [context, rate] of sorted)
      parts.push(`<circle cx="${x(context)}" cy="${y(rate)}" r="3" fill="${colour}"/>`);
  }
  return `<g transform="translate(${offset} 0)">${parts.join('\n')}</g>`;
}

/** `reference`: {name, prefill: {context: rate}, decode: {…}}, drawn dashed beside the series of report.mjs. */
export function plot(list, reference) {
  const named = list.map((one, i) => ({
    label: `${one.model}: ${one.name}`,
    colour: COLOURS[i % COLOURS.length],
    points: (kind) => Object.entries(one[kind]).map(([context, row]) => [Number(context), row.rate]),
  }));
  named.push({
    label: reference.name,
    colour: '#000',
    dashed: true,
    points: (kind) => Object.entries(reference[kind]).map(([context, rate]) => [Number(context), rate]),
  });
  const lines = (kind) => named.map(({ colour, dashed, points }) => ({ colour, dashed, points: points(kind) }));
  const legendTop = TOP + HEIGHT + 44;
  const legend = named.map(({ label, colour }, i) => {
    const left = LEFT + (i % 2) * WIDTH;
    const top = legendTop + 18 * Math.floor(i / 2);
    return `<rect x="${left}" y="${top - 9}" width="14" height="6" fill="${colour}"/><text x="${left + 20}" y="${top}">${escape(label)}</text>`;
  });
  const height = legendTop + 18 * Math.ceil(named.length / 2);
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${2 * WIDTH}" height="${height}" font-family="sans-serif" font-size="12">`,
    '<rect width="100%" height="100%" fill="#fff"/>',
    panel('prefill, tokens/s by prompt length', lines('prefill'), 0),
    panel('decode, tokens/s by context', lines('decode'), WIDTH),
    ...legend,
    '</svg>',
    '',
  ].join('\n');
}
