// The WebAssembly engine with its hosts: one instance, one call at a time.
import {DopplerError} from './errors.js';
import {GpuHost} from './host_gpu.js';
import {textHost} from './host_text.js';

/**
 * @typedef {object} ModelFiles what the engine reads a model from
 * @property {(name: string) => number} size -1 where there is no such file
 * @property {(name: string, offset: number, out: Uint8Array) => void} read
 */

// The little of WASI that the C++ library asks for.
function wasi(memory) {
  const success = 0, badFile = 8;
  let line = '';
  return {
    environ_get: () => success,
    environ_sizes_get: (count, size) => {
      memory().words[(count >>> 0) / 4] = 0;
      memory().words[(size >>> 0) / 4] = 0;
      return success;
    },
    clock_time_get: (id, precision, at) => {
      // WASI knows no time zones, so the calendar's clock (0) tells the local time.
      const now = id === 0 ? Date.now() - new Date().getTimezoneOffset() * 60000 : performance.now();
      new DataView(memory().bytes.buffer).setBigUint64(at >>> 0, BigInt(Math.round(now * 1e6)), true);
      return success;
    },
    random_get: (at, length) => {
      crypto.getRandomValues(memory().bytes.subarray(at >>> 0, (at >>> 0) + length));
      return success;
    },
    fd_close: () => badFile,
    fd_seek: () => badFile,
    fd_prestat_get: () => badFile,
    fd_prestat_dir_name: () => badFile,
    fd_fdstat_get: () => badFile,
    fd_write: (fd, list, count, written) => {
      const {words, bytes} = memory();
      let total = 0;
      for (let i = 0; i < count; ++i) {
        const at = words[(list >>> 0) / 4 + 2 * i], length = words[(list >>> 0) / 4 + 2 * i + 1];
        line += new TextDecoder().decode(bytes.subarray(at, at + length));
        total += length;
      }
      const lines = line.split('\n');
      line = lines.pop();
      for (const text of lines) console.error(text);
      words[(written >>> 0) / 4] = total;
      return success;
    },
    proc_exit: (code) => {
      throw new DopplerError('internal', `the engine ended with code ${code}`);
    },
  };
}

export class Engine {
  /**
   * @param {WebAssembly.Module} module
   * @param {{gpu?: GPU, text?: object}} options `text`: the limits of host_text.js
   */
  static async create(module, {gpu, text} = {}) {
    if (typeof WebAssembly.Suspending !== 'function') {
      throw new DopplerError('unsupported', 'this browser cannot suspend WebAssembly (JSPI). Use a current Chrome or Edge');
    }
    const engine = new Engine(gpu);
    await engine.instantiate(module, text);
    return engine;
  }

  constructor(gpu) {
    this.queue = Promise.resolve();
    this.broken = null;      // the error after which the instance may not be used again
    this.files = null;
    this.onPiece = () => true;
    this.onTap = () => {};   // (step, values, tokens, position), of steps that are looked at
    let views = {};
    const memory = () => {
      const {buffer} = this.exports.memory;
      if (views.buffer !== buffer) {
        views = {buffer, bytes: new Uint8Array(buffer), words: new Uint32Array(buffer), doubles: new Float64Array(buffer)};
      }
      return views;
    };
    this.memory = memory;
    this.gpu = new GpuHost(gpu, memory);
  }

  async instantiate(module, text) {
    const {memory} = this;
    const string = (at, length) => new TextDecoder().decode(memory().bytes.subarray(at >>> 0, (at >>> 0) + length));
    const gpu = this.gpu.imports();
    const waiting = Object.fromEntries(
      Object.entries(gpu.waiting).map(([name, call]) => [name, new WebAssembly.Suspending(call)]));
    const host = {
      fail: (code, at, length) => {
        throw DopplerError.fromEngine(code, string(at, length));
      },
      file_size: (name, length) => this.files?.size(string(name, length)) ?? -1,
      file_read: (name, length, offset, out, bytes) => {
        out >>>= 0;
        this.files.read(string(name, length), offset, memory().bytes.subarray(out, out + bytes));
      },
      piece: (at, length, index) => (this.onPiece(string(at, length), index) ? 1 : 0),
      tap: (name, length, at, values, tokens, position) => {
        const begin = (at >>> 0) / 4;
        this.onTap(string(name, length), new Float32Array(memory().buffer).slice(begin, begin + values), tokens, position);
      },
      ...textHost(memory, text),
      ...gpu.plain,
      ...waiting,
    };
    const instance = await WebAssembly.instantiate(module, {host, wasi_snapshot_preview1: wasi(memory)});
    this.exports = instance.exports;
    this.exports._initialize();
    this.enter = WebAssembly.promising(this.exports.call);
    this.stackTop = this.exports.__stack_pointer.value;
  }

  /** Asks the engine; calls wait for those before them. */
  call(request) {
    const turn = this.queue.then(() => this.callNow(request));
    this.queue = turn.catch(() => {});
    return turn;
  }

  async callNow(request) {
    if (this.broken) throw this.broken;
    const {exports} = this;
    const bytes = new TextEncoder().encode(JSON.stringify(request));
    const at = exports.allocate(bytes.length);
    this.memory().bytes.set(bytes, at >>> 0);
    try {
      const length = await this.enter(at, bytes.length);
      const answer = exports.answer() >>> 0;
      return JSON.parse(new TextDecoder().decode(this.memory().bytes.subarray(answer, answer + length)));
    } catch (error) {
      // C++ frames were lost, not unwound. A request that was refused as such (usage) and one about text alone changed
      // nothing, so the engine goes on with a clean stack; after anything else its state cannot be trusted.
      const harmless = request.verb === 'encode' || request.verb === 'decode';
      if (error instanceof DopplerError && (harmless || error.code === 'usage')) {
        exports.__stack_pointer.value = this.stackTop;
      } else {
        this.broken = error;
        this.gpu.close();
      }
      throw error;
    } finally {
      if (!this.broken) exports.release(at);
    }
  }

  get heapBytes() {
    return this.exports.memory.buffer.byteLength;
  }

  close() {
    this.broken ??= new DopplerError('usage', 'the model was unloaded');
    this.gpu.close();
  }
}
