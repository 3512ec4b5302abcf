// What whoever runs the server relies on: files to deploy it with, tenants, a log that may fail.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { build, root, startServer, until } from './support.mjs';

const run = promisify(execFile);

test('the files to deploy with use options that there are', async () => {
  const { stdout: help } = await run(path.join(build, 'doppler'), ['serve', '--help']);
  for (const file of ['doppler.service', 'Dockerfile']) {
    const lines = readFileSync(path.join(root, 'packaging', file), 'utf8').split('\n').filter((line) => /^(ExecStart|ENTRYPOINT)|DOPPLER_SERVE=/.test(line));
    assert.ok(lines.length > 0);
    for (const [option] of lines.join('\n').matchAll(/--[a-z-]+/g)) assert.match(help, new RegExp(`${option}\\b`), `${file}: ${option}`);
  }
});

test('a reader of the log that goes away does not take the server with it', async () => {
  const server = await startServer();
  server.child.stderr.destroy();
  for (let k = 0; k < 3; ++k) assert.equal((await server.get('/v1/nothing')).status, 404);
  await until(async () => (await server.metric('log_lines_dropped_total')) >= 1, 'lines to be dropped');
  assert.equal((await server.stop()).code, 0);
});

test('keys of a file are tenants, which --isolate keeps apart', async () => {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'doppler-keys-'));
  const keys = path.join(folder, 'keys');
  writeFileSync(keys, '# two\nfirst-key\n\n  second-key\n');
  const server = await startServer(['--api-key-file', keys, '--isolate']);
  try {
    const found = async (key) => {
      const response = await server.post('/v1/completions', { prompt: 'Once upon a time there was a brave little cat. '.repeat(20), max_tokens: 1 }, { 'x-api-key': key });
      assert.equal(response.status, 200);
      return (await response.json()).usage.prompt_tokens_details.cached_tokens;
    };
    assert.equal(await found('first-key'), 0);
    assert.ok(await found('first-key') > 0);
    assert.equal(await found('second-key'), 0);
    assert.equal((await server.get('/v1/models', { 'x-api-key': '# two' })).status, 401);
    await until(() => server.lines().some((line) => line.key === 2), 'a line with the number of the key');
    assert.ok(!server.log.includes('first-key'));
    assert.ok(server.lines().some((line) => line.event === 'loaded' && /cache \d+ MiB, \d+ tokens/.test(line.detail)), server.log);
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true });
  }
});
