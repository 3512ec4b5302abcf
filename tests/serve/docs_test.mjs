// The examples of docs/server.md do what they say, and the chat page works in a browser.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { build, root, startServer } from './support.mjs';

const run = promisify(execFile);
let server, page;
before(async () => { server = await startServer(); page = readFileSync(path.join(root, 'docs/server.md'), 'utf8').replaceAll('http://127.0.0.1:8080', server.url); });
after(async () => { await server.stop(); });
const example = (language, having) => {
  const blocks = [...page.matchAll(new RegExp(`^\`\`\`${language}\\n([^]*?)^\`\`\``, 'gm'))].map(([, code]) => code).filter((code) => code.includes(having));
  assert.equal(blocks.length, 1, `an example in ${language} with ${having}`);
  return blocks[0];
};

test('curl', async (t) => {
  if (!await run('curl', ['--version']).catch(() => null)) return t.skip('there is no curl');
  const { stdout } = await run('sh', ['-c', example('sh', 'curl')]);
  assert.ok(JSON.parse(stdout).choices[0].message.content.length > 10);
});

test('Python', async () => {
  const { stdout } = await run('python3', ['-c', example('python', 'urllib')]);
  assert.ok(stdout.trim().length > 10);
});

test('JavaScript', async () => {
  const code = `await import(${JSON.stringify(new URL('./support.mjs', import.meta.url).href)});\n` + example('js', 'openai').replace("import OpenAI from 'openai';", '');
  const { stdout } = await run(process.execPath, ['--input-type=module', '-e', `const { default: OpenAI } = await import(${JSON.stringify(path.join(build, 'clients/node_modules/openai/index.mjs'))});\n${code}`], { env: { ...process.env, DOPPLER_BUILD: build } });
  assert.ok(stdout.trim().length > 10);
});

test('every metric that is documented is there', async () => {
  const text = await (await server.get('/metrics')).text();
  const table = page.slice(page.indexOf('| metric | kind |'), page.indexOf('As a service of systemd'));
  const names = [...table.matchAll(/`([a-z0-9_]+)[`{]/g)].map(([, name]) => name);
  assert.ok(names.length > 15);
  for (const name of names) assert.match(text, new RegExp(`^# TYPE doppler_${name} `, 'm'), name);
  const promtool = await run('sh', ['-c', 'command -v promtool']).catch(() => null);
  if (!promtool) return;
  const checked = execFile('promtool', ['check', 'metrics']);
  checked.stdin.end(text);
  assert.equal(await new Promise((resolve) => checked.on('exit', resolve)), 0);
});

test('the chat page', async (t) => {
  const chromium = '/usr/bin/chromium';
  if (!existsSync(chromium) || !existsSync(path.join(build, 'playwright'))) return t.skip('there is no browser');
  const { chromium: browsers } = createRequire(path.join(build, 'playwright', 'package.json'))('playwright-core');
  const browser = await browsers.launch({ executablePath: chromium, args: ['--no-sandbox'] });
  try {
    const view = await browser.newPage({ viewport: { width: 900, height: 700 } });
    const faults = [];
    view.on('pageerror', (error) => faults.push(error.message));
    await view.goto(server.url);
    await view.locator('#model option').waitFor({ state: 'attached' });
    await view.fill('#prompt', 'Tell me a story about a brave cat.');
    await view.press('#prompt', 'Enter');
    await view.locator('#chat li.assistant small').waitFor({ timeout: 60000 });
    assert.ok((await view.locator('#chat li.assistant .text').textContent()).length > 10);
    assert.ok(await view.locator('#problem').isHidden());
    assert.deepEqual(faults, []);
    if (process.env.DOPPLER_SCREENSHOT) await view.screenshot({ path: process.env.DOPPLER_SCREENSHOT });
  } finally {
    await browser.close();
  }
});
