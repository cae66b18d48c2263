import { describe, expect, it } from 'vitest';
import { StopFinder, TextStreamer } from '../src/worker/text.js';

const bytesOf = (text: string) => [...new TextEncoder().encode(text)];
/** A tokenizer whose tokens are bytes: every character beyond ASCII is spread over several. */
const decodeBytes = (ids: number[]) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(Uint8Array.from(ids));

describe('TextStreamer', () => {
  it('gives out whole characters only, and all of them', () => {
    const text = 'naïve — 漢字 👩‍💻 end';
    const streamer = new TextStreamer(decodeBytes);
    const pieces = bytesOf(text).map((id) => streamer.push(id));
    expect(pieces.join('') + streamer.end()).toBe(text);
    for (const piece of pieces) expect(piece).not.toContain('\uFFFD');
    expect(pieces.filter((p) => p !== '')).toHaveLength([...text].length);
  });

  it('keeps spaces that a decoder strips at the start of a text', () => {
    const words = [' The', ' cat', ' sat'];
    const streamer = new TextStreamer((ids) =>
      ids
        .map((i) => words[i])
        .join('')
        .trimStart(),
    );
    expect([0, 1, 2].map((id) => streamer.push(id))).toEqual(['The', ' cat', ' sat']);
  });

  it('gives out an incomplete character at the end', () => {
    const streamer = new TextStreamer(decodeBytes);
    expect(streamer.push(0xe6)).toBe('');
    expect(streamer.end()).toBe('\uFFFD');
    expect(streamer.end()).toBe('');
  });
});

describe('StopFinder', () => {
  const through = (stops: string[], pieces: string[]) => {
    const finder = new StopFinder(stops);
    const out = pieces.map((p) => finder.push(p));
    return { text: out.join('') + finder.end(), out, found: finder.found };
  };

  it('finds a stop string over token borders', () => {
    expect(through(['\n\nUser:'], ['Hello', '.\n', '\nUs', 'er', ': no'])).toMatchObject({
      text: 'Hello.',
      found: true,
    });
  });
  it('lets go of what only looked like one', () => {
    expect(through(['END'], ['a E', 'N', 'C', 'E'])).toMatchObject({ text: 'a ENCE', found: false });
  });
  it('takes the earliest of several', () => {
    expect(through(['cd', 'b'], ['abcd'])).toMatchObject({ text: 'a', found: true });
  });
  it('holds nothing back without stop strings', () => {
    expect(through([], ['a', 'b']).out).toEqual(['a', 'b']);
  });
  it('handles a stop string that overlaps itself', () => {
    expect(through(['aab'], ['a', 'a', 'a', 'b', 'c'])).toMatchObject({ text: 'a', found: true });
  });
});
