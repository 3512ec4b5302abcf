// Serves the site on localhost:  node web/tools/serve.mjs [--port 8080] [--model FOLDER]…
// A model folder is offered on the page beside the one that comes with it.
import {createReadStream, readFileSync, statSync} from 'node:fs';
import {createServer} from 'node:http';
import {basename, dirname, extname, join, normalize, resolve} from 'node:path';
import {pipeline} from 'node:stream';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';

const types = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8',
  '.json': 'application/json', '.wasm': 'application/wasm', '.svg': 'image/svg+xml', '.bin': 'application/octet-stream',
};

/**
 * What the site's page may do: run its own scripts and its own WebAssembly, and fetch models from wherever a visitor
 * says, encrypted or from this machine. page/index.html says the same for other web servers; a worker obeys the header
 * of its own script only, and who may frame the page only a header can say.
 */
export const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; " +
  "img-src 'self'; connect-src 'self' https: http://localhost:* http://127.0.0.1:*; base-uri 'none'; form-action 'none'";
export const sitePolicy = {'content-security-policy': `${policy}; frame-ancestors 'none'`};

// The file's bytes that the Range header asks for, as [first, last]; null for all, undefined for none.
function range(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (!match[1] && !match[2])) return null;
  const first = match[1] ? Number(match[1]) : Math.max(0, size - Number(match[2]));
  const last = match[1] && match[2] ? Math.min(Number(match[2]), size - 1) : size - 1;
  return first <= last ? [first, last] : undefined;
}

/**
 * No CORS header, and resources for this origin alone: the page asks its own server, and no other site that a visitor
 * has open has any business in the model folders of this machine.
 */
export function sendFile(request, response, path, more = {}) {
  const found = statSync(path, {throwIfNoEntry: false});
  if (!found?.isFile()) return void plain(response, 404, 'not found');
  const {size} = found;
  const headers = {
    'content-type': types[extname(path)] ?? 'text/plain; charset=utf-8', 'accept-ranges': 'bytes', 'cache-control': 'no-cache',
    'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp',
    'cross-origin-resource-policy': 'same-origin', 'x-content-type-options': 'nosniff', ...more,
  };
  const part = range(request.headers.range, size);
  if (part === undefined) {
    response.writeHead(416, {'content-range': `bytes */${size}`}).end();
    return;
  }
  if (part) headers['content-range'] = `bytes ${part[0]}-${part[1]}/${size}`;
  headers['content-length'] = part ? part[1] - part[0] + 1 : size;
  response.writeHead(part ? 206 : 200, headers);
  if (request.method === 'HEAD' || headers['content-length'] === 0) return void response.end();
  pipeline(createReadStream(path, part ? {start: part[0], end: part[1]} : {}), response, () => {});
}

/** The file under `folder` that a path means; index.html for a folder. */
export const fileFor = (path, folder) => join(folder, path.endsWith('/') ? `${path}index.html` : path);

// The path that a request asks for, decoded, without `..`; null where there is none to be read.
function pathOf(url) {
  try {
    const path = normalize(decodeURIComponent(new URL(url, 'http://localhost').pathname));
    return path.startsWith('/') && !path.includes('\0') ? path : null;
  } catch {
    return null;
  }
}

function plain(response, status, text) {
  response.writeHead(status, {'content-type': 'text/plain; charset=utf-8'}).end(`${text}\n`);
}

/** A server on this machine that gives `answer(request, response, path)` what it can read and is meant to hear. */
export function localServer(answer) {
  const server = createServer((request, response) => {
    // A site whose name was pointed at this machine (DNS rebinding) asks under its own name.
    const host = /^(.+?)(?::\d*)?$/.exec(request.headers.host ?? '')?.[1].toLowerCase();
    const {address, family} = server.address() ?? {};
    if (!['localhost', '127.0.0.1', '[::1]', family === 'IPv6' ? `[${address}]` : address].includes(host)) {
      return plain(response, 403, `this server is not known as '${host ?? ''}'; ask for localhost`);
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') return plain(response, 405, 'only GET and HEAD are answered');
    const path = pathOf(request.url);
    if (path === null) return plain(response, 400, 'this is no path');
    try {
      answer(request, response, path);
    } catch (error) {
      // A file that cannot be looked at: too long a name, no permission, a file where a folder is named.
      if (!error.syscall || response.headersSent) throw error;
      plain(response, 404, 'not found');
    }
  });
  return server;
}

function offerOf(folder) {
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  const name = basename(folder);
  return {
    folder,
    path: `/models/${name}/`,
    offer: {
      name, url: `models/${encodeURIComponent(name)}/`, about: manifest.quantization ?? '',
      bytes: (manifest.shards ?? []).reduce((sum, {size}) => sum + size, 0),
    },
  };
}

function main() {
  const {values} = parseArgs({options: {port: {type: 'string', default: '8080'}, model: {type: 'string', multiple: true, default: []}}});
  const site = join(dirname(dirname(fileURLToPath(import.meta.url))), 'dist');
  const models = values.model.map((folder) => offerOf(resolve(folder)));
  const offers = [...JSON.parse(readFileSync(join(site, 'models.json'), 'utf8')), ...models.map(({offer}) => offer)];
  const server = localServer((request, response, path) => {
    if (path === '/models.json') {
      response.writeHead(200, {'content-type': 'application/json'}).end(JSON.stringify(offers));
      return;
    }
    const model = models.find((candidate) => path.startsWith(candidate.path));
    if (model) sendFile(request, response, fileFor(path.slice(model.path.length - 1), model.folder), sitePolicy);
    else sendFile(request, response, fileFor(path, site), sitePolicy);
  });
  server.on('error', (error) => {
    console.error(error.code === 'EADDRINUSE' ? `port ${values.port} is taken; choose another with --port` : error.message);
    process.exit(1);
  });
  // By number: a root without /etc/hosts does not know the name, while browsers do.
  server.listen(Number(values.port), '127.0.0.1', () => console.log(`Doppler is at http://localhost:${server.address().port}/   (Ctrl-C ends)`));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
