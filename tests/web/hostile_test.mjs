// Servers and manifests that mean harm, and storage that forgets: every loop of a download ends, in a sentence. A
// stand-in for the browser's storage holds files in memory.
import assert from 'node:assert/strict';
import {createHash} from 'node:crypto';
import {readFileSync} from 'node:fs';
import {beforeEach, mock, test} from 'node:test';
import {fileURLToPath} from 'node:url';
import {openModel, readManifest} from '../../web/lib/download.js';

const base = 'https://models.example/m/';
const shard = (name, bytes = 'weights') => ({filename: name, size: bytes.length, hash: createHash('sha256').update(bytes).digest('hex')});
const manifest = (...shards) => ({modelId: 'm', tokenizer: null, shards});

// A folder of the origin private file system. `forgets(name)` files are gone when they are looked for.
class Folder {
  files = new Map();
  folders = new Map();
  forgets = () => false;

  async getDirectoryHandle(name) {
    if (!this.folders.has(name)) this.folders.set(name, new Folder());
    const folder = this.folders.get(name);
    folder.forgets = this.forgets;
    return folder;
  }

  async getFileHandle(name, {create} = {}) {
    if (!this.files.has(name)) {
      if (!create) throw new DOMException(name, 'NotFoundError');
      this.files.set(name, new Uint8Array());
    }
    return this.handle(name);
  }

  handle(name) {
    const {files} = this;
    return {
      kind: 'file',
      getFile: async () => ({size: files.get(name).length, text: async () => new TextDecoder().decode(files.get(name))}),
      move: async (to) => {
        if (!this.forgets(to)) files.set(to, files.get(name));
        files.delete(name);
      },
      createSyncAccessHandle: async () => ({
        getSize: () => files.get(name).length,
        truncate: (size) => files.set(name, files.get(name).slice(0, size)),
        read: (out, {at}) => {
          const piece = files.get(name).subarray(at, at + out.length);
          out.set(piece);
          return piece.length;
        },
        write(bytes, {at}) {
          const grown = new Uint8Array(Math.max(files.get(name).length, at + bytes.length));
          grown.set(files.get(name));
          grown.set(bytes, at);
          files.set(name, grown);
          return bytes.length;
        },
        flush() {},
        close() {},
      }),
    };
  }

  async removeEntry(name) {
    if (!this.files.delete(name)) throw new DOMException(name, 'NotFoundError');
  }

  async* entries() {
    for (const name of [...this.files.keys()]) yield [name, this.handle(name)];
  }
}

let disk, served, requests;
const asked = (name) => requests.filter((path) => path === base + name).length;

beforeEach(() => {
  disk = new Folder();
  served = new Map();
  requests = [];
});
Object.defineProperty(globalThis, 'navigator', {value: {
  storage: {getDirectory: async () => disk, estimate: async () => ({quota: 1e9, usage: 0})},
  locks: {request: async (name, options, held) => held()},
}});
mock.method(globalThis, 'setTimeout', (work) => setImmediate(work));  // no pauses between tries
mock.method(globalThis, 'fetch', async (url, {headers} = {}) => {
  if (String(url).startsWith('file:')) return new Response(readFileSync(fileURLToPath(url)), {headers: {'content-type': 'application/wasm'}});
  requests.push(String(url));
  assert.ok(requests.length < 500, 'it fetches without end');
  const content = served.get(String(url).slice(base.length));
  if (typeof content === 'function') return content(headers ?? {});
  return content === undefined ? new Response('', {status: 404}) : new Response(content);
});
const refused = (promise) => promise.then(() => assert.fail('it was opened'), (error) => error);

