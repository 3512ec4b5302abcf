// What the browser tests share: a server that can misbehave, Chromium on a software GPU, models made by the native
// program. Paths come from the environment, which CTest sets.
import {execFileSync} from 'node:child_process';
import {existsSync, mkdtempSync, readFileSync, rmSync, statSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {fileFor, localServer, sendFile, sitePolicy} from '../../web/tools/serve.mjs';

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const build = process.env.DOPPLER_BUILD ?? join(root, 'build');
export const program = join(build, 'doppler');
const site = process.env.DOPPLER_SITE ?? join(root, 'web', 'dist');

const {chromium} = createRequire(join(build, 'playwright', 'package.json'))('playwright-core');

export const gpuFlags = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];
const quietFlags = ['--no-sandbox', '--disable-background-networking', '--disable-component-update', '--disable-sync',
  '--disable-default-apps', '--no-first-run'];

/** Everything that must be undone after a test file, newest first. */
const undo = [];
export async function cleanUp() {
  for (const step of undo.splice(0).reverse()) await step();
}

export function scratchFolder(name) {
  const folder = mkdtempSync(join(tmpdir(), `doppler-${name}-`));
  undo.push(() => rmSync(folder, {recursive: true, force: true, maxRetries: 5, retryDelay: 200}));
  return folder;
}

/** A browser with a profile of its own on disk, where OPFS is real. */
export async function openBrowser(flags = gpuFlags, profile = scratchFolder('profile')) {
  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
  const context = await chromium.launchPersistentContext(profile, {
    executablePath, headless: true, args: [...quietFlags, ...flags], serviceWorkers: 'allow', viewport: {width: 1100, height: 760},
  });
  let open = true;
  context.on('close', () => open = false);
  undo.push(async () => open && context.close());
  return context;
}

/**
 * Serves the site (or other pages) at / and model folders at /models/NAME/. `requests` logs [path, range, bytes sent]; a fault
 * (request, response, path) => true has dealt with the request itself.
 */
export async function startServer(models = {}, pages = site) {
  const state = {requests: [], fault: null, models: {tiny: join(root, 'models', 'tiny'), ...models}};
  const sockets = new Set();
  const server = localServer((request, response, pathname) => {
    const entry = {path: pathname, range: request.headers.range ?? '', bytes: 0};
    state.requests.push(entry);
    const write = response.write.bind(response), end = response.end.bind(response);
    response.write = (chunk, ...rest) => {
      entry.bytes += chunk?.length ?? 0;
      return write(chunk, ...rest);
    };
    response.end = (chunk, ...rest) => {
      if (typeof chunk !== 'function') entry.bytes += chunk?.length ?? 0;
      return end(chunk, ...rest);
    };
    const match = /^\/models\/([^/]+)(\/.*)$/.exec(pathname);
    const path = match && state.models[match[1]] ? fileFor(match[2], state.models[match[1]]) : fileFor(pathname, pages);
    if (state.fault?.(request, response, path)) return;
    sendFile(request, response, path, pages === site ? sitePolicy : {});
  });
  server.on('connection', (socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  });
  const listen = (port) => new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  await listen(0);
  const {port} = server.address();
  state.origin = `http://localhost:${port}`;
  state.bytesOf = (pattern) => state.requests.filter(({path}) => pattern.test(path)).reduce((sum, {bytes}) => sum + bytes, 0);
  state.close = () => new Promise((resolve) => {
    for (const socket of sockets) socket.destroy();
    server.close(resolve);
  });
  state.reopen = () => listen(port);
  undo.push(() => server.listening && state.close());
  return state;
}

/** Sends the first `bytes` of a shard and then nothing more, or breaks the connection. */
export function halt(bytes, breakOff) {
  return (request, response, path) => {
    if (!/shard_\d/.test(path)) return false;
    const content = readFileSync(path);
    const from = Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    response.writeHead(from ? 206 : 200, {
      'content-length': content.length - from, ...(from ? {'content-range': `bytes ${from}-${content.length - 1}/${content.length}`} : {}),
      'access-control-allow-origin': '*', 'cross-origin-resource-policy': 'cross-origin',
    });
    response.write(content.subarray(from, from + bytes), () => breakOff && setTimeout(() => response.destroy(), 300));
    return true;
  };
}

/** A checkpoint of tests/data as an artefact; converted once a folder. */
export function convert(checkpoint, folder, ...options) {
  const target = join(folder, checkpoint);
  if (!existsSync(target)) {
    execFileSync(program, ['convert', join(root, 'tests/data/models', checkpoint), target, '--no-tokenizer', ...options], {stdio: ['ignore', 'pipe', 'pipe']});
  }
  return target;
}

/** What the native program answers, as JSON. */
export function native(...args) {
  return JSON.parse(execFileSync(program, ['run', ...args, '--backend', 'cpu', '--json'], {encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe']}));
}

export const shardBytes = (folder) => JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8')).shards
  .reduce((sum, {fileName, filename}) => sum + statSync(join(folder, fileName ?? filename)).size, 0);

/** Runs `Doppler.load(url)` in the page and answers {info} or {code, message}. */
export function tryLoad(page, url, options = {}) {
  return page.evaluate(async ([address, choices]) => {
    const {Doppler} = await import('/lib/index.js');
    const phases = new Set();
    const abort = new AbortController();
    try {
      const model = await Doppler.load(address, {
        context: 128, ...choices, signal: abort.signal,
        onProgress: (progress) => {
          phases.add(progress.phase);
          globalThis.progress = progress;
          if (choices.cancelAt && progress.phase === 'download' && progress.loaded >= choices.cancelAt) abort.abort();
        },
      });
      globalThis.model = model;
      return {info: model.info, phases: [...phases]};
    } catch (error) {
      return {code: error.code, message: error.message, phases: [...phases]};
    }
  }, [url, options]);
}

/** A page of the site that loads no model by itself. */
export async function plainPage(context, origin) {
  const page = await context.newPage();
  page.on('pageerror', (error) => console.error('page error:', error.message));
  await page.goto(`${origin}/`);
  return page;
}
