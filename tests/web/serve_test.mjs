// The page's own server, asked by strangers and in nonsense, and what it lets the page do.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {once} from 'node:events';
import {readFileSync} from 'node:fs';
import {request} from 'node:http';
import {join} from 'node:path';
import {createInterface} from 'node:readline';
import {after, before, test} from 'node:test';
import {policy} from '../../web/tools/serve.mjs';
import {root} from './support.mjs';

let child, port;

before(async () => {
  const script = join(root, 'web/tools/serve.mjs');
  child = spawn(process.execPath, [script, '--port', '0', '--model', join(root, 'models/tiny')], {stdio: ['ignore', 'pipe', 'inherit']});
  const [line] = await once(createInterface({input: child.stdout}), 'line');
  port = Number(/localhost:(\d+)/.exec(line)[1]);
});
after(() => child.kill());

async function ask(path, {host = `localhost:${port}`, method = 'GET'} = {}) {
  const asked = request({host: '127.0.0.1', port, path, method, headers: {host}}).end();
  const [response] = await once(asked, 'response');
  let text = '';
  for await (const piece of response) text += piece;
  return {status: response.statusCode, headers: response.headers, text};
}

test('what is no path is answered with 400, and the server lives on', async () => {
  for (const path of ['/%', '/models/%E0%A4%A', '//', 'http://[', '/%00']) assert.equal((await ask(path)).status, 400, path);
  for (const path of ['/..%2f..%2f..%2f..%2f..%2fetc/passwd', '/../CMakeLists.txt', '/icon.svg/x', `/${'x'.repeat(5000)}`, '*']) {
    assert.equal((await ask(path)).status, 404, path);
  }
  assert.equal((await ask('/', {method: 'POST'})).status, 405);
  assert.equal((await ask('/models/tiny/manifest.json')).status, 200);
});

test('only the names of this machine are answered', async () => {
  for (const host of ['evil.example', `evil.example:${port}`, 'localhost.evil.example', 'localhost@evil.example', '[']) {
    assert.equal((await ask('/', {host})).status, 403, host);
  }
  for (const host of ['localhost', `LOCALHOST:${port}`, '127.0.0.1:9', `[::1]:${port}`]) {
    assert.equal((await ask('/', {host})).status, 200, host);
  }
});

test('no other origin may read what is served', async () => {
  for (const path of ['/', '/lib/worker.js', '/models/tiny/manifest.json']) {
    const {headers} = await ask(path);
    assert.equal(headers['access-control-allow-origin'], undefined, path);
    assert.equal(headers['cross-origin-resource-policy'], 'same-origin', path);
    assert.equal(headers['content-security-policy'], `${policy}; frame-ancestors 'none'`, path);
    assert.equal(headers['x-content-type-options'], 'nosniff', path);
  }
});

test('the page carries the policy to other servers, and nothing inline', () => {
  const page = readFileSync(join(root, 'web/page/index.html'), 'utf8');
  assert.equal(/http-equiv="Content-Security-Policy" content="([^"]*)"/.exec(page)?.[1], policy);
  assert.doesNotMatch(page, /<[^>]*\s(on\w+|style)\s*=|<style|<script(?![^>]*\ssrc=)|javascript:/i);
});
