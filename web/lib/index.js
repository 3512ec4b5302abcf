// doppler-web in a page: language models on the visitor's own GPU.
import {DopplerError} from './errors.js';
import {requestAdapter} from './host_gpu.js';
import {textSeconds} from './host_text.js';
import {Generation, loadEvents, Model} from './model.js';
import {modelUrl, removeModel, storedModels} from './store.js';

// Requests to the worker and their answers.
class WorkerLink {
  constructor(patience) {
    this.patience = patience;  // seconds that one match of a regular expression may take
    this.watching = null;
    this.worker = new Worker(new URL('./worker.js', import.meta.url), {type: 'module', name: 'doppler'});
    this.waiting = new Map();
    this.next = 1;
    this.dead = null;
    this.alive = false;  // it has said something
    this.lostHandlers = [];
    this.worker.addEventListener('message', ({data}) => this.receive(data));
    this.worker.addEventListener('error', (event) => {
      event.preventDefault?.();
      const unborn = !this.alive && !event.message;  // its script, or one it imports, did not arrive
      this.die(unborn ?
        new DopplerError('network', `a part of the engine is missing: ${new URL('./worker.js', import.meta.url)} or a file it imports cannot be fetched. Serve the whole lib folder, and load again`) :
        new DopplerError('internal', `the engine's worker stopped${event.message ? `: ${event.message}` : ''}. Load the model again`));
    });
    this.worker.addEventListener('messageerror', () => this.die(new DopplerError('internal', 'the engine\'s worker sent what cannot be read. Load the model again')));
  }

  receive({id, event, result, error, busy}) {
    this.alive = true;
    if (busy !== undefined) return this.watch(busy);
    const call = this.waiting.get(id);
    if (event?.lost) {
      const lost = DopplerError.unpack(event.lost);
      for (const handler of this.lostHandlers.splice(0)) handler(lost);
      return;
    }
    if (!call) return;
    if (event) return call.onEvent?.(event);
    this.waiting.delete(id);
    call.detach();
    if (error) call.reject(DopplerError.unpack(error));
    else call.resolve(result);
  }

  // A match without end can be ended with its thread only. Seconds are counted, not measured: none pass while the
  // machine sleeps.
  watch(busy) {
    clearInterval(this.watching);
    if (!busy) return;
    let seconds = 0;
    this.watching = setInterval(() => {
      if (++seconds <= this.patience) return;
      this.die(new DopplerError('unsupported', `a regular expression of the tokenizer gave up on this text: it took more than ${this.patience} s. The engine was stopped; load the model again, and take another text or another model`));
    }, 1000);
  }

  die(error) {
    this.dead = error;
    clearInterval(this.watching);
    this.worker.terminate();
    for (const handler of this.lostHandlers.splice(0)) handler(error);
    for (const call of this.waiting.values()) {
      call.detach();
      call.reject(error);
    }
    this.waiting.clear();
  }

  onLost(handler) {
    this.lostHandlers.push(handler);
  }

  // An abort asks the worker to cancel the call: a generation then answers with what it has, anything else fails.
  request(verb, args, {signal, onEvent} = {}) {
    if (this.dead) return Promise.reject(this.dead);
    const id = this.next++;
    return new Promise((resolve, reject) => {
      const cancel = () => this.worker.postMessage({id: 0, verb: 'cancel', args: {id}});
      const detach = () => signal?.removeEventListener('abort', cancel);
      this.waiting.set(id, {resolve, reject, onEvent, detach});
      this.worker.postMessage({id, verb, args});
      if (signal?.aborted) cancel();
      else signal?.addEventListener('abort', cancel, {once: true});
    });
  }

  // The worker gives back files and locks first; one that does not answer is ended all the same.
  async close() {
    if (this.dead) return;
    const patience = new Promise((resolve) => setTimeout(resolve, 2000));
    await Promise.race([this.request('unload').catch(() => {}), patience]);
    this.die(new DopplerError('usage', 'the model was unloaded'));
  }
}

export const Doppler = {
  /** Downloads (or finds) the model at `url`, puts it on the GPU, and answers a Model. */
  async load(url, {onProgress, signal, context, block, log, onLog, textSeconds: seconds = textSeconds} = {}) {
    // The browser may ask the visitor, and keeps the files longer if it agrees; asking costs nothing if not.
    navigator.storage?.persist?.().catch(() => {});
    const link = new WorkerLink(seconds);
    try {
      const info = await link.request('load', {url: modelUrl(url), context, block, log, textSeconds: seconds}, {
        signal, onEvent: loadEvents({onProgress, onLog}),
      });
      return new Model(link, info);
    } catch (error) {
      await link.close();
      throw error;
    }
  },

  /** The models kept in this browser, with their sizes. */
  stored: storedModels,

  /** Deletes one of them. */
  remove: removeModel,

  /** What this browser lacks to run models, as a DopplerError; null if nothing. */
  async missing() {
    if (typeof WebAssembly?.Suspending !== 'function') {
      return new DopplerError('unsupported', 'this browser cannot suspend WebAssembly (JSPI). Use a current Chrome or Edge');
    }
    try {
      await requestAdapter(navigator.gpu);
    } catch (error) {
      return error;
    }
    return null;
  },
};

export {DopplerError, Generation, Model};
