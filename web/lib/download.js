// A model's files from the network into the store: what is there already is not fetched again, what was begun goes on.
import {DopplerError} from './errors.js';
import {Sha256} from './sha256.js';
import {askForRoom, lock, modelUrl, StoredModel} from './store.js';

const shardsAtOnce = 4;
const mostTries = 6;           // without a byte of progress between them
const firstPause = 300;        // milliseconds, doubled with every try
const textFiles = ['tokenizer.json', 'tokenizer_config.json', 'generation_config.json', 'chat_template.jinja',
  'chat_template.json', 'special_tokens_map.json'];

const sleep = (ms, signal) => new Promise((resolve, reject) => {
  const timer = setTimeout(resolve, ms);
  signal?.addEventListener('abort', () => {
    clearTimeout(timer);
    reject(signal.reason);
  }, {once: true});
});

class Progress {
  constructor(tell) {
    this.tell = tell;
    this.loaded = 0;
    this.total = 0;
    this.samples = [];   // [time, loaded] of the last seconds
    this.told = 0;
    this.timer = null;
  }

  // Told at most ten times per second, but the last word always comes.
  add(bytes) {
    this.loaded += bytes;
    const wait = this.told + 100 - performance.now();
    if (wait <= 0 || this.loaded >= this.total) return this.say();
    this.timer ??= setTimeout(() => this.say(), wait);
  }

  say() {
    clearTimeout(this.timer);
    this.timer = null;
    const now = performance.now();
    this.told = now;
    this.samples.push([now, this.loaded]);
    while (this.samples.length > 2 && now - this.samples[0][0] > 5000) this.samples.shift();
    const [then, before] = this.samples[0];
    const rate = now > then ? (this.loaded - before) * 1000 / (now - then) : 0;
    this.tell({
      phase: 'download', loaded: this.loaded, total: this.total, rate: Math.max(0, rate),
      secondsLeft: rate > 0 ? (this.total - this.loaded) / rate : null,
    });
  }
}

async function request(url, signal, headers = {}) {
  let response;
  try {
    response = await fetch(url, {signal, headers, cache: 'no-store'});
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw new DopplerError('network', `${url} cannot be reached: ${error.message}. Check the connection and the address`);
  }
  return response;
}

// A small file, or null where the server has none. (Servers of single pages answer HTML for what they do not have.)
async function fetchSmall(url, signal) {
  for (let attempt = 0; ; ++attempt) {
    try {
      const response = await request(url, signal);
      if (response.status === 404 || response.status === 403) return null;
      if (!response.ok) throw new DopplerError('network', `${url} cannot be fetched: the server answers ${response.status}`);
      if (/text\/html/.test(response.headers.get('content-type') ?? '')) return null;
      return new Uint8Array(await response.arrayBuffer());
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (attempt >= 2) throw error;
      await sleep(firstPause * 2 ** attempt, signal);
    }
  }
}

function readShards(text, url) {
  let manifest;
  try {
    manifest = JSON.parse(text);
  } catch (error) {
    throw new DopplerError('format', `${url} is no manifest: ${error.message}`);
  }
  const algorithm = manifest.hashAlgorithm ?? 'sha256';
  if (algorithm !== 'sha256') throw new DopplerError('unsupported', `the shards are hashed with ${algorithm}; a page can check sha256 only. Convert the model again`);
  if (!Array.isArray(manifest.shards) || manifest.shards.length === 0) throw new DopplerError('format', `${url} lists no shards`);
  const shards = manifest.shards.map((shard) => ({name: shard.fileName ?? shard.filename, size: shard.size, hash: shard.hash}));
  for (const {name, size, hash} of shards) {
    const sound = typeof name === 'string' && /^[^/\\]+$/.test(name) && name !== '.' && name !== '..' &&
        Number.isSafeInteger(size) && size >= 0 && /^[0-9a-f]{64}$/.test(hash ?? '');
    if (!sound) throw new DopplerError('format', `${url}: a shard has no plain name, size and sha256`);
  }
  return {manifest, shards};
}

async function downloadShard(model, base, shard, progress, signal) {
  const hash = await Sha256.create();
  let file = await model.openPart(shard.name);
  let have = 0;
  const startOver = () => {
    progress.add(-have);
    have = 0;
    hash.reset();
    file.truncate(0);
  };
  try {
    const kept = file.getSize();
    if (kept > shard.size) {
      file.truncate(0);
    } else {
      const piece = new Uint8Array(1 << 20);
      while (have < kept) {
        const bytes = file.read(piece, {at: have});
        if (bytes === 0) break;
        hash.update(piece.subarray(0, bytes));
        have += bytes;
      }
      progress.add(have);
    }
    let fresh = have === 0;
    for (let attempt = 0; ;) {
      const before = have;
      let failure = null;
      try {
        if (have < shard.size) {
          const response = await request(base + shard.name, signal, have ? {Range: `bytes=${have}-`} : {});
          if (have && response.status === 200) {
            startOver();  // the server knows no ranges
            fresh = true;
          } else if (!response.ok) {
            const lasting = response.status >= 400 && response.status < 500 && response.status !== 429 && response.status !== 408;
            const error = new DopplerError('network', `${shard.name} cannot be fetched: the server answers ${response.status}`);
            error.lasting = lasting;
            throw error;
          }
          const reader = response.body.getReader();
          for (;;) {
            const {done, value} = await reader.read();
            if (done) break;
            if (have + value.length > shard.size) {
              await reader.cancel();
              throw Object.assign(new DopplerError('format', `${shard.name} is longer than the manifest says (${shard.size} bytes)`), {lasting: true});
            }
            hash.update(value);
            let at = 0;
            while (at < value.length) at += file.write(value.subarray(at), {at: have + at});
            have += value.length;
            progress.add(value.length);
          }
        }
      } catch (error) {
        if (signal?.aborted) throw signal.reason;
        if (error.lasting || error.name === 'QuotaExceededError') throw error;
        failure = error;
      }
      if (have === shard.size) {
        const digest = hash.finish();
        if (digest === shard.hash) break;
        const wasFresh = fresh;
        startOver();
        fresh = true;
        // A resumed shard may have been begun from another version of the file; one that came in one go is wrong there.
        if (wasFresh) {
          throw new DopplerError('format', `${shard.name} arrived damaged: its sha256 is ${digest}, the manifest says ${shard.hash}. Try again; if it stays so, the server's copy is faulty`);
        }
        continue;
      }
      attempt = have > before ? 0 : attempt + 1;
      if (attempt >= mostTries) {
        throw new DopplerError('network', `the connection broke off at ${have} of ${shard.size} bytes of ${shard.name} (${failure?.message ?? 'the server ended early'}). What has arrived is kept: load the model again to go on`);
      }
      file.flush();
      await sleep(firstPause * 2 ** attempt * (0.5 + Math.random()), signal);
    }
    file.flush();
  } finally {
    file.close();
  }
  await model.commitPart(shard.name);
}

