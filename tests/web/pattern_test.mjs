// A tokenizer whose pattern never comes to an end: the page stays alive, says so, and loads again.
import assert from 'node:assert/strict';
import {cpSync, readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, openBrowser, plainPage, root, scratchFolder, startServer, tryLoad} from './support.mjs';

after(cleanUp);

test('a match without end is ended with its worker, and the model can be loaded again', {timeout: 120_000}, async () => {
  const folder = join(scratchFolder('pattern'), 'evil');
  cpSync(join(root, 'models/tiny'), folder, {recursive: true});
  const path = join(folder, 'tokenizer.json');
  const tokenizer = JSON.parse(readFileSync(path, 'utf8'));
  tokenizer.pre_tokenizer = {type: 'Split', pattern: {Regex: '(a+)+b'}, behavior: 'Isolated', invert: false};
  writeFileSync(path, JSON.stringify(tokenizer));
  const server = await startServer({evil: folder});
  const page = await plainPage(await openBrowser(), server.origin);
  for (const round of [1, 2]) {
    const loaded = await tryLoad(page, `${server.origin}/models/evil/`, {textSeconds: 1});
    assert.equal(loaded.info?.id, 'tiny', loaded.message);
    const seen = await page.evaluate(async () => {
      const model = globalThis.model;
      const harmless = (await model.encode('Once upon a time')).length;
      const error = await model.encode('a'.repeat(60)).then(() => ({}), ({code, message}) => ({code, message}));
      return {harmless, ...error, lost: (await model.lost).message, usable: await model.usable()};
    });
    assert.ok(seen.harmless > 1, `round ${round}`);
    assert.equal(seen.code, 'unsupported');
    assert.match(seen.message, /a regular expression of the tokenizer gave up on this text: it took more than 1 s.*load the model again/);
    assert.equal(seen.lost, seen.message);
    assert.equal(seen.usable, false);
  }
});
