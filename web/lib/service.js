// One loaded model and what can be asked of it. Runs in the worker of a page, or in Node itself.
import {compareStages} from './compare.js';
import {DopplerError} from './errors.js';
import {Engine} from './engine.js';
import {Capture, likeliest, placeOf, readStages, rowOf, statistics, writeStages} from './stages.js';

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
      case 'score': return this.ask({...args, verb});
      case 'debug': return this.debug(args, call);
      case 'inspect': return this.inspect(args);
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
    const log = logger(args.log, emit);
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
      onShard: (name, bytes, ms) => log('verbose', `[loader] Shard ${name}: network, ${amount(bytes, ms)}`),
      onRead: (name, bytes) => {
        read += bytes;
        const now = performance.now();
        if (now - told < 100) return;
        told = now;
        emit({progress: {phase: 'upload', loaded: Math.min(read, total), total}});
      },
    });
    total = files.bytes;
    const reads = log.wanted ? timed(files) : new Map();
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
      for (const [name, {bytes, ms}] of reads) {
        if (/^shard/.test(name)) log('verbose', `[loader] Shard ${name}: ${files.from ?? 'OPFS'}, ${amount(bytes, ms)}`);
      }
      log('info', `[loader] Complete: ${this.info.id} ${this.info.quantization}, ${amount(total, performance.now() - started)} on ${this.info.adapter.name}`);
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
    const traced = tracer(args.trace, emit);
    const turn = engine.queue.then(() => {
      engine.onTap = traced;
      engine.onPiece = (text) => {
        if (text) emit({piece: text});
        return !signal.aborted;
      };
      const {messages, tools, prompt, debugLayers: layers, ...options} = args;
      return engine.callNow({...options, layers, verb: 'generate', ids});
    });
    engine.queue = turn.catch(() => {});
    const result = await turn;
    return {...result, promptIds: ids};
  }

  // A prompt with its steps looked at: {ids, stages, steps, bounds, boundsOfSameWeights, version}, and what `onStage` makes of each.
  async capture({ids, layers, allLogits}, onStage = () => {}) {
    if (!this.engine) throw new DopplerError('usage', 'no model is loaded. Load one first');
    const {engine} = this;
    const capture = new Capture();
    const turn = engine.queue.then(() => {
      engine.onTap = (...stage) => {
        capture.add(...stage);
        onStage(...stage);
      };
      return engine.callNow({verb: 'debug', ids, layers, allLogits});
    });
    engine.queue = turn.catch(() => {});
    const {steps, ...rest} = await turn;
    return {ids, steps, ...rest, stages: capture.take(steps)};
  }

  async pieces(best) {
    const text = async ({id}) => (this.info.hasTokenizer ? (await this.ask({verb: 'decode', ids: [id], skipSpecial: false})).text : '');
    const list = [];
    for (const one of best) list.push({...one, piece: await text(one)});
    return list;
  }

  async inspect({ids}) {
    const {stages} = await this.capture({ids});
    const logits = stages.find(({name}) => name === 'logits');
    return {
      steps: stages.map(({name, data}) => ({step: name, ...statistics(data)})),
      next: await this.pieces(likeliest(rowOf(logits, logits.rows - 1), 8)), tokens: ids.length,
    };
  }

  async debug(args, {emit}) {
    if (!this.engine) throw new DopplerError('usage', 'no model is loaded. Load one first');
    const reference = args.compare ? readStages(new Uint8Array(args.compare)) : null;
    let {ids} = args;
    if (!ids && args.prompt === undefined && reference) {
      ids = reference.promptIds;
      if (!ids.length) throw new DopplerError('usage', 'the stages to compare with do not say which prompt they are of. Give that prompt');
    }
    ids ??= (await this.ask({verb: 'encode', text: args.prompt ?? 'The color of the sky is'})).ids;
    if (reference?.promptIds.length && String(reference.promptIds) !== String(ids)) {
      throw new DopplerError('usage', 'the stages to compare with were made from another prompt. Leave the prompt out: they know their own');
    }
    // All logits where 64 MiB hold them, else those of the last position.
    const allLogits = ids.length * this.info.vocab * 4 <= 2 ** 26;
    const run = await this.capture({ids, layers: args.layers, allLogits}, tracer(args.trace, emit));
    const {stages, steps} = run;
    const artefact = await this.artefact();
    const sameWeights = reference !== null && reference.artefact === artefact;
    const comparison = reference && compareStages(stages, reference.stages, steps, sameWeights ? run.boundsOfSameWeights : run.bounds);
    const logits = stages.find(({name}) => name === 'logits');
    const bundle = args.bundle === false ? undefined : writeStages(stages, {
      promptIds: ids, source: 'a bundle of a browser', artefact,
      bundle: {
        model: this.info.id, quantization: this.info.quantization, version: run.version, backend: 'webgpu', device: this.engine.gpu.info,
        agent: globalThis.navigator?.userAgent ?? '', made: new Date().toISOString(),
        kernels: Object.fromEntries(steps.filter(({kernel}) => kernel).map(({name, kernel}) => [name, kernel])),
        firstBad: comparison?.firstBad ?? null,
      },
    });
    return {
      ids, artefact, comparison, bundle, probes: probed(args.probes ?? [], stages),
      stages: stages.map((stage) => ({name: stage.name, position: stage.position, rows: stage.rows, width: stage.width, ...placeOf(stage.name), ...statistics(rowOf(stage, stage.rows - 1))})),
      top: logits ? await this.pieces(likeliest(rowOf(logits, logits.rows - 1), 5)) : [],
    };
  }

  // The SHA-256 of the manifest, which holds those of the shards.
  async artefact() {
    const bytes = new Uint8Array(this.files.size('manifest.json'));
    this.files.read('manifest.json', 0, bytes);
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    return [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('');
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

const amount = (bytes, ms) => `${(bytes / 1e6).toFixed(1)} MB in ${(ms / 1000).toFixed(2)} s`;

// What is said, at the level asked for: silent, info or verbose.
function logger(level = 'silent', emit) {
  const levels = ['silent', 'info', 'verbose'];
  if (!levels.includes(level)) throw new DopplerError('usage', `${level} is no level of talk: silent, info or verbose`);
  const log = (at, text) => levels.indexOf(at) <= levels.indexOf(level) && emit({log: {level: at, text}});
  log.wanted = level === 'verbose';
  return log;
}

// Bytes and time of the reads from each file, from now on.
function timed(files) {
  const reads = new Map();
  const read = files.read.bind(files);
  files.read = (name, offset, out) => {
    const start = performance.now();
    read(name, offset, out);
    const sum = reads.get(name) ?? {bytes: 0, ms: 0};
    reads.set(name, {bytes: sum.bytes + out.length, ms: sum.ms + performance.now() - start});
  };
  return reads;
}

// Emits numbers about each step that is looked at: of all, or of the subjects embed, attn, ffn and logits.
function tracer(trace, emit) {
  if (!trace) return () => {};
  const known = ['embed', 'attn', 'ffn', 'logits'];
  const subjects = trace === true || trace === 'all' ? known : typeof trace === 'string' ? trace.split(',') : trace;
  for (const word of subjects) {
    if (!known.includes(word)) throw new DopplerError('usage', `${word} is no subject to trace: embed, attn, ffn, logits or all`);
  }
  return (step, data, tokens, position) => {
    const place = placeOf(step);
    if (tokens < 1 || !subjects.includes(place.subject)) return;
    const row = data.subarray(data.length - data.length / tokens);
    const top = step === 'logits' ? likeliest(row, 5).map(({id, logit}) => ({id, logit})) : undefined;
    emit({trace: {step, ...place, position: position + tokens - 1, ...statistics(row), top}});
  };
}

// Exact values: [{stage, layers, tokens, dims}], positions from the end where they are negative.
function probed(probes, stages) {
  const values = [];
  for (const {id = '', stage: word, layers, tokens = [-1], dims} of probes) {
    const named = stages.filter(({name}) => name === word ||
      (name.endsWith(`.${word}`) && (!layers?.length || layers.includes(placeOf(name).layer))));
    if (!named.length) throw new DopplerError('usage', `a probe names a step that the model does not have, or that was not looked at: ${word}. Expected such as layer3.attn_norm, or attn_norm with layers`);
    for (const stage of named) {
      for (const token of tokens) {
        const row = token < 0 ? stage.rows + token : token - stage.position;
        if (row < 0 || row >= stage.rows) throw new DopplerError('usage', `the probed token is not there: ${stage.name} has ${stage.position} to ${stage.position + stage.rows - 1}, and not ${token}`);
        for (const dim of dims ?? Array.from({length: stage.width}, (_, i) => i)) {
          if (!(dim >= 0 && dim < stage.width)) throw new DopplerError('usage', `the probed column is not there: ${stage.name} has 0 to ${stage.width - 1}, and not ${dim}`);
          values.push({id, stage: stage.name, position: stage.position + row, dim, value: rowOf(stage, row)[dim]});
        }
      }
    }
  }
  return values;
}
