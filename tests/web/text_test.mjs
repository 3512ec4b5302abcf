// The browser's RegExp behind the tokenizers: the translation of every construct, without a browser.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {regExpFromPcre} from '../../web/lib/host_text.js';

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
