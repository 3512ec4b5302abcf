// Serves the site on localhost:  node web/tools/serve.mjs [--port 8080] [--model FOLDER]…
// A model folder is offered on the page beside the one that comes with it.
import {createReadStream, existsSync, readFileSync, statSync} from 'node:fs';
import {createServer} from 'node:http';
import {basename, dirname, extname, join, normalize, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';

const types = {
  '.html': 'text/html; charset=utf-8', '.js': 'text/javascript; charset=utf-8', '.css': 'text/css; charset=utf-8',
  '.json': 'application/json', '.wasm': 'application/wasm', '.svg': 'image/svg+xml', '.bin': 'application/octet-stream',
};

// The file's bytes that the Range header asks for, as [first, last]; null for all, undefined for none.
function range(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (!match[1] && !match[2])) return null;
  const first = match[1] ? Number(match[1]) : Math.max(0, size - Number(match[2]));
  const last = match[1] && match[2] ? Math.min(Number(match[2]), size - 1) : size - 1;
  return first <= last ? [first, last] : undefined;
}

export function sendFile(request, response, path) {
  if (!existsSync(path) || !statSync(path).isFile()) {
    response.writeHead(404, {'content-type': 'text/plain'}).end('not found\n');
    return;
  }
  const {size} = statSync(path);
  const headers = {
    'content-type': types[extname(path)] ?? 'text/plain; charset=utf-8', 'accept-ranges': 'bytes', 'cache-control': 'no-cache',
    'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp',
    'cross-origin-resource-policy': 'cross-origin', 'access-control-allow-origin': '*',
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
  const stream = createReadStream(path, part ? {start: part[0], end: part[1]} : {});
  stream.on('error', () => response.destroy());
  stream.pipe(response);
}

/** The file under `folder` that a request means; index.html for a folder. */
export function fileFor(url, folder) {
  const path = normalize(decodeURIComponent(new URL(url, 'http://localhost').pathname));
  return join(folder, path.endsWith('/') ? `${path}index.html` : path);
}

function offerOf(folder) {
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  const name = basename(folder);
  return {
    folder,
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
  const server = createServer((request, response) => {
    const {pathname} = new URL(request.url, 'http://localhost');
    if (pathname === '/models.json') {
      response.writeHead(200, {'content-type': 'application/json'}).end(JSON.stringify(offers));
      return;
    }
    for (const {folder, offer} of models) {
      if (pathname.startsWith(`/${offer.url}`)) return sendFile(request, response, fileFor(pathname.slice(offer.url.length), folder));
    }
    sendFile(request, response, fileFor(request.url, site));
  });
  server.on('error', (error) => {
    console.error(error.code === 'EADDRINUSE' ? `port ${values.port} is taken; choose another with --port` : error.message);
    process.exit(1);
  });
  // By number: a root without /etc/hosts does not know the name, while browsers do.
  server.listen(Number(values.port), '127.0.0.1', () => console.log(`Doppler is at http://localhost:${server.address().port}/   (Ctrl-C ends)`));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) main();
