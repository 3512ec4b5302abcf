// `doppler bench inference --surface browser`: the native program's workload, in Chromium, with a profile that is kept.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {join} from 'node:path';
import {after, test} from 'node:test';
import {cleanUp, convert, program, scratchFolder} from './support.mjs';

after(cleanUp);

test('the bench runs in a browser, cold and then from what it has kept', {timeout: 240_000}, () => {
  const folder = convert('llama-a', scratchFolder('models'), '--quant', 'f32');
  const profile = join(scratchFolder('profile'), 'kept');
  const bench = () => JSON.parse(execFileSync(program, ['bench', 'inference', folder, '--surface', 'browser', '--json', '--profile-dir',
    profile, '--prompt-tokens', '5', '--tokens', '7', '--runs', '2'], {encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit']}));
  const cold = bench();
  assert.equal(cold.surface, 'browser');
  assert.ok(cold.load.cold_ms > 0 && cold.load.warm_ms > 0);
  assert.equal(cold.decode_tok_s.runs.length, 2);
  assert.ok(cold.decode_tok_s.median > 0 && cold.prefill_tok_s.median > 0);
  assert.equal(bench().load.cold_ms, null, 'the second bench read the model from the network');
});
