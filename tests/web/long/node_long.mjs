// The package under Node, on the Dawn of the npm package webgpu, gives the native program's tokens.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {existsSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, native, root, scratchFolder} from '../support.mjs';

after(cleanUp);

const main = (model) => `
import {Doppler} from 'doppler-web/node';
const model = await Doppler.load(${JSON.stringify(model)}, {context: 64});
const {ids} = await model.generate('Once upon a time', {maxTokens: 3}).result;
console.log(JSON.stringify({ids, adapter: model.info.adapter}));
await model.unload();
process.exit(0);
`;

test('Node gives the native program\'s tokens', {timeout: 900_000}, () => {
  const folder = scratchFolder('node');
  const software = '/usr/lib/chromium/vk_swiftshader_icd.json';
  const hardware = existsSync('/dev/dri') || existsSync('/dev/nvidia0');
  const env = {...process.env, ...(!hardware && existsSync(software) ? {VK_ICD_FILENAMES: software} : {})};
  const run = (command, ...args) => execFileSync(command, args, {cwd: folder, env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit']});
  const tarball = run('npm', 'pack', '--silent', join(root, 'web')).trim().split('\n').at(-1);
  writeFileSync(join(folder, 'package.json'), JSON.stringify({private: true, type: 'module'}));
  writeFileSync(join(folder, 'main.js'), main(join(root, 'models/tiny')));
  run('npm', 'install', '--silent', '--no-audit', '--no-fund', 'node@25', 'webgpu@0.6.2', `./${tarball}`);
  const answer = JSON.parse(run(join(folder, 'node_modules/.bin/node'), 'main.js'));
  assert.deepEqual(answer.ids, native(join(root, 'models/tiny'), '--raw', 'Once upon a time', '--max-tokens', '3').token_ids);
});
