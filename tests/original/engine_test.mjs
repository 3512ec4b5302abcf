// The JavaScript engine, in Chromium on a software GPU, speaks our greedy tokens from models/tiny.
import assert from 'node:assert/strict';
import {copyFileSync, existsSync} from 'node:fs';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {build, checkout, doppler, root, scratch} from './support.mjs';

if (!existsSync('/usr/bin/chromium') || !existsSync(join(build, 'playwright'))) {
  console.log('there is no Chromium, or no playwright-core: tools/setup.sh test');
  process.exit(77);
}
const {cleanUp, openBrowser, startServer} = await import('../web/support.mjs');
after(cleanUp);

const tiny = join(root, 'models/tiny');

// The same weights in f32, number for number: its kernel for Q6_K needs a GPU with f16, which software is not.
function inFloats() {
  const folder = scratch(), file = join(folder, 'tiny.gguf'), target = join(folder, 'tiny');
  doppler('convert', tiny, file, '--quant', 'f32');
  doppler('convert', file, target, '--quant', 'f32');
  copyFileSync(join(tiny, 'tokenizer.json'), join(target, 'tokenizer.json'));
  return target;
}

test('the same greedy tokens', async (t) => {
  const page = await (await openBrowser()).newPage();
  const server = await startServer({floats: inFloats()}, checkout);
  await page.route(`${server.origin}/blank`, (route) => route.fulfill({contentType: 'text/html', body: '<!doctype html>'}));
  await page.goto(`${server.origin}/blank`);
  const hasF16 = await page.evaluate(async () => (await navigator.gpu.requestAdapter()).features.has('shader-f16'));
  t.diagnostic(hasF16 ? 'models/tiny as it is' : 'models/tiny in f32: the adapter has no f16');
  await page.evaluate(async (url) => {
    const {load} = await import('/src/client/doppler-api.browser.js');
    globalThis.model = await load({url});
  }, `${server.origin}/models/${hasF16 ? 'tiny' : 'floats'}`);
  for (const [prompt, maxTokens] of [['The color of the sky is', 4], ['Once upon a time', 16]]) {
    const {tokenIds} = await page.evaluate(async ([text, count]) => {
      await globalThis.model.resetGenerationState();  // else it goes on behind the last answer
      return globalThis.model.generateWithEvidence(text, {
        maxTokens: count, temperature: 0, topK: 1, repetitionPenalty: 1, useChatTemplate: false,
      });
    }, [prompt, maxTokens]);
    const ours = JSON.parse(doppler('run', tiny, '--raw', prompt, '--max-tokens', String(maxTokens), '--temperature', '0', '--backend', 'ref', '--json'));
    assert.ok(ours.token_ids.length > 1);
    assert.deepEqual(tokenIds.slice(0, ours.token_ids.length), ours.token_ids, prompt);
  }
});
