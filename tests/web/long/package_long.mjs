// The npm package, installed from its tarball into an empty Vite project, answers there.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, native, openBrowser, root, scratchFolder, startServer} from '../support.mjs';

after(cleanUp);

// In TypeScript, so that the package's types are held to what a project writes.
const main = `
import {Doppler, DopplerError} from 'doppler-web';
import type {ChatMessage, Model, Progress} from 'doppler-web';

const messages: ChatMessage[] = [{role: 'user', content: 'Hi'}];
const abort = new AbortController();
const phases = new Set<Progress['phase']>();

async function talk(model: Model) {
  let text = '';
  for await (const piece of model.generate('Once upon a time', {maxTokens: 3})) text += piece;
  let chat = '';
  for await (const piece of model.chat(messages, {maxTokens: 2, signal: abort.signal})) chat += piece;
  let streamed = '';
  for await (const chunk of await model.chat.completions.create({messages, stream: true, temperature: 0, max_tokens: 2})) {
    streamed += chunk.choices[0]?.delta.content ?? '';
  }
  const whole = await model.chat.completions.create({messages, temperature: 0, max_tokens: 2});
  return {text, chat, streamed, whole: whole.choices[0]!.message.content};
}

Object.assign(globalThis, {answer: (async () => {
  const model = await Doppler.load('/models/tiny/', {context: 64, signal: abort.signal, onProgress: ({phase}) => phases.add(phase)});
  const answers = await talk(model);
  await model.unload();
  const after: string = await model.generate('a').result.then(() => '', (error: DopplerError) => error.code);
  return {...answers, after, phases: [...phases]};
})()});
`;

test('a Vite project with the package from its tarball answers', {timeout: 900_000}, async () => {
  const project = scratchFolder('vite');
  const run = (command, ...args) => execFileSync(command, args, {cwd: project, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit']});
  const tarball = run('npm', 'pack', '--silent', join(root, 'web')).trim().split('\n').at(-1);
  writeFileSync(join(project, 'package.json'), JSON.stringify({private: true, type: 'module'}));
  writeFileSync(join(project, 'index.html'), '<!doctype html><script type="module" src="/main.ts"></script>');
  writeFileSync(join(project, 'main.ts'), main);
  run('npm', 'install', '--silent', '--no-audit', '--no-fund', 'vite@8', 'typescript@5', `./${tarball}`);
  run('npx', 'tsc', '--noEmit', '--strict', '--target', 'es2023', '--module', 'esnext', '--moduleResolution', 'bundler', '--lib', 'es2023,dom,dom.asynciterable', 'main.ts');
  run('npx', 'vite', 'build');
  const server = await startServer({}, join(project, 'dist'));
  const page = await (await openBrowser()).newPage();
  await page.goto(`${server.origin}/`);
  const answer = await page.evaluate(() => globalThis.answer);
  assert.equal(answer.text, native(join(root, 'models/tiny'), '--raw', 'Once upon a time', '--max-tokens', '3').text);
  const expected = native(join(root, 'models/tiny'), 'Hi', '--max-tokens', '2').text;
  assert.deepEqual([answer.chat, answer.streamed, answer.whole], [expected, expected, expected]);
  assert.equal(answer.after, 'usage');
  assert.deepEqual(answer.phases, ['check', 'download', 'upload', 'ready']);
});
