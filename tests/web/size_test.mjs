// The engine is small enough to wait for on a phone.
import assert from 'node:assert/strict';
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {test} from 'node:test';
import {gzipSync} from 'node:zlib';
import {root} from './support.mjs';

test('the engine is under 1 MB, and under 350 kB as a server sends it', () => {
  const bytes = readFileSync(join(root, 'web/dist/lib/doppler.wasm'));
  const compressed = gzipSync(bytes, {level: 9});
  console.log(`${bytes.length} bytes, ${compressed.length} by gzip`);
  assert.ok(bytes.length < 1_000_000, `${bytes.length} bytes`);
  assert.ok(compressed.length < 350_000, `${compressed.length} bytes compressed`);
});
