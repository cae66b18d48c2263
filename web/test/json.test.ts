import { describe, expect, it } from 'vitest';
import { encodeJson } from '../src/worker/json.js';

/** What the module's reader does (runtime/bindings/wasm/json_parser.cpp). */
function decode(bytes: Uint8Array): unknown {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  let at = 0;
  const count = () => ((at += 4), view.getUint32(at - 4, true));
  const text = () => {
    const n = count();
    return new TextDecoder().decode(bytes.subarray(at, (at += n)));
  };
  const value = (): unknown => {
    const kind = view.getUint8(at++);
    if (kind === 0) return null;
    if (kind === 1) return view.getUint8(at++) === 1;
    if (kind === 2) return ((at += 8), view.getFloat64(at - 8, true));
    if (kind === 3) return text();
    if (kind === 4) return Array.from({ length: count() }, value);
    return Object.fromEntries(Array.from({ length: count() }, () => [text(), value()] as const));
  };
  const result = value();
  expect(at).toBe(bytes.length);
  return result;
}

describe('JSON for the module', () => {
  it('is what JSON.parse has read', () => {
    const text =
      '{"a": [1, -2.5e3, true, false, null, []], "b": {"c": "\\u00e9\\ud83d\\ude00\\n"}, "ü": "", "n": 9007199254740992}';
    expect(decode(encodeJson(text)!)).toEqual(JSON.parse(text));
    const long = JSON.stringify({
      tensors: Array.from({ length: 5000 }, (_, i) => ({ name: `layer ${i}`, at: i / 3 })),
    });
    expect(decode(encodeJson(long)!)).toEqual(JSON.parse(long));
  });
  it('is refused where it is none, or bottomless', () => {
    for (const text of ['', '{', '{"a": 1,}', 'nul', '<html>', '['.repeat(100_000), '['.repeat(66) + ']'.repeat(66)]) {
      expect(encodeJson(text)).toBeUndefined();
    }
    expect(encodeJson('['.repeat(64) + ']'.repeat(64))).toBeDefined();
  });
});
