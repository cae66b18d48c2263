// What servers really send in place of a model, and what loading it must say. `answer(response, headers, program)`;
// `program` is the path of a good one.
import { readFileSync } from 'node:fs';

const send = (response, headers, body, type = 'application/octet-stream') =>
  response.writeHead(200, { ...headers, 'Content-Type': type, 'Content-Length': body.length }).end(body);

const HTML = Buffer.from(
  '<!doctype html><html><head><title>Sign in</title></head><body>Please sign in</body></html>'.padEnd(512),
);
const LFS = Buffer.from(`version https://git-lfs.github.com/spec/v1\noid sha256:${'0'.repeat(64)}\nsize 124393472\n`);

export const wrongFiles = [
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
