// A synthetic model of Gemma 3 1B's shape loads with little memory: JavaScript's and WebAssembly's heaps together.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, openBrowser, plainPage, program, scratchFolder, startServer} from '../support.mjs';
import {Heaps} from '../../../web/tools/heaps.mjs';

after(cleanUp);

test('the heaps stay under 150 MB while a 1B model loads', {timeout: 900_000}, async () => {
  const model = join(scratchFolder('1b'), 'gemma-3-1b');
  execFileSync(program, ['synth', 'gemma-3-1b', model], {stdio: ['ignore', 'ignore', 'inherit']});
  const server = await startServer({big: model});
  const context = await openBrowser();
  const page = await plainPage(context, server.origin);
  const heaps = await Heaps.watch(context, page);
  const stats = await heaps.during(page.evaluate(async (url) => {
    const {Doppler} = await import('/lib/index.js');
    return (await Doppler.load(url, {context: 512})).stats();
  }, `${server.origin}/models/big/`));
  console.log(`heaps at most ${(heaps.largest / 1e6).toFixed(0)} MB over ${heaps.samples} samples; WebAssembly ${(stats.heapBytes / 1e6).toFixed(0)} MB at the end; ${(stats.bufferBytes / 1e6).toFixed(0)} MB on the GPU`);
  assert.ok(heaps.samples > 5, `only ${heaps.samples} samples`);
  assert.ok(Math.max(heaps.largest, stats.heapBytes) < 150e6, `${heaps.largest} bytes`);
});
