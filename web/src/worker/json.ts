// JSON for the module: JSON.parse reads it, and this writes what it has found as the module takes it.

const MAX_DEPTH = 64; // as the native parser's
const KIND = { null: 0, boolean: 1, number: 2, string: 3, array: 4, object: 5 } as const; // JsonValue::Kind
const encoder = new TextEncoder();

class Encoder {
  private bytes = new Uint8Array(1024);
  private size = 0;

  finish(): Uint8Array {
    return this.bytes.subarray(0, this.size);
  }

  value(v: unknown, depth: number): void {
    if (depth > MAX_DEPTH) throw new RangeError('nested too deeply');
    if (v === null) {
      this.put(KIND.null);
    } else if (typeof v === 'boolean') {
      this.put(KIND.boolean, v ? 1 : 0);
    } else if (typeof v === 'number') {
      this.put(KIND.number, ...new Uint8Array(new Float64Array([v]).buffer));
    } else if (typeof v === 'string') {
      this.put(KIND.string);
      this.text(v);
    } else if (Array.isArray(v)) {
      this.put(KIND.array);
      this.count(v.length);
      for (const item of v) this.value(item, depth + 1);
    } else {
      const members = Object.entries(v as object);
      this.put(KIND.object);
      this.count(members.length);
      for (const [name, member] of members) {
        this.text(name);
        this.value(member, depth + 1);
      }
    }
  }

  private text(text: string): void {
    const bytes = encoder.encode(text);
    this.count(bytes.length);
    this.append(bytes);
  }
  private count(n: number): void {
    this.append(new Uint8Array(new Uint32Array([n]).buffer));
  }
  private put(...bytes: number[]): void {
    this.append(bytes);
  }
  private append(bytes: ArrayLike<number>): void {
    if (this.size + bytes.length > this.bytes.length) {
      const grown = new Uint8Array(2 * (this.size + bytes.length));
      grown.set(this.bytes);
      this.bytes = grown;
    }
    this.bytes.set(bytes, this.size);
    this.size += bytes.length;
  }
}

/**
 * A value is its kind in a byte, then: of a boolean a byte, of a number an f64, of a string a u32 with the count of its
 * bytes and these as UTF-8, of an array a u32 with the count of its items and these, of an object a u32 with the count
 * of its members and of each its name (as a string without the kind) and its value. Nothing is aligned.
 * undefined: `text` is no JSON, or nested deeper than 64.
 */
export function encodeJson(text: string): Uint8Array | undefined {
  try {
    const encoder = new Encoder();
    encoder.value(JSON.parse(text), 0);
    return encoder.finish();
  } catch {
    return undefined;
  }
}
