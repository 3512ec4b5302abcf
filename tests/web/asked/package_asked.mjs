// The npm package, installed from its tarball into an empty Vite project, answers there.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, native, openBrowser, root, scratchFolder, startServer} from '../support.mjs';

after(cleanUp);

const main = `
import {Doppler} from 'doppler-web';
globalThis.answer = (async () => {
  const model = await Doppler.load('/models/tiny/', {context: 64});
  let text = '';
  for await (const piece of model.generate('Once upon a time', {maxTokens: 3})) text += piece;
  await model.unload();
  return text;
})();
`;

test('a Vite project with the package from its tarball answers', {timeout: 900_000}, async () => {
  const project = scratchFolder('vite');
  const run = (command, ...args) => execFileSync(command, args, {cwd: project, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit']});
  const tarball = run('npm', 'pack', '--silent', join(root, 'web')).trim().split('\n').at(-1);
  writeFileSync(join(project, 'package.json'), JSON.stringify({private: true, type: 'module'}));
  writeFileSync(join(project, 'index.html'), '<!doctype html><script type="module" src="/main.js"></script>');
  writeFileSync(join(project, 'main.js'), main);
  run('npm', 'install', '--silent', '--no-audit', '--no-fund', 'vite@8', `./${tarball}`);
  run('npx', 'vite', 'build');
  const server = await startServer({}, join(project, 'dist'));
  const page = await (await openBrowser()).newPage();
  await page.goto(`${server.origin}/`);
  const text = await page.evaluate(() => globalThis.answer);
  assert.equal(text, native(join(root, 'models/tiny'), '--raw', 'Once upon a time', '--max-tokens', '3').text);
});
