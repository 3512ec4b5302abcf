// Recording and submitting a token from the page costs at most twice what it costs natively: it is as many dispatches, and
// each is timed on the same machine in the same minute. Medians of several runs, because others use the machine too.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {after, test} from 'node:test';
import {cleanUp, convert, openBrowser, plainPage, program, scratchFolder, startServer, tryLoad} from './support.mjs';

after(cleanUp);

const runs = 5, tokens = 8;
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

test('a page records at most twice as slowly as the native program', {timeout: 120_000}, async (t) => {
  const folder = convert('llama-a', scratchFolder('models'), '--quant', 'f32');
  // Both use the software GPU, whatever else the machine has.
  const env = {...process.env, VK_ICD_FILENAMES: '/usr/lib/chromium/vk_swiftshader_icd.json'};
  const profile = JSON.parse(execFileSync(program, ['bench', 'inference', folder, '--backend', 'webgpu', '--profile', '--json',
    '--prompt-tokens', '4', '--tokens', String(tokens), '--runs', '1'], {encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], env}));
  const native = (profile.encode_us + profile.submit_us) / profile.dispatches;  // medians themselves
  const server = await startServer({model: folder});
  const page = await plainPage(await openBrowser(), server.origin);
  const loaded = await tryLoad(page, `${server.origin}/models/model/`);
  assert.equal(loaded.info?.id, 'llama-a', loaded.message);
  const costs = [];
  for (let run = 0; run < runs; ++run) {
    const {recordMs, dispatches, decodeDispatches} = await page.evaluate((count) => model.bench({ids: [1, 2, 3, 4], tokens: count, decodeBatch: count}), tokens);
    assert.equal(decodeDispatches, tokens * profile.dispatches, 'a token takes another number of dispatches than natively');
    costs.push(recordMs * 1000 / dispatches);
  }
  t.diagnostic(`a dispatch: ${median(costs).toFixed(2)} µs in the page, ${native.toFixed(2)} µs natively`);
  assert.ok(median(costs) > 0, 'the page measures nothing');
  assert.ok(median(costs) <= 2 * native, `${costs.map((us) => us.toFixed(2))} µs in the page, ${native.toFixed(2)} µs natively`);
});
