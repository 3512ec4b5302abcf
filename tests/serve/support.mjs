// Starts `doppler serve` on a port that is free, and finds the clients where tools/setup.sh put them.
import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { tmpdir } from 'node:os';
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

// A model like tiny whose chat template says something else, under its own name. <pad> may have another one: it is a
// token that nothing else needs.
export function variantOfTiny(name, chatTemplate, pad = '<pad>') {
  const from = path.join(root, 'models', 'tiny'), folder = mkdtempSync(path.join(tmpdir(), 'doppler-serve-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  for (const file of readdirSync(from)) symlinkSync(path.join(from, file), path.join(folder, file));
  const rewrite = (file, change) => {
    const json = JSON.parse(readFileSync(path.join(from, file)));
    change(json);
    rmSync(path.join(folder, file));
    writeFileSync(path.join(folder, file), JSON.stringify(json));
  };
  rewrite('tokenizer_config.json', (config) => {
    config.chat_template = chatTemplate(config.chat_template);
    if (pad !== '<pad>') delete config.pad_token;
  });
  if (pad !== '<pad>') {
    rewrite('tokenizer.json', (tokenizer) => {
      Object.assign(tokenizer.added_tokens[0], { content: pad, special: false });
      delete tokenizer.model.vocab['<pad>'];
      tokenizer.model.vocab[pad] = 0;
    });
  }
  return `${name}=${folder}`;
}
