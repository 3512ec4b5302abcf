// A synthetic model of Gemma 3 1B's shape loads with little memory: JavaScript's and WebAssembly's heaps together.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, openBrowser, plainPage, program, scratchFolder, startServer} from '../support.mjs';

after(cleanUp);

test('the heaps stay under 150 MB while a 1B model loads', {timeout: 900_000}, async () => {
  const model = join(scratchFolder('1b'), 'gemma-3-1b');
  execFileSync(program, ['synth', 'gemma-3-1b', model], {stdio: ['ignore', 'ignore', 'inherit']});
  const server = await startServer({big: model});
  const context = await openBrowser();
  const page = await plainPage(context, server.origin);
  // The worker's own JavaScript heap is asked for over the debugging protocol, while it works.
  const session = await context.newCDPSession(page);
  const workers = [];
  session.on('Target.attachedToTarget', ({sessionId, targetInfo}) => targetInfo.type === 'worker' && workers.push(sessionId));
  await session.send('Target.setAutoAttach', {autoAttach: true, waitForDebuggerOnStart: false, flatten: false});
  let next = 1;
  const answers = new Map();
  session.on('Target.receivedMessageFromTarget', ({message}) => {
    const {id, result} = JSON.parse(message);
    answers.get(id)?.(result);
    answers.delete(id);
  });
  const heapOf = (sessionId) => new Promise((resolve) => {
    const id = next++;
    answers.set(id, resolve);
    setTimeout(() => resolve(null), 5000);
    session.send('Target.sendMessageToTarget', {sessionId, message: JSON.stringify({id, method: 'Runtime.getHeapUsage'})}).catch(() => resolve(null));
  });
  await page.evaluate(async (url) => {
    const {Doppler} = await import('/lib/index.js');
    globalThis.done = Doppler.load(url, {context: 512, onProgress: (progress) => globalThis.progress = progress})
      .then(async (loaded) => globalThis.stats = await loaded.stats(), (error) => globalThis.failure = error.message);
  }, `${server.origin}/models/big/`);
  let largest = 0;
  let samples = 0;
  for (let busy = true; busy;) {
    busy = await page.evaluate(() => !globalThis.stats && !globalThis.failure);
    const own = await session.send('Runtime.getHeapUsage');
    for (const worker of workers) {
      const heap = await heapOf(worker);
      if (!heap) continue;
      ++samples;
      // backingStorageSize holds array buffers, the memory of WebAssembly among them.
      largest = Math.max(largest, own.usedSize + (own.backingStorageSize ?? 0) + heap.usedSize + (heap.backingStorageSize ?? 0));
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.equal(await page.evaluate(() => globalThis.failure), undefined);
  const stats = await page.evaluate(() => globalThis.stats);
  console.log(`heaps at most ${(largest / 1e6).toFixed(0)} MB over ${samples} samples; WebAssembly ${(stats.heapBytes / 1e6).toFixed(0)} MB at the end; ${(stats.bufferBytes / 1e6).toFixed(0)} MB on the GPU`);
  assert.ok(samples > 5, `only ${samples} samples`);
  assert.ok(Math.max(largest, stats.heapBytes) < 150e6, `${largest} bytes`);
});
