// A person's visits to the page: the first one, the next without a network, and what they do in between.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {join} from 'node:path';
import {cleanUp, native, openBrowser, plainPage, root, shardBytes, startServer} from './support.mjs';

const tiny = join(root, 'models/tiny');
const question = 'Tell me a story.';
const tokens = 3;
let server, context, page;

before(async () => {
  server = await startServer();
  context = await openBrowser();
  page = await plainPage(context, server.origin);
  // Greedy and short, as a person would set it.
  await page.click('#open-settings');
  await page.fill('#temperature', '0');
  await page.fill('#maxTokens', String(tokens));
  await page.fill('#context', '256');
  await page.locator('#context').blur();
  await page.keyboard.press('Escape');
});
after(cleanUp);

const ask = async (text) => {
  await page.fill('#prompt', text);
  await page.keyboard.press('Enter');
  await page.waitForSelector('#chat li.assistant:last-child:not(.busy) small:not([hidden])', {timeout: 240_000});
  return page.textContent('#chat li.assistant:last-child .text');
};

test('the first visit downloads, verifies and answers like the native program', async () => {
  const expected = native(tiny, question, '--max-tokens', String(tokens));
  await page.click('#welcome button:has-text("Load")');
  await page.waitForSelector('.chip.ready', {timeout: 60_000});
  assert.equal(server.bytesOf(/shard_\d/), shardBytes(tiny));
  assert.equal(await ask(question), expected.text);
  const note = await page.textContent('#chat li.assistant:last-child small');
  assert.match(note, /3 tokens · [\d.]+ tok\/s · first token after .* · cut at the longest answer/);
  const stored = await page.evaluate(async () => (await import('/lib/index.js')).Doppler.stored());
  assert.equal(stored.length, 1);
  assert.equal(stored[0].complete, true);
  assert.ok(stored[0].bytes >= shardBytes(tiny));
});

test('the ids of a raw prompt are the native program\'s, in OpenAI\'s shape too', async () => {
  const expected = native(tiny, '--raw', 'The color of the sky is', '--max-tokens', '3');
  const answer = await page.evaluate(async () => {
    const result = await doppler.model.generate('The color of the sky is', {maxTokens: 3}).result;
    const stream = await doppler.model.chat.completions.create({
      messages: [{role: 'user', content: 'Hi'}], stream: true, temperature: 0, max_tokens: 2, stream_options: {include_usage: true},
    });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return {...result, chunks};
  });
  assert.deepEqual(answer.promptIds, expected.prompt_token_ids);
  assert.deepEqual(answer.ids, expected.token_ids);
  assert.equal(answer.text, expected.text);
  assert.equal(answer.chunks[0].choices[0].delta.role, 'assistant');
  assert.equal(answer.chunks.at(-2).choices[0].finish_reason, 'length');
  assert.equal(answer.chunks.at(-1).usage.completion_tokens, 2);
});

test('a refused request leaves the model usable', async () => {
  const result = await page.evaluate(async () => {
    const refused = await doppler.model.generate({ids: Array(300).fill(5)}, {maxTokens: 1}).result.catch((e) => e.code + ': ' + e.message);
    const strange = await doppler.model.generate('a', {temperature: -1}).result.catch((e) => e.code);
    return {refused, strange, ids: await doppler.model.encode('Once upon a time')};
  });
  assert.match(result.refused, /^usage: the prompt is longer than the context/);
  assert.equal(result.strange, 'usage');
  assert.deepEqual(result.ids, [2, 502, 503, 361, 479]);
});

test('the chart shows what every layer makes of a prompt', async () => {
  await page.click('#open-inspect');
  await page.fill('#inspect-prompt', 'Hi');
  await page.click('#inspect-form button');
  await page.waitForSelector('#chart svg polyline', {timeout: 240_000});
  assert.equal(await page.locator('#chart polyline').count(), 4);
  assert.equal(await page.locator('#chart circle').count(), 4 * 8);
  assert.match(await page.textContent('#inspect-next'), /tokens\. Likely next: “.+” [\d.]+ %/);
  await page.keyboard.press('Escape');
});

test('an answer stops when told to', async () => {
  await page.click('#open-settings');
  await page.fill('#maxTokens', '200');
  await page.locator('#maxTokens').blur();
  await page.keyboard.press('Escape');
  await page.fill('#prompt', 'And then?');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('#chat li.busy .text')?.textContent.length > 0, null, {timeout: 120_000});
  await page.click('#stop');
  await page.waitForSelector('#send:not([hidden])', {timeout: 60_000});
  assert.match(await page.textContent('#chat li.assistant:last-child small'), /stopped/);
  assert.equal(await page.locator('#chat li.busy').count(), 0);
});

test('the second visit needs no network: page, model and conversation are there', async () => {
  const said = await page.locator('#chat li').allTextContents();
  await page.evaluate(() => navigator.serviceWorker.ready);
  await server.close();
  await page.reload();
  await page.waitForSelector('.chip.ready', {timeout: 60_000});
  assert.deepEqual(await page.locator('#chat li').allTextContents(), said);
  assert.equal(await page.evaluate(() => doppler.model.info.offline), true);
  assert.equal(await page.evaluate(() => fetch('/models.json', {cache: 'no-store'}).then(() => 'up', () => 'down')), 'up');  // from the service worker
  assert.equal(await page.evaluate(() => fetch('/models/tiny/manifest.json').then(() => 'up', () => 'down')), 'down');
  const expected = native(tiny, '--raw', 'Once upon a time', '--max-tokens', '2');
  const ids = await page.evaluate(async () => (await doppler.model.generate('Once upon a time', {maxTokens: 2}).result).ids);
  assert.deepEqual(ids, expected.token_ids);
  await server.reopen();
});

test('a lost GPU is told, the conversation stays, and the model can be loaded again', async () => {
  const said = await page.locator('#chat li').allTextContents();
  await page.evaluate(() => doppler.model.link.request('lose'));
  await page.waitForSelector('#problem:not([hidden])');
  assert.match(await page.textContent('#problem-text'), /^The GPU was lost/);
  assert.deepEqual(await page.locator('#chat li').allTextContents(), said);
  const before = server.bytesOf(/shard_\d/);
  await page.click('#problem-action');
  await page.waitForSelector('.chip.ready', {timeout: 60_000});
  assert.equal(server.bytesOf(/shard_\d/), before);
});

test('a dead worker is told, and the model can be loaded again', async () => {
  await page.evaluate(() => doppler.model.link.worker.dispatchEvent(new ErrorEvent('error', {message: 'out of memory'})));
  await page.waitForSelector('#problem:not([hidden])');
  assert.match(await page.textContent('#problem-text'), /^The engine's worker stopped: out of memory/);
  await page.click('#problem-action');
  await page.waitForSelector('.chip.ready', {timeout: 60_000});
});

test('a stored model can be deleted', async () => {
  await page.click('#open-models');
  await page.click('#stored button:has-text("Delete")');
  await page.waitForSelector('#stored li:has-text("Nothing yet")');
  assert.deepEqual(await page.evaluate(async () => (await import('/lib/index.js')).Doppler.stored()), []);
});
