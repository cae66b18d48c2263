// What servers send in place of a file.

/** Bytes at the beginning that tell what a file is. */
export const HEAD_BYTES = 64;

/** By a file's first bytes: what it is instead of a model's file; undefined: nothing that is known. */
export function impostor(head: Uint8Array): string | undefined {
  const text = new TextDecoder().decode(head.subarray(0, HEAD_BYTES));
  if (/^\s*<[!a-z?]/i.test(text)) return 'an HTML page';
  if (text.startsWith('version https://git-lfs')) return 'a Git-LFS pointer';
  return undefined;
}
