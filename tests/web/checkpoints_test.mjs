// Six architectures give the native program's greedy tokens in the browser.
import assert from 'node:assert/strict';
import {after, before, test} from 'node:test';
import {readFileSync} from 'node:fs';
import {join} from 'node:path';
import {cleanUp, convert, native, openBrowser, plainPage, root, scratchFolder, startServer, tryLoad} from './support.mjs';

const checkpoints = ['gemma3-a', 'gemma3-b', 'gemma2-a', 'llama-a', 'qwen3-a', 'gptoss-a'];
const tokens = 5;
let server, page;

before(async () => {
  const folder = scratchFolder('models');
  server = await startServer(Object.fromEntries(checkpoints.map((name) => [name, convert(name, folder, '--quant', 'f32')])));
  page = await plainPage(await openBrowser(), server.origin);
});
after(cleanUp);

for (const name of checkpoints) {
  test(`${name} gives the native program's tokens`, async () => {
    const reference = JSON.parse(readFileSync(join(root, 'tests/data/models', name, 'reference.json'), 'utf8'));
    const expected = native(server.models[name], '--prompt-ids', reference.prompt_ids.join(','), '--max-tokens', String(tokens));
    const loaded = await tryLoad(page, `${server.origin}/models/${name}/`);
    assert.equal(loaded.info?.id, name, loaded.message);
    const result = await page.evaluate(async ([ids, maxTokens]) => {
      const answer = await model.generate({ids}, {maxTokens}).result;
      await model.unload();
      return answer;
    }, [reference.prompt_ids, tokens]);
    assert.deepEqual(result.ids, expected.token_ids);
  });
}
