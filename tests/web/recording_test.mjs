// Recording and submitting a token from the page costs at most twice what it costs natively: it is as many dispatches, and
// both are timed in turns on the same machine. What else the machine does can only lengthen a run (the software GPU takes
// both cores itself), so that each side's cost is its shortest run.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {after, test} from 'node:test';
import {cleanUp, convert, openBrowser, plainPage, program, scratchFolder, startServer, tryLoad} from './support.mjs';

after(cleanUp);

const rounds = 3, pageRuns = 3, tokens = 8;
const list = (costs) => `${costs.map((us) => us.toFixed(2)).join(', ')} µs`;

test('a page records at most twice as slowly as the native program', {timeout: 300_000}, async (t) => {
  const folder = convert('llama-a', scratchFolder('models'), '--quant', 'f32');
  // Both use the software GPU, whatever else the machine has.
  const env = {...process.env, VK_ICD_FILENAMES: '/usr/lib/chromium/vk_swiftshader_icd.json'};
  const profile = () => JSON.parse(execFileSync(program, ['bench', 'inference', folder, '--backend', 'webgpu', '--profile', '--json',
    '--prompt-tokens', '4', '--tokens', String(tokens), '--runs', '1'], {encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'], env}));
  const server = await startServer({model: folder});
  const page = await plainPage(await openBrowser(), server.origin);
  const loaded = await tryLoad(page, `${server.origin}/models/model/`);
  assert.equal(loaded.info?.id, 'llama-a', loaded.message);
  const inPage = [], natively = [];  // microseconds per dispatch
  for (let round = 0; round < rounds; ++round) {
    const native = profile();  // its figures are medians over the tokens; a run in the page is one figure
    natively.push((native.encode_us + native.submit_us) / native.dispatches);
    for (let run = 0; run < pageRuns; ++run) {
      const {recordMs, dispatches, decodeDispatches} = await page.evaluate((count) => model.bench({ids: [1, 2, 3, 4], tokens: count, decodeBatch: count}), tokens);
      assert.equal(decodeDispatches, tokens * native.dispatches, 'a token takes another number of dispatches than natively');
      inPage.push(recordMs * 1000 / dispatches);
    }
  }
  const measured = `a dispatch: ${list(inPage)} in the page, ${list(natively)} natively`;
  t.diagnostic(measured);
  assert.ok(Math.min(...inPage) > 0, 'the page measures nothing');
  assert.ok(Math.min(...inPage) <= 2 * Math.min(...natively), measured);
});