test('names that are taken, doubled or no names are refused by name', () => {
  const other = /which is the name of another file/, bare = /without a plain name/;
  for (const [name, sentence] of [
    ['info.json', other], ['manifest.json', other], ['tokenizer.json', other], ['chat_template.jinja', other], ['a.bin.part', other],
    ['list.bin', other], ['twice.bin', /two shards named twice\.bin/],
    ['', bare], ['..', bare], ['a/b', bare], ['a\\b', bare], ['a\nb', bare], ['a\0', bare], [7, bare], [undefined, bare],
  ]) {
    const text = JSON.stringify({...manifest(shard('twice.bin'), {...shard(''), filename: name}), tensorsFile: 'list.bin'});
    assert.throws(() => readManifest(text, 'm'), (error) => error.code === 'format' && sentence.test(error.message), String(name));
  }
  for (const name of ['info.json', 'manifest.json', 'tokenizer.json', '../x', 'a.part', '']) {
    const text = JSON.stringify({...manifest(shard('a.bin')), tensorsFile: name});
    assert.throws(() => readManifest(text, 'm'), (error) => error.code === 'format' && /tensorsFile/.test(error.message), name);
  }
  for (const text of ['null', '7', '[]', '{"shards": [null]}', '{"shards": {}}', '{']) {
    assert.throws(() => readManifest(text, 'm'), (error) => error.code === 'format', text);
  }
  const many = manifest(...Array.from({length: 50_000}, (_, i) => ({...shard('', ''), filename: `shard_${i}`})));
  assert.equal(readManifest(JSON.stringify(many), 'm').shards.length, 50_000);
});

test('a shard named as our own files is never fetched', async () => {
  for (const name of ['info.json', 'manifest.json']) {
    served.set('manifest.json', JSON.stringify(manifest(shard(name)))).set('info.json', 'weights');
    assert.equal((await refused(openModel(base))).code, 'format');
    assert.ok(requests.every((url) => url === `${base}manifest.json`), requests.join());
  }
});

test('a sound model is fetched once, and then taken from storage', async () => {
  served.set('manifest.json', JSON.stringify(manifest(shard('a.bin'), shard('b%2f#?.bin', 'more'))));
  served.set('a.bin', 'weights').set('b%252f%23%3F.bin', 'more');
  for (const fetches of [1, 1]) {
    const files = await openModel(base);
    assert.equal(files.bytes, 11);
    assert.equal(asked('a.bin'), fetches);
    files.close();
  }
});

test('storage that forgets a file ends the load after two downloads', async () => {
  for (const lost of ['a.bin', 'info.json', 'manifest.json']) {
    disk = new Folder();
    disk.forgets = (name) => name === lost;
    requests = [];
    served.set('manifest.json', JSON.stringify(manifest(shard('a.bin')))).set('a.bin', 'weights');
    const error = await refused(openModel(base));
    assert.equal(error.code, 'file', error.message);
    assert.match(error.message, /does not keep it/);
    assert.ok(asked('a.bin') <= 2, `${lost}: ${asked('a.bin')} downloads`);
  }
});

test('a stored manifest that cannot be read does not stand in a better one\'s way', async () => {
  served.set('manifest.json', JSON.stringify(manifest(shard('a.bin')))).set('a.bin', 'weights');
  (await openModel(base)).close();
  const [stored] = disk.folders.get('doppler-models').folders.values();
  for (const damage of ['{', JSON.stringify(manifest(shard('info.json'))), 'null']) {
    stored.files.set('manifest.json', new TextEncoder().encode(damage));
    stored.files.set('info.json', new TextEncoder().encode(damage));
    requests = [];
    (await openModel(base)).close();
    assert.equal(asked('a.bin'), 1, damage);
  }
});

test('a server that begins anew every time is given up', async () => {
  const whole = 'weights that never come';
  served.set('manifest.json', JSON.stringify(manifest(shard('a.bin', whole))));
  let times = 0;
  served.set('a.bin', () => new Response(whole.slice(0, 5 + times++ % 2)));
  const error = await refused(openModel(base));
  assert.equal(error.code, 'network');
  assert.match(error.message, /broke off at \d+ of 23 bytes of a\.bin/);
  assert.ok(times < 20, `${times} requests`);
});

test('a manifest without end is refused', async () => {
  const piece = new Uint8Array(16 << 20);
  served.set('manifest.json', () => new Response(new ReadableStream({pull: (stream) => stream.enqueue(piece)})));
  const error = await refused(openModel(base));
  assert.equal(error.code, 'format');
  assert.match(error.message, /manifest\.json has more than 268435456 bytes/);
  assert.equal(requests.length, 1);
});
