// examples/js, and the lines of docs/api.md, as pages beside a copy of the package.
import assert from 'node:assert/strict';
import {cpSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, native, openBrowser, root, scratchFolder, startServer} from './support.mjs';

after(cleanUp);
const site = process.env.DOPPLER_SITE ?? join(root, 'web', 'dist');
const question = 'What color is the sky?';

test('the example and the lines of docs/api.md say what the native program says', {timeout: 600_000}, async () => {
  const folder = scratchFolder('example');
  cpSync(join(root, 'examples/js'), folder, {recursive: true});
  cpSync(join(site, 'lib'), join(folder, 'doppler-web/lib'), {recursive: true});
  const [, lines] = /^```js\n(.*?)^```/ms.exec(readFileSync(join(root, 'docs/api.md'), 'utf8'));
  writeFileSync(join(folder, 'lines.js'), lines + 'document.body.dataset.done = "true";\n');
  writeFileSync(join(folder, 'lines.html'), readFileSync(join(folder, 'index.html'), 'utf8')
    .replace('<p id="answer"></p>', '<body>').replace('chat.js', 'lines.js'));
  const server = await startServer({}, folder);
  const page = await (await openBrowser()).newPage();
  const expected = native(join(root, 'models/tiny'), question).text;
  await page.goto(`${server.origin}/index.html?question=${encodeURIComponent(question)}`);
  await page.waitForSelector('#answer[data-done]', {timeout: 300_000, state: 'attached'});
  assert.equal(await page.textContent('#answer'), expected);
  await page.goto(`${server.origin}/lines.html`);
  await page.waitForSelector('body[data-done]', {timeout: 300_000});
  assert.match((await page.textContent('body')).trim(), new RegExp(expected.replaceAll('.', '\\.')));
  await page.goto(`${server.origin}/index.html?model=nowhere/`);
  await page.waitForSelector('#answer[data-done]', {timeout: 60_000, state: 'attached'});
  assert.notEqual(await page.getAttribute('#answer', 'data-done'), 'true');
});
