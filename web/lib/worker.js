// The dedicated worker: the engine, its GPU and its files live here, so the page stays responsive.
import {compiledOnce} from './compile.js';
import {DopplerError} from './errors.js';
import {openModel} from './download.js';
import {Service} from './service.js';

const service = new Service({
  module: compiledOnce(new URL('./doppler.wasm', import.meta.url)),
  gpu: navigator.gpu,
  open: openModel,
  watch: (busy) => self.postMessage({busy}),
});

const running = new Map();  // abort controllers by request

self.addEventListener('message', async ({data: {id, verb, args}}) => {
  if (verb === 'cancel') {
    running.get(args.id)?.abort(new DopplerError('cancelled', 'cancelled'));
    return;
  }
  const abort = new AbortController();
  running.set(id, abort);
  try {
    const result = await service.handle(verb, args ?? {}, {
      emit: (event) => self.postMessage({id, event}),
      signal: abort.signal,
    });
    self.postMessage({id, result});
  } catch (error) {
    self.postMessage({id, error: DopplerError.pack(error)});
  } finally {
    running.delete(id);
  }
});
