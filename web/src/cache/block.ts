// The format of a stored block: the bytes of its chunks, then the SHA-256 of each chunk.

export const DIGEST_BYTES = 32;
/** Chunks in a block: what an interruption costs at most, and how many files a model becomes. */
export const BLOCK_CHUNKS = 4;

export function join(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/** Chunks of a stored block of this many bytes. */
const chunkCount = (stored: number, chunkBytes: number) => Math.ceil(stored / (chunkBytes + DIGEST_BYTES));

/** Bytes of the file in a stored block. */
export function blockBytes(stored: number, chunkBytes: number): number {
  return Math.max(0, stored - DIGEST_BYTES * chunkCount(stored, chunkBytes));
}

export async function digestOf(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
}

export const hex = (bytes: Uint8Array) => [...bytes].map((b) => b.toString(16).padStart(2, '0')).join('');

/**
 * The chunks of a stored block, up to the first that does not match its own digest or `expected` (the manifest's
 * hashes of these chunks, where known).
 */
export async function chunksOf(
  stored: Uint8Array<ArrayBuffer>,
  chunkBytes: number,
  expected: readonly (string | undefined)[] = [],
): Promise<Uint8Array<ArrayBuffer>[]> {
  const count = chunkCount(stored.length, chunkBytes);
  const size = blockBytes(stored.length, chunkBytes);
  const chunks = Array.from({ length: count }, (_, i) =>
    stored.subarray(i * chunkBytes, Math.min(size, (i + 1) * chunkBytes)),
  );
  const digests = await Promise.all(chunks.map(digestOf));
  const bad = digests.findIndex((digest, i) => {
    const kept = stored.subarray(size + i * DIGEST_BYTES, size + (i + 1) * DIGEST_BYTES);
    return hex(digest) !== hex(kept) || (expected[i] !== undefined && expected[i] !== hex(digest));
  });
  return bad < 0 ? chunks : chunks.slice(0, bad);
}
