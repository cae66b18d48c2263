// Adds up what is downloaded; what it reports never decreases.
import type { Progress } from '../types.js';

/** Time over which the speed is taken, so that a pause does not throw it off. */
const WINDOW_MS = 4000;
/** Reports are at least this far apart, but for the first of a phase. */
const EVERY_MS = 50;

export class Meter {
  private small = 0;
  private readonly files = new Map<string, { position: number; cached: number }>();
  private expected = 0;
  private waiting = 0;
  private reported = 0;
  private phase: Progress['phase'] = 'runtime';
  private told = -Infinity;
  private readonly samples: { at: number; bytes: number }[] = [];

  constructor(
    private readonly report: (progress: Progress) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  enter(phase: Progress['phase']): void {
    if (this.phase !== phase) this.samples.length = 0;
    this.phase = phase;
    this.tell(true);
  }
  /** Of the runtime and the small files. */
  add(bytes: number): void {
    this.small += bytes;
    this.tell();
  }
  /** Bytes that the program and its weights have. */
  expect(bytes: number): void {
    this.expected = Math.max(this.expected, bytes);
  }
  /** Of a large file, up to this position; `total` counts where nothing was expected. */
  reach(path: string, position: number, total: number, cached: boolean): void {
    const file = this.files.get(path) ?? { position: 0, cached: 0 };
    if (position > file.position) {
      if (cached) file.cached += position - file.position;
      file.position = position;
    }
    this.files.set(path, file);
    this.expect(total);
    this.tell();
  }
  /** Another tab has come this far. */
  wait(bytes: number): void {
    if (this.phase !== 'waiting') this.enter('waiting');
    this.waiting = Math.max(this.waiting, bytes);
    this.tell();
  }
  finish(): void {
    this.expected = Math.max(this.expected, this.large());
    this.waiting = this.expected;
    this.enter('ready');
  }

  private large(): number {
    return [...this.files.values()].reduce((sum, f) => sum + f.position, 0);
  }
  private tell(always = false): void {
    const now = this.now();
    const large = Math.max(this.large(), this.waiting);
    const loaded = Math.max(this.reported, this.small + (this.expected ? Math.min(large, this.expected) : large));
    if (!always && now - this.told < EVERY_MS && loaded < this.small + this.expected) return;
    this.told = now;
    this.reported = loaded;
    const total = this.expected ? Math.max(loaded, this.small + this.expected) : 0;
    const cached = [...this.files.values()].reduce((sum, f) => sum + f.cached, 0);
    const secondsLeft = this.secondsLeft(now, loaded, total);
    this.report({ phase: this.phase, loaded, total, cached, ...(secondsLeft !== undefined && { secondsLeft }) });
  }
  private secondsLeft(now: number, loaded: number, total: number): number | undefined {
    if (this.phase !== 'download' && this.phase !== 'waiting') return undefined;
    this.samples.push({ at: now, bytes: loaded });
    while ((this.samples[1]?.at ?? now) < now - WINDOW_MS) this.samples.shift();
    const [first] = this.samples;
    const elapsed = first ? now - first.at : 0;
    if (!first || elapsed < 500 || total === 0 || loaded <= first.bytes) return undefined;
    return ((total - loaded) * elapsed) / (loaded - first.bytes) / 1000;
  }
}
