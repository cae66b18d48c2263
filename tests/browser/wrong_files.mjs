// What servers really send in place of a model, and what loading it must say. `answer(response, headers, program, name)`;
// `program` is the path of a good one, `name` the file of a folder that is asked for.
import { readFileSync } from 'node:fs';
import path from 'node:path';

const send = (response, headers, body, type = 'application/octet-stream') =>
  response.writeHead(200, { ...headers, 'Content-Type': type, 'Content-Length': body.length }).end(body);

const HTML = Buffer.from(
  '<!doctype html><html><head><title>Sign in</title></head><body>Please sign in</body></html>'.padEnd(512),
);
const LFS = Buffer.from(`version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 124393472\n`);

/** The good folder, but for its program. */
const folder = (program) => (response, headers, good, name) =>
  send(response, headers, name === 'model.pte' ? program : readFileSync(path.join(path.dirname(good), name)));

export const wrongFiles = [
  {
    name: 'a Git-LFS pointer for the program of a folder',
    url: '/wrong/pointers/',
    expect: 'NotAProgramError',
    words: /model\.pte is a Git-LFS pointer/,
    answer: folder(LFS),
  },
  {
    name: 'an HTML page for the program of a folder',
    url: '/wrong/pages/',
    expect: 'NotAProgramError',
    words: /model\.pte is an HTML page/,
    answer: folder(HTML),
  },
  {
    name: 'a program that is shorter than its manifest says',
    url: '/wrong/short/',
    expect: 'DownloadError',
    words: /model\.pte has 3000 bytes on the server, its manifest says \d+/,
    answer: folder(Buffer.alloc(3000, 1)),
  },
  {
    name: 'an HTML page for a program',
    url: '/wrong/page.pte',
    expect: 'NotAProgramError',
    words: /HTML/i,
    answer: (response, headers) => send(response, headers, HTML, 'text/html'),
  },
  {
    name: 'a Git-LFS pointer for a program',
    url: '/wrong/pointer.pte',
    expect: 'NotAProgramError',
    words: /LFS/i,
    answer: (response, headers) => send(response, headers, LFS),
  },
  {
    name: 'a missing program',
    url: '/wrong/missing.pte',
    expect: 'DownloadError',
    words: /404/,
    answer: (response, headers) => response.writeHead(404, headers).end(),
  },
  {
    name: 'a download that ends early',
    url: '/wrong/truncated.pte',
    expect: 'DownloadError',
    words: /ends after|broke off/,
    answer: (response, headers, program) => send(response, headers, readFileSync(program).subarray(0, 5_000_000)),
  },
  {
    name: 'a connection that breaks',
    url: '/wrong/broken.pte',
    expect: 'DownloadError',
    words: /broke off|ends after/,
    answer: (response, headers, program) => {
      const bytes = readFileSync(program);
      response.writeHead(200, { ...headers, 'Content-Length': bytes.length });
      response.write(bytes.subarray(0, 3_000_000), () => setTimeout(() => response.destroy(), 50));
    },
  },
  {
    name: 'an empty file',
    url: '/wrong/empty.pte',
    expect: 'DownloadError',
    words: /ends after 0/,
    answer: (response, headers) => send(response, headers, Buffer.alloc(0)),
  },
  {
    name: 'an HTML page for a manifest',
    url: '/wrong/folder/manifest.json',
    expect: 'NotAProgramError',
    words: /HTML page/,
    answer: (response, headers) => send(response, headers, HTML, 'text/html'),
  },
  {
    name: 'a manifest of a newer format',
    url: '/wrong/newer/manifest.json',
    expect: 'UnsupportedVersionError',
    words: /99.*1/,
    answer: (response, headers) =>
      send(response, headers, Buffer.from(JSON.stringify({ format: 99, files: [], variants: [] })), 'application/json'),
  },
];
