// Starts `doppler serve` on a port that is free, and finds the clients where tools/setup.sh put them.
import { spawn } from 'node:child_process';
import { registerHooks } from 'node:module';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const root = fileURLToPath(new URL('../..', import.meta.url));
export const build = process.env.DOPPLER_BUILD ?? path.join(root, 'build');

const clients = pathToFileURL(path.join(build, 'clients', 'package.json')).href;
const own = pathToFileURL(path.join(root, 'tests')).href;
registerHooks({
  resolve(name, context, next) {
    const bare = !name.startsWith('.') && !name.startsWith('/') && !name.includes(':');
    return next(name, bare && context.parentURL?.startsWith(own) ? { ...context, parentURL: clients } : context);
  },
});

export async function startServer(options = [], { models = ['models/tiny'], env = {} } = {}) {
  const child = spawn(path.join(build, 'doppler'), ['serve', ...models, '--port', '0', '--backend', 'cpu', '--threads', '1', '--log-json', ...options],
    { cwd: root, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
  const server = { child, log: '', lines: () => server.log.split('\n').filter((line) => line.startsWith('{')).map((line) => JSON.parse(line)) };
  child.stderr.on('data', (text) => { server.log += text; });
  server.exited = new Promise((resolve) => child.on('exit', (code, signal) => resolve({ code, signal })));
  server.url = await new Promise((resolve, reject) => {
    let out = '';
    child.stdout.on('data', (text) => {
      out += text;
      if (out.includes('\n')) resolve(out.trim());
    });
    server.exited.then(({ code }) => reject(new Error(`doppler serve ended with ${code}: ${server.log}`)));
  });
  server.post = (where, body, headers = {}, signal) => fetch(server.url + where, {
    method: 'POST', headers: { 'content-type': 'application/json', ...headers }, signal,
    body: typeof body === 'string' || body instanceof Uint8Array ? body : JSON.stringify(body),
  });
  server.get = (where, headers = {}) => fetch(server.url + where, { headers });
  server.metric = async (name) => Number((await (await server.get('/metrics')).text()).match(new RegExp(`^doppler_${name}(?:{[^}]*})? (\\S+)$`, 'm'))?.[1]);
  server.stop = async () => {
    child.kill('SIGTERM');
    return server.exited;
  };
  return server;
}

export async function until(condition, what, ms = 10000) {
  for (const end = Date.now() + ms; Date.now() < end; await new Promise((resolve) => setTimeout(resolve, 20))) {
    if (await condition()) return;
  }
  throw new Error(`waited ${ms} ms for ${what}`);
}
