// A loaded model as a program uses it. `link` carries requests to the Service, in a worker or here.
import {DopplerError} from './errors.js';
import {traceLine} from './stages.js';

// An answer as it comes: pieces of text to iterate over, and the whole as a promise.
export class Generation {
  constructor(start) {
    this.pieces = [];
    this.wake = null;
    this.done = false;
    this.result = start((piece) => {
      this.pieces.push(piece);
      this.wake?.();
    });
    const finish = () => {
      this.done = true;
      this.wake?.();
    };
    this.result.then(finish, finish);
  }

  async* [Symbol.asyncIterator]() {
    for (let at = 0; ;) {
      while (at < this.pieces.length) yield this.pieces[at++];
      if (this.done) break;
      await new Promise((resolve) => {
        this.wake = resolve;
        if (this.done || at < this.pieces.length) resolve();
      });
    }
    await this.result;  // throws what went wrong
  }
}

/** What a load tells: how far it is, and what is said (to the console, unless somebody listens). */
export const loadEvents = ({onProgress, onLog}) => ({progress, log}) => {
  if (progress) onProgress?.(progress);
  if (log) (onLog ?? (({text}) => console.log(text)))(log);
};

// A trace goes to whoever listens, else to the console.
function tell(trace, onTrace) {
  if (onTrace) onTrace({...trace, line: traceLine(trace)});
  else console.log(traceLine(trace));
}

async function bytesOf(source) {
  if (source instanceof ArrayBuffer || ArrayBuffer.isView(source)) return source.slice();
  if (source instanceof Blob) return source.arrayBuffer();
  const answer = await fetch(source).catch((error) => error);
  if (answer.ok) return answer.arrayBuffer();
  throw new DopplerError('network', `${source} cannot be fetched: ${answer.message ?? `the server says ${answer.status}`}. Check the address`);
}

const finishReasons = {end: 'stop', stop: 'stop', max_tokens: 'length', context: 'length', interrupted: 'stop'};

// OpenAI's names for what we call otherwise.
function fromOpenAi({messages, temperature, top_p: topP, max_tokens: maxTokens, max_completion_tokens: maxCompletion,
                      stop, seed, tools}) {
  const options = {temperature: temperature ?? 1, topP: topP ?? 1, tools};
  if (maxCompletion ?? maxTokens) options.maxTokens = maxCompletion ?? maxTokens;
  if (stop) options.stop = [].concat(stop);
  options.seed = seed ?? Math.floor(Math.random() * 2 ** 31);
  return [messages, options];
}

export class Model {
  constructor(link, info) {
    this.link = link;
    this.info = info;
    /** Resolves with the error if the GPU is lost or the engine dies; reload() then starts anew. */
    this.lost = new Promise((resolve) => link.onLost(resolve));
    const chat = (messages, options = {}) => this.start({messages}, options);
    chat.completions = {create: (request, options) => this.complete(request, options)};
    /** chat(messages, options) streams an answer; chat.completions.create(request) does so in OpenAI's shape. */
    this.chat = chat;
  }

  /** Goes on from a plain text, or from { ids }. */
  generate(prompt, options = {}) {
    return this.start(typeof prompt === 'string' ? {prompt} : {ids: prompt.ids}, options);
  }

  start(input, {signal, onTrace, trace, ...options}) {
    const traced = options.debug ? trace ?? 'all' : undefined;
    return new Generation((onPiece) =>
      this.link.request('generate', {...options, trace: traced, ...input}, {
        signal, onEvent: (event) => (event.piece ? onPiece(event.piece) : event.trace && tell(event.trace, onTrace)),
      }));
  }

  /**
   * A prompt with every step looked at: numbers about each, exact values, a comparison with what was recorded elsewhere (an
   * address, a Blob or bytes), and a bundle: one file that `doppler debug MODEL --compare BUNDLE` opens.
   */
  async debug({prompt, ids, layers, probes, trace, compare, onTrace} = {}) {
    const request = {prompt, ids, layers, probes, trace, compare: compare && await bytesOf(compare)};
    const {bundle, ...result} = await this.link.request('debug', request, {onEvent: (event) => event.trace && tell(event.trace, onTrace)});
    return {...result, bundle: new Blob([bundle], {type: 'application/octet-stream'})};
  }

  /** Token ids of a text or of messages. */
  async encode(input) {
    const request = typeof input === 'string' ? {text: input} : {messages: input};
    return (await this.link.request('encode', request)).ids;
  }

  async decode(ids) {
    return (await this.link.request('decode', {ids})).text;
  }

  /** What every step of the model computes for a prompt, in numbers. */
  async inspect(input) {
    return this.link.request('inspect', {ids: await this.encode(input)});
  }

  bench(options) {
    return this.link.request('bench', options);
  }

  stats() {
    return this.link.request('stats');
  }

  /** Whether the engine goes on after an error; if not, reload() or load anew. */
  async usable() {
    try {
      return (await this.stats()).usable;
    } catch {
      return false;
    }
  }

  /** Loads the model again after the GPU was lost or the engine failed. */
  async reload({onProgress} = {}) {
    this.lost = new Promise((resolve) => this.link.onLost(resolve));
    this.info = await this.link.request('reload', {}, {onEvent: ({progress}) => progress && onProgress?.(progress)});
  }

  async unload() {
    await this.link.close();
  }

  async complete(request, {signal} = {}) {
    const generation = this.chat(...((list) => [list[0], {...list[1], signal}])(fromOpenAi(request)));
    const common = {
      id: `chatcmpl-${Math.random().toString(36).slice(2)}`,
      created: Math.floor(Date.now() / 1000),
      model: request.model ?? this.info.id,
    };
    const usage = ({promptIds, ids}) => ({
      prompt_tokens: promptIds.length, completion_tokens: ids.length, total_tokens: promptIds.length + ids.length,
    });
    if (!request.stream) {
      const result = await generation.result;
      return {
        ...common,
        object: 'chat.completion',
        choices: [{index: 0, message: {role: 'assistant', content: result.text}, finish_reason: finishReasons[result.stopReason]}],
        usage: usage(result),
      };
    }
    const chunk = (delta, reason = null) => ({
      ...common, object: 'chat.completion.chunk', choices: [{index: 0, delta, finish_reason: reason}],
    });
    return (async function* stream() {
      yield chunk({role: 'assistant', content: ''});
      for await (const piece of generation) yield chunk({content: piece});
      const result = await generation.result;
      yield chunk({}, finishReasons[result.stopReason]);
      if (request.stream_options?.include_usage) yield {...chunk({}), choices: [], usage: usage(result)};
    })();
  }
}

export {DopplerError};
