// doppler-web in Node, on the GPU that the package `webgpu` (Dawn) finds. Needs Node 25 or later.
import {closeSync, existsSync, fstatSync, openSync, readFileSync, readSync} from 'node:fs';
import {readFile} from 'node:fs/promises';
import {join} from 'node:path';
import {fileURLToPath} from 'node:url';
import {DopplerError} from './errors.js';
import {Generation, loadEvents, Model} from './model.js';
import {Service} from './service.js';

// Dawn hides what is not yet a standard, or not yet proven: subgroup matrices (tensor cores), and f16 on NVIDIA.
const everything = ['enable-dawn-features=allow_unsafe_apis,vulkan_enable_f16_on_nvidia'];

/** WebGPU of the package `webgpu`. `flags` are Dawn's own. */
export async function openGpu(flags = everything) {
  let webgpu;
  try {
    webgpu = await import('webgpu');
  } catch {
    throw new DopplerError('device', 'the package webgpu is not installed. Install it: npm install webgpu');
  }
  Object.assign(globalThis, webgpu.globals);
  return webgpu.create(flags);
}

// A folder with a model, read in place.
async function openFolder(url) {
  const folder = url.startsWith('file:') ? fileURLToPath(url) : url;
  if (!existsSync(join(folder, 'manifest.json'))) throw new DopplerError('file', `there is no model in ${folder}: no manifest.json`);
  const manifest = JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));
  const open = new Map();
  const file = (name) => {
    if (!open.has(name) && existsSync(join(folder, name))) open.set(name, openSync(join(folder, name)));
    return open.get(name);
  };
  return {
    from: 'disk',
    bytes: (manifest.shards ?? []).reduce((sum, {size}) => sum + size, 0),
    size: (name) => (file(name) === undefined ? -1 : fstatSync(file(name)).size),
    read(name, offset, out) {
      for (let at = 0; at < out.length;) {
        const bytes = readSync(file(name), out, at, out.length - at, offset + at);
        if (bytes === 0) throw new DopplerError('file', `${join(folder, name)} ends too early`);
        at += bytes;
      }
    },
    close() {
      for (const fd of open.values()) closeSync(fd);
      open.clear();
    },
  };
}

class LocalLink {
  constructor(service) {
    this.service = service;
    this.lostHandlers = [];
  }

  onLost(handler) {
    this.lostHandlers.push(handler);
  }

  async request(verb, args, {signal = new AbortController().signal, onEvent} = {}) {
    const emit = (event) => {
      if (event.lost) for (const handler of this.lostHandlers.splice(0)) handler(DopplerError.unpack(event.lost));
      else onEvent?.(event);
    };
    try {
      return await this.service.handle(verb, args ?? {}, {emit, signal});
    } catch (error) {
      throw error instanceof DopplerError ? error : DopplerError.unpack(DopplerError.pack(error));
    }
  }

  async close() {
    this.service.unload();
  }
}

export const Doppler = {
  /**
   * Loads the model in a folder. `dawn` are Dawn's own flags; by default they allow the features that make prefill fast
   * (openGpu), [] leaves Dawn as it comes.
   */
  async load(folder, {onProgress, signal, context, block, log, onLog, dawn, textSeconds} = {}) {
    const gpu = await openGpu(dawn);
    const service = new Service({
      module: async () => WebAssembly.compile(await readFile(new URL('./doppler.wasm', import.meta.url))),
      gpu,
      open: openFolder,
    });
    const link = new LocalLink(service);
    const info = await link.request('load', {url: String(folder), context, block, log, textSeconds}, {
      signal, onEvent: loadEvents({onProgress, onLog}),
    });
    return new Model(link, info);
  },
};

export {DopplerError, Generation, Model};