async function downloadAll(model, base, {manifestText, manifest, shards, info}, tell, signal) {
  const sizes = await model.sizes();
  const missing = shards.filter(({name, size}) => sizes.get(name) !== size);
  const progress = new Progress(tell);
  progress.total = shards.reduce((sum, {size}) => sum + size, 0);
  let needed = 0;
  for (const {name, size} of shards) {
    if (missing.some((shard) => shard.name === name)) needed += Math.max(0, size - (sizes.get(`${name}.part`) ?? 0));
    else progress.loaded += size;
  }
  await askForRoom(model, needed);

  info.complete = false;
  await model.writeWhole('info.json', new TextEncoder().encode(JSON.stringify(info)));
  await model.writeWhole('manifest.json', new TextEncoder().encode(manifestText));
  const extra = typeof manifest.tensorsFile === 'string' && !manifest.tensors ? [manifest.tensorsFile] : [];
  const wanted = manifest.tokenizer === null ? ['generation_config.json', ...extra] : [...textFiles, ...extra];
  await Promise.all(wanted.map(async (name) => {
    const bytes = await fetchSmall(base + name, signal);
    if (bytes) await model.writeWhole(name, bytes);
    else await model.remove(name);
  }));

  progress.add(0);
  const stop = new AbortController();
  const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  const waiting = [...missing];
  let failure = null;
  const work = async () => {
    for (let shard = waiting.shift(); shard && !failure; shard = waiting.shift()) {
      try {
        await downloadShard(model, base, shard, progress, either);
      } catch (error) {
        failure ??= error;
        stop.abort(error);
      }
    }
  };
  await Promise.all(Array.from({length: shardsAtOnce}, work));
  clearTimeout(progress.timer);
  if (failure) throw failure;
  info.complete = true;
  await model.writeWhole('info.json', new TextEncoder().encode(JSON.stringify(info)));
}

/**
 * Makes sure that the model at `url` is stored whole, and opens it.
 * @returns the files for the engine; close() gives them and the model's lock back.
 */
export async function openModel(url, {signal, onProgress = () => {}, onRead} = {}) {
  const base = modelUrl(url);
  const model = await StoredModel.open(base);
  onProgress({phase: 'check'});
  let network = null;  // the manifest as the server has it now
  let failure = null;
  try {
    const bytes = await fetchSmall(`${base}manifest.json`, signal);
    if (!bytes) throw new DopplerError('network', `there is no model at ${base}: the server has no manifest.json there`);
    network = new TextDecoder().decode(bytes);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    failure = error;
  }
  for (;;) {
    let release = await lock(model.folder, 'shared', signal);
    let files = null;
    try {
      const info = JSON.parse(await model.text('info.json') ?? '{}');
      const stored = await model.text('manifest.json');
      if (info.complete && stored && (network === null || network === stored)) {
        const {shards} = readShards(stored, base);
        const sizes = await model.sizes();
        if (shards.every(({name, size}) => sizes.get(name) === size)) {
          files = await model.openFiles(onRead);
          const bytes = shards.reduce((sum, {size}) => sum + size, 0);
          return {...files, bytes, offline: network === null, close: () => {
            files.close();
            release();
          }};
        }
      }
    } finally {
      if (!files) release();
    }
    if (network === null) throw failure;

    const timer = setTimeout(() => onProgress({phase: 'wait'}), 200);  // another tab downloads it
    release = await lock(model.folder, 'exclusive', signal).finally(() => clearTimeout(timer));
    try {
      const stored = await model.text('manifest.json');
      const {manifest, shards} = readShards(network, `${base}manifest.json`);
      const complete = JSON.parse(await model.text('info.json') ?? '{}').complete === true;
      if (stored !== null && stored !== network) {
        // Another version: what has changed goes.
        const old = new Map(readShards(stored, base).shards.map(({name, hash}) => [name, hash]));
        for (const [name, hash] of old) {
          if (shards.some((shard) => shard.name === name && shard.hash === hash)) continue;
          await model.remove(name);
          await model.remove(`${name}.part`);
        }
      } else if (complete) {
        const sizes = await model.sizes();
        if (shards.every(({name, size}) => sizes.get(name) === size)) continue;  // another tab was quicker
      }
      const info = {url: base, name: manifest.modelId ?? manifest.modelType ?? base};
      await downloadAll(model, base, {manifestText: network, manifest, shards, info}, onProgress, signal);
    } finally {
      release();
    }
  }
}
