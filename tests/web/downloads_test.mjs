// Downloads that go wrong: nothing is corrupted, and what has arrived is used.
import assert from 'node:assert/strict';
import {after, before, beforeEach, test} from 'node:test';
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {cleanUp, convert, gpuFlags, halt, openBrowser, plainPage, scratchFolder, shardBytes, startServer, tryLoad} from './support.mjs';

let server, context, page, url, folder;

before(async () => {
  folder = convert('llama-a', scratchFolder('models'), '--quant', 'f32', '--shard-size', '1M');
  server = await startServer({model: folder});
  url = `${server.origin}/models/model/`;
  context = await openBrowser();
  page = await plainPage(context, server.origin);
});
after(cleanUp);
beforeEach(async () => {
  server.fault = null;
  await page.evaluate(async (address) => {
    await globalThis.model?.unload();
    const {Doppler} = await import('/lib/index.js');
    // A tab that was closed gives its lock back a moment later.
    for (let tries = 0; ; ++tries) {
      try {
        return await Doppler.remove(address);
      } catch (error) {
        if (tries === 50) throw error;
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }, url);
  server.requests.length = 0;
});

const parts = () => page.evaluate(async () => {
  const models = await (await navigator.storage.getDirectory()).getDirectoryHandle('doppler-models');
  const found = {};
  for await (const model of models.values()) {
    for await (const [name, file] of model.entries()) found[name] = (await file.getFile()).size;
  }
  return found;
});
const keptBytes = async () => Object.entries(await parts()).filter(([name]) => /shard_\d/.test(name)).reduce((sum, [, size]) => sum + size, 0);

test('a cancelled download goes on where it was', async () => {
  server.fault = halt(300_000, false);
  const first = await tryLoad(page, url, {cancelAt: 300_000});
  assert.equal(first.code, 'cancelled');
  // None of them came to an end, so they were fetched side by side.
  assert.equal(server.requests.filter(({path}) => /shard_\d/.test(path)).length, 3);
  const kept = await keptBytes();
  assert.ok(kept >= 300_000, `${kept} bytes were kept`);
  server.fault = null;
  server.requests.length = 0;
  const second = await tryLoad(page, url);
  assert.equal(second.info?.id, 'llama-a', second.message);
  assert.ok(server.requests.some(({path, range}) => /shard_\d/.test(path) && /^bytes=\d+-$/.test(range)));
  assert.equal(server.bytesOf(/shard_\d/), shardBytes(folder) - kept);
});

test('a broken connection is taken up again without being told', async () => {
  const normal = halt(200_000, true);
  const broken = new Set();
  server.fault = (request, response, path) => {
    if (!/shard_0000[01]/.test(path) || broken.has(path)) return false;
    broken.add(path);
    return normal(request, response, path);
  };
  const loaded = await tryLoad(page, url);
  assert.equal(loaded.info?.id, 'llama-a', loaded.message);
  assert.equal(broken.size, 2);
  const resumed = server.requests.filter(({path, range}) => /shard_0000[01]/.test(path) && range);
  assert.equal(resumed.length, 2);
});

test('a tab closed during a download corrupts nothing', async () => {
  server.fault = halt(250_000, false);
  const other = await plainPage(context, server.origin);
  tryLoad(other, url).catch(() => {});
  await other.waitForFunction(() => globalThis.progress?.loaded >= 250_000);
  await other.close();
  const kept = await keptBytes();
  assert.ok(kept >= 250_000, `${kept} bytes were kept`);
  server.fault = null;
  server.requests.length = 0;
  const loaded = await tryLoad(page, url);
  assert.equal(loaded.info?.id, 'llama-a', loaded.message);
  assert.equal(server.bytesOf(/shard_\d/), shardBytes(folder) - kept);
});

test('a damaged shard is found by its hash, and a sound one replaces it', async () => {
  server.fault = (request, response, path) => {
    if (!/shard_00001/.test(path)) return false;
    const bytes = readFileSync(path);
    bytes[1234] ^= 1;
    response.writeHead(200, {'content-length': bytes.length}).end(bytes);
    return true;
  };
  const first = await tryLoad(page, url);
  assert.equal(first.code, 'format');
  assert.match(first.message, /^shard_00001\.bin arrived damaged: its sha256 is [0-9a-f]{64}, the manifest says [0-9a-f]{64}/);
  assert.ok(!('shard_00001.bin' in await parts()));
  server.fault = null;
  const second = await tryLoad(page, url);
  assert.equal(second.info?.id, 'llama-a', second.message);
});

test('blake3 is checked, the standard and what the JavaScript engine writes by that name', async () => {
  const digests = (bytes) => page.evaluate(async (base64) => {
    const {ShardHash} = await import('/lib/shard_hash.js');
    const hash = await ShardHash.create('blake3');
    hash.update(Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)));
    const hex = (at) => Array.from(hash.room.subarray(at, at + 32), (byte) => byte.toString(16).padStart(2, '0')).join('');
    hash.finish('');
    return [hex(0), hex(32)];
  }, bytes.toString('base64'));
  // tests/base/blake3_test.cpp has more of both.
  assert.deepEqual(await digests(Buffer.from([])), ['af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262',
    'fda1200e7626ed65703a9c8eb28987d8142bf29fcf7cf582e0c44cc7ad8a8ea8']);
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  const both = [];
  for (const {filename} of manifest.shards) both.push(await digests(readFileSync(join(folder, filename))));
  for (const which of [0, 1]) {
    server.fault = manifestOf((text) => {
      text.hashAlgorithm = 'blake3';
      text.shards.forEach((shard, i) => shard.hash = both[i][which]);
    });
    assert.equal((await tryLoad(page, url)).info?.id, 'llama-a');
    await page.evaluate(async (address) => {
      await globalThis.model.unload();
      await (await import('/lib/index.js')).Doppler.remove(address);
    }, url);
  }
  server.fault = manifestOf((text) => {
    text.hashAlgorithm = 'blake3';
    text.shards.forEach((shard, i) => shard.hash = both[i][i === 1 ? 1 : 0].replace(/^./, (digit) => i === 1 ? (digit === '0' ? '1' : '0') : digit));
  });
  const wrong = await tryLoad(page, url);
  assert.equal(wrong.code, 'format');
  assert.match(wrong.message, /^shard_00001\.bin arrived damaged: its blake3 is [0-9a-f]{64}, the manifest says [0-9a-f]{64}/);
});

