// One loaded model and what can be asked of it. Runs in the worker of a page, or in Node itself.
import {DopplerError} from './errors.js';
import {Engine} from './engine.js';

export class Service {
  /**
   * @param {object} surroundings
   * @param {() => Promise<WebAssembly.Module>} surroundings.module
   * @param {GPU | undefined} surroundings.gpu
   * @param {(url: string, options: object) => Promise<object>} surroundings.open the files of a model
   * @param {((busy: boolean) => void) | undefined} surroundings.watch hears when text keeps the thread busy
   */
  constructor({module, gpu, open, watch}) {
    this.surroundings = {module, gpu, open, watch};
    this.engine = null;
    this.files = null;
    this.loading = null;    // the arguments of the last load, for reload
  }

  /** @param {{emit: (event: object) => void, signal: AbortSignal}} call */
  async handle(verb, args, call) {
    switch (verb) {
      case 'load': return this.load(args, call);
      case 'reload': return this.load(this.loading, call);
      case 'generate': return this.generate(args, call);
      case 'encode':
      case 'decode':
      case 'inspect':
      case 'score': return this.ask({...args, verb});
      case 'bench': return this.bench(args);
      case 'stats': return this.stats();
      case 'lose': return this.engine?.gpu.device?.destroy();
      case 'unload': return this.unload();
      default: throw new DopplerError('usage', `an unknown request: ${verb}`);
    }
  }

  ask(request) {
    if (!this.engine) throw new DopplerError('usage', 'no model is loaded. Load one first');
    return this.engine.call(request);
  }

  async load(args, {emit, signal}) {
    this.unload();
    this.loading = args;
    const {module, gpu, open, watch} = this.surroundings;
    const started = performance.now();
    const compiled = module();
    compiled.catch(() => {});
    let read = 0;
    let told = 0;
    let total = 0;
    // A browser without WebGPU should hear so before it downloads a gigabyte.
    const engine = await Engine.create(await compiled, {gpu, text: {seconds: args.textSeconds, watch}});
    await engine.gpu.open();
    engine.gpu.close();
    const files = await open(args.url, {
      signal,
      onProgress: (progress) => emit({progress}),
      onRead: (name, bytes) => {
        read += bytes;
        const now = performance.now();
        if (now - told < 100) return;
        told = now;
        emit({progress: {phase: 'upload', loaded: Math.min(read, total), total}});
      },
    });
    total = files.bytes;
    const opened = performance.now();
    this.engine = engine;
    this.files = files;
    engine.files = files;
    engine.gpu.closing = false;
    engine.gpu.onLost = (error) => emit({lost: DopplerError.pack(error)});
    emit({progress: {phase: 'upload', loaded: 0, total}});
    try {
      const info = await engine.call({verb: 'load', name: args.url, context: args.context, block: args.block});
      this.info = {
        ...info, adapter: engine.gpu.info, offline: files.offline === true,
        fetchMs: opened - started, loadMs: performance.now() - opened,
      };
      emit({progress: {phase: 'ready', loaded: total, total}});
      return this.info;
    } catch (error) {
      this.unload();
      throw error;
    } finally {
      files.closeShards?.();
    }
  }

  async generate(args, {emit, signal}) {
    let {ids} = args;
    if (!ids) {
      const request = args.messages ? {messages: args.messages, tools: args.tools} : {text: args.prompt ?? ''};
      ({ids} = await this.ask({verb: 'encode', ...request}));
    }
    const {engine} = this;
    const turn = engine.queue.then(() => {
      engine.onPiece = (text) => {
        if (text) emit({piece: text});
        return !signal.aborted;
      };
      return engine.callNow({...args, messages: undefined, tools: undefined, prompt: undefined, verb: 'generate', ids});
    });
    engine.queue = turn.catch(() => {});
    const result = await turn;
    return {...result, promptIds: ids};
  }

  async bench(args) {
    const {gpu} = this.engine;
    const before = {...gpu.stats};
    const result = await this.ask({...args, verb: 'bench'});
    return {...result, recordMs: gpu.stats.recordMs - before.recordMs, dispatches: gpu.stats.dispatches - before.dispatches, submits: gpu.stats.submits - before.submits};
  }

  stats() {
    const {engine} = this;
    return {usable: engine !== null && !engine.broken && !engine.gpu.error, heapBytes: engine?.heapBytes ?? 0, ...engine?.gpu.stats};
  }

  unload() {
    this.engine?.close();
    this.files?.close();
    this.engine = null;
    this.files = null;
  }
}
