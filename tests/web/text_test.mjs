// The browser's RegExp behind the tokenizers: the translation of every construct, without a browser.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {regExpFromPcre, textHost} from '../../web/lib/host_text.js';

const all = (pattern, text) => [...text.matchAll(new RegExp(regExpFromPcre(pattern), 'gv'))].map(([match]) => match);

test('the translation spells what RegExp has no word for', () => {
  assert.equal(regExpFromPcre('\\x{20}?[\\p{L}\\x{1e900}-\\x{1e943}]+'), '\\u{20}?[\\p{L}\\u{1e900}-\\u{1e943}]+');
  assert.equal(regExpFromPcre('[^\\p{sc:Han}]'), '[^\\p{Script=Han}]');
  assert.equal(regExpFromPcre('a++'), '(?:(?=(?<a0>a+))\\k<a0>)');
  assert.equal(regExpFromPcre('(?>ab|a)b'), '(?:(?=(?<a0>(?:ab|a)))\\k<a0>)b');
  assert.throws(() => regExpFromPcre('(?<name>a)'), SyntaxError);
});

test('matches are PCRE2\'s', () => {
  assert.deepEqual(all('(?>ab|a)b', 'ab abb'), ['abb']);
  assert.deepEqual(all('[a]{1,3}?[\\x{62}]', 'aaab'), ['aaab']);
  assert.deepEqual(all('^.', 'x\ny\r\nz\n'), ['x', 'y', 'z']);
  assert.deepEqual(all('(?i)\\x{27}s', 'It\'S'), ['\'S']);
  assert.deepEqual(all('[\\x{9}-\\x{d}\\x{85}\\p{Z}]+(?![\\S\\x{180e}])', 'a  b   '), [' ', '   ']);
});

// A host with `text` in its memory: find() looks for the pattern as often as the engine would.
function hostFor(pattern, text, limits) {
  const bytes = new Uint8Array(1 << 16);
  const put = (at, string) => new TextEncoder().encodeInto(string, bytes.subarray(at)).written;
  const host = textHost(() => ({bytes, words: new Uint32Array(bytes.buffer)}), limits);
  const regex = host.regex_compile(1024, put(1024, pattern));
  const held = host.text_open(4096, put(4096, text));
  return (from = 0) => host.regex_find(regex, held, from, 0);
}

test('the matches of one call are bounded together', async (t) => {
  let clock = 0;
  t.mock.method(performance, 'now', () => ++clock);  // a millisecond passes between any two looks: one per match
  const find = hostFor('a', 'a', {seconds: 0.05});
  const times = (count) => {
    for (let i = 0; i < count; ++i) assert.equal(find(), 1);
  };
  times(50);
  assert.throws(find, (error) => error.code === 'unsupported' && /gave up on this text: it took more than 0\.05 s/.test(error.message));
  await null;
  times(50);  // the next call has its time for itself
});

test('who can end the thread hears when matches begin and when the thread turns again', async () => {
  const heard = [];
  const find = hostFor('a', 'ba', {watch: (busy) => heard.push(busy)});
  for (let i = 0; i < 100; ++i) find();
  assert.deepEqual(heard, [true]);
  await null;
  assert.deepEqual(heard, [true, false]);
  find();
  await null;
  assert.deepEqual(heard, [true, false, true, false]);
});
