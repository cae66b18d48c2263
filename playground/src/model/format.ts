// Numbers in words that people read.

/** 95885184 → "96 MB": decimal units, as file managers and download bars show. */
export function bytes(count: number): string {
  if (count < 1e6) return `${Math.max(1, Math.round(count / 1e3))} kB`;
  const [value, unit] = count < 1e9 ? [count / 1e6, 'MB'] : [count / 1e9, 'GB'];
  return `${value.toFixed(value < 10 ? 1 : 0)} ${unit}`;
}

/** "8 s", "2 min", "1 h 5 min" */
export function seconds(count: number): string {
  if (count < 90) return `${Math.max(1, Math.round(count))} s`;
  const minutes = Math.round(count / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function milliseconds(count: number): string {
  return count < 1000 ? `${count < 10 ? count.toFixed(1) : Math.round(count)} ms` : `${(count / 1000).toFixed(1)} s`;
}

export function rate(count: number, ms: number): number | undefined {
  return count > 0 && ms > 0 ? (1000 * count) / ms : undefined;
}

/** "99 MB · Apache-2.0": the dot stays with what is before it, so that no line begins with one. */
export const joined = (parts: readonly string[]): string => parts.join('\u00a0· ');

export const whole = (count: number): string => count.toLocaleString('en');

export const plural = (count: number, word: string): string => `${whole(count)} ${word}${count === 1 ? '' : 's'}`;
