// SHA-256 of bytes as they come, by the tiny WebAssembly module beside this file.
import {compiledOnce} from './compile.js';

const compiled = compiledOnce(new URL('./sha256.wasm', import.meta.url));

export class Sha256 {
  static async create() {
    const {exports} = await WebAssembly.instantiate(await compiled(), {});
    return new Sha256(exports);
  }

  constructor(exports) {
    this.exports = exports;
    this.room = new Uint8Array(exports.memory.buffer, exports.input() >>> 0, exports.room());
    this.reset();
  }

  reset() {
    this.exports.start();
  }

  update(bytes) {
    for (let at = 0; at < bytes.length; at += this.room.length) {
      const piece = bytes.subarray(at, at + this.room.length);
      this.room.set(piece);
      this.exports.update(piece.length);
    }
  }

  /** Lower-case hex. */
  finish() {
    this.exports.finish();
    return Array.from(this.room.subarray(0, 32), (byte) => byte.toString(16).padStart(2, '0')).join('');
  }
}
