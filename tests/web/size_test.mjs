// The engine is small enough to wait for on a phone.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {test} from 'node:test';
import {root} from './support.mjs';

// 400 kB take a phone with 10 Mbit/s a third of a second.
test('the engine is under 400 kB as a server sends it', () => {
  const bytes = readFileSync(join(root, 'web/dist/lib/doppler.wasm'));
  // Not Node's zlib: it is made for speed, and its files are larger than other programs' by a hundredth.
  const compressed = execFileSync('gzip', ['-9', '-c'], {input: bytes, maxBuffer: 2 ** 24});
  console.log(`${bytes.length} bytes, ${compressed.length} by gzip`);
  assert.ok(compressed.length < 400_000, `${compressed.length} bytes compressed`);
});
