// Regular expressions and normal forms for the engine, with the browser's own RegExp and String.normalize.
import {DopplerError} from './errors.js';

/** What the matches of one call of the engine may take together, and what one of them may take alone. */
export const textSeconds = 10;
const signEvery = 1000;  // milliseconds

// All that is not white space to Oniguruma, as a class within a class.
const notSpace = '[^\\u{9}-\\u{d}\\u{85}\\p{Z}]';

/**
 * The expression that src/tokenizer/regex.cpp writes for PCRE2, for RegExp with the flag v. There every character
 * but letters and digits is spelled \x{…}, and the constructs are few.
 */
export function regExpFromPcre(pattern) {
  let out = '';
  let at = 0;
  let atom = 0;        // where in `out` the last thing that can be repeated begins
  let atomic = 0;      // groups that must not give back what they matched
  const groups = [];
  const escape = (inClass) => {
    if (pattern[at + 1] === 'x') {
      const end = pattern.indexOf('}', at);
      const code = pattern.slice(at + 3, end);
      at = end + 1;
      return `\\u{${code}}`;
    }
    if (pattern[at + 1] === 'p') {
      const end = pattern.indexOf('}', at);
      const name = pattern.slice(at + 3, end).replace(/^sc:/, 'Script=');
      at = end + 1;
      return `\\p{${name}}`;
    }
    const letter = pattern[at + 1];
    at += 2;
    if (letter === 'S' && inClass) return notSpace;
    if (letter === 'A') return '(?<![\\s\\S])';
    if (letter === 'z') return '(?![\\s\\S])';
    if (letter === 'Z') return '(?=\\n?(?![\\s\\S]))';
    throw new SyntaxError(`the escape \\${letter}`);
  };
  // A group that keeps what it matched: a look-ahead matches it, and the reference takes all of it.
  const keep = (start) => {
    const name = `a${atomic++}`;
    out = `${out.slice(0, start)}(?:(?=(?<${name}>${out.slice(start)}))\\k<${name}>)`;
  };
  const possessive = () => {
    if (pattern[at] === '+') {
      ++at;
      keep(atom);
    } else if (pattern[at] === '?') {
      out += pattern[at++];
    }
  };
  let wrap = '';
  if (pattern.startsWith('(?i)')) {
    wrap = '(?i:';
    at = 4;
  }
  while (at < pattern.length) {
    const c = pattern[at];
    if (c === '\\') {
      atom = out.length;
      out += escape(false);
    } else if (c === '[') {
      atom = out.length;
      out += c;
      ++at;
      while (pattern[at] !== ']') out += pattern[at] === '\\' ? escape(true) : pattern[at++];
      out += ']';
      ++at;
    } else if (c === '(') {
      const opening = /^\((\?(:|=|!|>|<=|<!|i:|-i:))/.exec(pattern.slice(at, at + 5))?.[0];
      if (!opening) throw new SyntaxError('a group');
      groups.push({start: out.length, atomic: opening === '(?>'});
      out += opening === '(?>' ? '(?:' : opening;
      at += opening.length;
    } else if (c === ')') {
      const group = groups.pop();
      out += c;
      ++at;
      if (group.atomic) keep(group.start);
      atom = group.start;
    } else if (c === '*' || c === '+' || c === '?') {
      out += c;
      ++at;
      possessive();
    } else if (c === '{') {
      const end = pattern.indexOf('}', at) + 1;
      out += pattern.slice(at, end);
      at = end;
      if (pattern[at] === '?') out += pattern[at++];
    } else {
      atom = out.length;
      ++at;
      // Lines end at \n alone; RegExp's own ^, $ and . know more kinds of line ends.
      if (c === '^') out += '(?:(?<![\\s\\S])|(?<=\\n)(?=[\\s\\S]))';
      else if (c === '$') out += '(?![^\\n])';
      else if (c === '.') out += '[^\\n]';
      else out += c;
    }
  }
  return wrap ? `${wrap}${out})` : out;
}

// A text in both encodings: bytes outside, UTF-16 inside.
class HeldText {
  constructor(bytes) {
    this.text = new TextDecoder('utf-8', {ignoreBOM: true}).decode(bytes);
    if (this.text.length === bytes.length) return;
    this.toUnit = new Uint32Array(bytes.length + 1);
    this.toByte = new Uint32Array(this.text.length + 1);
    let unit = 0;
    for (let byte = 0; byte < bytes.length;) {
      const lead = bytes[byte];
      const length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
      this.toUnit[byte] = unit;
      this.toByte[unit] = byte;
      if (length === 4) this.toByte[unit + 1] = byte;
      unit += length === 4 ? 2 : 1;
      byte += length;
    }
    this.toUnit[bytes.length] = unit;
    this.toByte[unit] = bytes.length;
  }
}

// Patterns come with a model, RegExp has no limit of steps, and a match cannot be left before it ends. So the time of
// all matches between two turns of the event loop is bounded here; whoever can end this thread hears watch(true) before
// a match, at most once a second, and watch(false) when the thread turns again, and bounds a single match.
class Patience {
  constructor({seconds = textSeconds, watch = () => {}}) {
    Object.assign(this, {seconds, watch, spent: 0, told: null});
  }

  match(regex, text) {
    const begin = performance.now();
    if (this.told === null) {
      queueMicrotask(() => {
        this.told = null;
        this.watch(false);
      });
      this.spent = 0;
    }
    if (this.told === null || begin - this.told > signEvery) {
      this.told = begin;
      this.watch(true);
    }
    const gaveUp = (why) => new DopplerError('unsupported', `a regular expression of the tokenizer gave up on this text: ${why}`);
    let match;
    try {
      match = regex.exec(text);
    } catch (error) {
      throw gaveUp(error.message);
    }
    this.spent += performance.now() - begin;
    if (this.spent > 1000 * this.seconds) throw gaveUp(`it took more than ${this.seconds} s. Take a shorter text, or another model`);
    return match;
  }
}

/**
 * @param {() => {bytes: Uint8Array, words: Uint32Array}} memory
 * @param {{seconds?: number, watch?: (busy: boolean) => void}} limits
 */
export function textHost(memory, limits = {}) {
  const patience = new Patience(limits);
  const expressions = new Map();
  const texts = new Map();
  let next = 0;
  let normal = [];
  const string = (at, length) => new TextDecoder().decode(memory().bytes.subarray(at, at + length));
  return {
    regex_compile(at, length) {
      try {
        expressions.set(next, new RegExp(regExpFromPcre(string(at >>> 0, length)), 'gv'));
      } catch {
        return -1;
      }
      return next++;
    },
    regex_free(handle) {
      expressions.delete(handle);
    },
    text_open(at, length) {
      at >>>= 0;
      texts.set(next, new HeldText(memory().bytes.subarray(at, at + length)));
      return next++;
    },
    text_close(handle) {
      texts.delete(handle);
    },
    regex_find(expression, handle, from, found) {
      const held = texts.get(handle);
      const regex = expressions.get(expression);
      regex.lastIndex = held.toUnit ? held.toUnit[from] : from;
      const match = patience.match(regex, held.text);
      if (!match) return 0;
      const begin = match.index, end = begin + match[0].length;
      const {words} = memory();
      const place = (found >>> 0) / 4;
      words[place] = held.toByte ? held.toByte[begin] : begin;
      words[place + 1] = held.toByte ? held.toByte[end] : end;
      return 1;
    },
    normalize(at, count, form) {
      const codes = memory().words.subarray((at >>> 0) / 4, (at >>> 0) / 4 + count);
      let text = '';
      for (const code of codes) text += String.fromCodePoint(code);
      normal = Array.from(text.normalize(['NFC', 'NFD', 'NFKC', 'NFKD'][form]), (c) => c.codePointAt(0));
      return normal.length;
    },
    normalize_take(at) {
      memory().words.set(normal, (at >>> 0) / 4);
      normal = [];
    },
  };
}
