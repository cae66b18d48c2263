// Text out of tokens, piece by piece.

/** Turns tokens into text as soon as whole characters are there: a character may be spread over several tokens. */
export class TextStreamer {
  private readonly ids: number[] = [];
  // The text of [prefix, read) has been given out. Decoding starts a little earlier than what is new, since decoders
  // treat the first token of a text differently.
  private prefix = 0;
  private read = 0;

  constructor(private readonly decode: (ids: number[]) => string) {}

  /** The text that became complete with this token. */
  push(id: number): string {
    this.ids.push(id);
    const text = this.fresh();
    // U+FFFD at the end: bytes of a character whose rest is to come
    if (text === '' || text.endsWith('\uFFFD')) return '';
    return this.take(text);
  }

  /** What is left at the end, complete or not. */
  end(): string {
    return this.take(this.fresh());
  }

  private fresh(): string {
    const before = this.decode(this.ids.slice(this.prefix, this.read));
    return this.decode(this.ids.slice(this.prefix)).slice(before.length);
  }
  private take(text: string): string {
    this.prefix = this.read;
    this.read = this.ids.length;
    return text;
  }
}

/** Lets text through up to the first stop string; holds back what may be the beginning of one. */
export class StopFinder {
  private held = '';
  found = false;

  constructor(private readonly stops: readonly string[]) {}

  push(text: string): string {
    if (this.found) return '';
    this.held += text;
    const at = Math.min(...this.stops.map((stop) => this.held.indexOf(stop)).filter((i) => i >= 0));
    if (at !== Infinity) {
      this.found = true;
      return this.take(at);
    }
    return this.take(this.held.length - this.beginning());
  }

  end(): string {
    return this.found ? '' : this.take(this.held.length);
  }

  /** Length of the longest end of `held` that begins a stop string. */
  private beginning(): number {
    let longest = 0;
    for (const stop of this.stops) {
      for (let n = Math.min(stop.length - 1, this.held.length); n > longest; --n) {
        if (stop.startsWith(this.held.slice(-n))) longest = n;
      }
    }
    return longest;
  }
  private take(count: number): string {
    const text = this.held.slice(0, count);
    this.held = this.held.slice(count);
    return text;
  }
}
