// A static file server for tests and the demo: ranges, MIME types, cross-origin isolation.
//
//   node tools/serve.mjs [--port 8080] [--no-isolation] /=FOLDER [/models/=FOLDER …]
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { Transform } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { createGzip } from 'node:zlib';

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.css': 'text/css',
  '.json': 'application/json',
  '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml',
  '.png': 'image/png',
  '.jpg': 'image/jpeg',
  '.webp': 'image/webp',
  '.txt': 'text/plain; charset=utf-8',
};
const ISOLATION = { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' };

/** The file behind a URL path: the longest matching mount; undefined where the path leaves the folder. */
function locate(mounts, pathname) {
  const prefix = Object.keys(mounts)
    .filter((p) => pathname.startsWith(p))
    .sort((a, b) => b.length - a.length)[0];
  if (prefix === undefined) return undefined;
  const root = path.resolve(mounts[prefix]);
  const file = path.join(root, decodeURIComponent(pathname.slice(prefix.length)));
  if (file !== root && !file.startsWith(root + path.sep)) return undefined;
  return fs.existsSync(file) && fs.statSync(file).isDirectory() ? path.join(file, 'index.html') : file;
}

/** [first, last] of a `Range: bytes=a-b`, null for one that cannot be served, undefined without one. */
function range(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return undefined;
  const first = match[1] === '' ? Math.max(0, size - Number(match[2])) : Number(match[1]);
  const last = match[1] === '' || match[2] === '' ? size - 1 : Math.min(size - 1, Number(match[2]));
  return first <= last ? [first, last] : null;
}

/** What a bad line does to bytes that begin at `position` of the file; calls `cut` where it breaks. */
function badLine(fault, position, cut) {
  let at = position;
  return new Transform({
    transform(piece, _, done) {
      const bytes = Buffer.from(piece);
      const { damage } = fault;
      if (damage?.times > 0 && damage.at >= at && damage.at < at + bytes.length) {
        damage.times--;
        bytes[damage.at - at] ^= 0xff;
      }
      if (at >= (fault.stallAt ?? Infinity)) return; // the line is there, and nothing comes any more
      const left = (fault.cutAt ?? Infinity) - at;
      at += bytes.length;
      if (left < bytes.length) {
        this.push(bytes.subarray(0, Math.max(0, left)));
        setTimeout(cut, 50); // what was sent before must arrive
        return;
      }
      if (fault.bytesPerSecond) setTimeout(() => done(null, bytes), (1000 * bytes.length) / fault.bytesPerSecond);
      else done(null, bytes);
    },
  });
}

/**
 * Serves folders by URL prefix: `serve({mounts: {'/': 'dist'}})`. `intercept(request, response, headers)` may answer
 * itself and return true. Resolves to {url, close, requests, log, faults}; `requests` lists the paths that were asked
 * for, `log` also method and range. `faults[path]` may be set at any time to {cutAt, stallAt, damage: {at, times},
 * noRange, bytesPerSecond, refuse, gzip, etag}: where the connection breaks, where nothing more comes, which byte arrives
 * wrong how often, no ranges, slow, no answer, compressed without a word of its length, another version's tag.
 */
export function serve({ mounts, port = 0, isolation = true, headers: extra = {}, intercept }) {
  const requests = [];
  const log = [];
  const faults = {};
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://localhost');
    requests.push(pathname);
    log.push({ method: request.method, path: pathname, range: request.headers.range });
    const fault = faults[pathname] ?? {};
    if (fault.refuse) return request.socket.destroy();
    const headers = {
      ...(isolation ? ISOLATION : {}),
      ...extra,
      'Cache-Control': 'no-cache',
      'Accept-Ranges': 'bytes',
    };
    const fail = (status) =>
      response.writeHead(status, { ...headers, 'Content-Type': 'text/plain' }).end(`${status}\n`);
    if (intercept?.(request, response, headers)) return;
    if (request.method !== 'GET' && request.method !== 'HEAD') return fail(405);
    let file;
    try {
      file = locate(mounts, pathname);
    } catch {
      return fail(400);
    }
    if (!file || !fs.existsSync(file)) return fail(404);
    const { size, mtimeMs } = fs.statSync(file);
    headers.ETag = `"${fault.etag ?? `${size.toString(16)}-${Math.round(mtimeMs).toString(16)}`}"`;
    headers['Content-Type'] = TYPES[path.extname(file)] ?? 'application/octet-stream';
    const part = fault.noRange || fault.gzip ? undefined : range(request.headers.range, size);
    if (part === null) return fail(416);
    const [first, last] = part ?? [0, size - 1];
    if (part) headers['Content-Range'] = `bytes ${first}-${last}/${size}`;
    if (fault.gzip) headers['Content-Encoding'] = 'gzip';
    else headers['Content-Length'] = last - first + 1;
    response.writeHead(part ? 206 : 200, headers);
    if (request.method === 'HEAD' || size === 0) return response.end();
    const stream = fs.createReadStream(file, { start: first, end: last });
    stream.on('error', () => response.destroy());
    response.on('close', () => stream.destroy());
    if (fault.gzip) stream.pipe(createGzip({ level: 1 })).pipe(response);
    else if (faults[pathname]) stream.pipe(badLine(fault, first, () => response.destroy())).pipe(response);
    else stream.pipe(response);
  });
  return new Promise((resolve, reject) => {
    server.on('error', reject);
    server.listen(port, '127.0.0.1', () => {
      const close = () =>
        new Promise((done) => {
          server.close(done);
          server.closeAllConnections();
        });
      resolve({ url: `http://127.0.0.1:${server.address().port}/`, close, requests, log, faults });
    });
  });
}

async function main(args) {
  const options = { mounts: {}, port: 8080 };
  while (args.length) {
    const word = args.shift();
    if (word === '--port') options.port = Number(args.shift());
    else if (word === '--no-isolation') options.isolation = false;
    else if (word.includes('=')) options.mounts[word.split('=')[0]] = word.slice(word.indexOf('=') + 1);
    else throw new Error(`serve: ${word}? Give URL prefixes and folders such as /=playground/dist`);
  }
  const { url } = await serve(options);
  console.log(`serving ${url}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv.slice(2));