test('a server without ranges, and one that answers errors, are dealt with', async () => {
  server.fault = halt(300_000, false);
  assert.equal((await tryLoad(page, url, {cancelAt: 300_000})).code, 'cancelled');
  server.fault = (request, response, path) => {
    if (!/shard_\d/.test(path)) return false;
    response.writeHead(200).end(readFileSync(path));
    return true;
  };
  assert.equal((await tryLoad(page, url)).info?.id, 'llama-a');
  await page.evaluate(() => globalThis.model.unload());
  server.fault = null;
  const missing = await tryLoad(page, `${server.origin}/models/elsewhere/`);
  assert.equal(missing.code, 'network');
  assert.match(missing.message, /there is no model at .*elsewhere/);
});

const manifestOf = (change) => (request, response, path) => {
  if (!/manifest\.json$/.test(path)) return false;
  const manifest = JSON.parse(readFileSync(path, 'utf8'));
  change(manifest);
  response.writeHead(200, {'content-type': 'application/json'}).end(JSON.stringify(manifest));
  return true;
};

test('a manifest that names a file twice is refused before a shard is fetched', async () => {
  server.fault = manifestOf(({shards}) => shards[0].filename = 'info.json');
  const {code, message} = await tryLoad(page, url);
  assert.equal(code, 'format');
  assert.match(message, /lists a shard named info\.json, which is the name of another file/);
  assert.deepEqual(server.requests.map(({path}) => path).filter((path) => /^\/models\//.test(path)), ['/models/model/manifest.json']);
  assert.deepEqual(await page.evaluate(async () => (await import('/lib/index.js')).Doppler.stored()), []);
});

test('a model that does not fit is refused before a byte of it is fetched', async () => {
  const {origin} = server;
  const session = await context.newCDPSession(page);
  const {usage} = await page.evaluate(() => navigator.storage.estimate());
  await session.send('Storage.overrideQuotaForOrigin', {origin, quotaSize: usage + 1_000_000});
  const refused = await tryLoad(page, url);
  await session.send('Storage.overrideQuotaForOrigin', {origin});
  assert.equal(refused.code, 'quota');
  assert.match(refused.message, /^the model needs 3\.0 MB more, but the browser (allows this page only|does not give this page that much)/);
  assert.equal(server.bytesOf(/shard_\d/), 0);
});

test('two tabs at once download a model once, and both have it', async () => {
  const other = await plainPage(context, server.origin);
  const [one, two] = await Promise.all([tryLoad(page, url), tryLoad(other, url)]);
  assert.equal(one.info?.id, 'llama-a', one.message);
  assert.equal(two.info?.id, 'llama-a', two.message);
  assert.equal(server.bytesOf(/shard_\d/), shardBytes(folder));
  const inUse = await other.evaluate(async (address) => (await import('/lib/index.js')).Doppler.remove(address).catch((e) => e.message), url);
  assert.match(inUse, /in use/);
  await other.close();
});

test('a changed model replaces only what has changed', async () => {
  assert.equal((await tryLoad(page, url)).info?.id, 'llama-a');
  await page.evaluate(() => globalThis.model.unload());
  server.requests.length = 0;
  server.fault = (request, response, path) => {
    if (!/manifest\.json$/.test(path)) return false;
    response.writeHead(200, {'content-type': 'application/json'}).end(readFileSync(path, 'utf8').replace('"llama-a"', '"llama-b"'));
    return true;
  };
  assert.equal((await tryLoad(page, url)).info?.id, 'llama-b');
  assert.equal(server.bytesOf(/shard_\d/), 0);
});

test('a server that lacks something says at once what', {timeout: 60_000}, async () => {
  const lacking = await startServer({model: folder});
  // Never sw.js, which a page may ask for late, and which would answer from what it has kept.
  const none = (pattern) => (request, response) =>
      (/sw\.js/.test(request.url) || pattern?.test(request.url)) && Boolean(response.writeHead(404).end('nothing here'));
  lacking.fault = none();
  const visitor = await plainPage(context, lacking.origin);
  for (const [pattern, sentence] of [
    [/^\/models\//, /there is no model at .*manifest\.json/],
    [/shard_\d/, /shard_\d+\.bin cannot be fetched: the server answers 404/],
    [/doppler\.wasm/, /missing: .*doppler\.wasm answers 404.*load again/],
    [/sha256\.wasm/, /missing: .*sha256\.wasm answers 404.*load again/],
    [/service\.js/, /missing: .*worker\.js or a file it imports/],
    [/./, /missing: .*worker\.js or a file it imports/],
  ]) {
    lacking.fault = none(pattern);
    const begun = performance.now();
    const {code, message} = await tryLoad(visitor, `${lacking.origin}/models/model/`);
    assert.match(message ?? `loaded without ${pattern}`, sentence);
    assert.equal(code, 'network', message);
    assert.ok(performance.now() - begun < 8000, `${pattern} took ${performance.now() - begun} ms`);
  }
  lacking.fault = none(/lib\/index\.js/);
  await visitor.reload();
  await visitor.waitForSelector('#problem:not([hidden])');
  assert.match(await visitor.textContent('#problem-text'), /missing on its server/);
  await visitor.close();
});

test('a browser without WebGPU says so in a sentence', async () => {
  const bare = await openBrowser(gpuFlags.map(() => '--disable-features=WebGPUService,WebGPU'));
  const lone = await plainPage(bare, server.origin);
  await lone.waitForSelector('#problem:not([hidden])');
  assert.match(await lone.textContent('#problem-text'), /WebGPU/);
  const refused = await tryLoad(lone, url);
  assert.equal(refused.code, 'device');
  assert.ok(!refused.phases.includes('download'));
  await bare.close();
});
