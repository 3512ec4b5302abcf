// A model's files from the network into the store: what is there already is not fetched again, what was begun goes on.
import {DopplerError} from './errors.js';
import {ShardHash} from './shard_hash.js';
import {askForRoom, lock, modelUrl, StoredModel} from './store.js';

const shardsAtOnce = 4;
const mostTries = 6;           // without a byte of progress between them
const firstPause = 300;        // milliseconds, doubled with every try
const mostRounds = 2;          // downloads of one load: tabs with different versions may undo each other's work
const mostShards = 1 << 20;
const mostSmall = 256 << 20;   // bytes of a file that is held in memory; the largest tokenizers have 40 MB
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

// An error that no other try would mend.
const lasting = (code, message) => Object.assign(new DopplerError(code, message), {lasting: true});

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

async function readSmall(response, url) {
  const pieces = [];
  let bytes = 0;
  for await (const piece of response.body ?? []) {
    bytes += piece.length;
    if (bytes > mostSmall) throw lasting('format', `${url} has more than ${mostSmall} bytes, which no such file needs`);
    pieces.push(piece);
  }
  return new Uint8Array(await new Blob(pieces).arrayBuffer());
}

// A small file, or null where the server has none. (Servers of single pages answer HTML for what they do not have.)
async function fetchSmall(url, signal) {
  for (let attempt = 0; ; ++attempt) {
    try {
      const response = await request(url, signal);
      if (response.status === 404 || response.status === 403) return null;
      if (!response.ok) throw new DopplerError('network', `${url} cannot be fetched: the server answers ${response.status}`);
      if (/text\/html/.test(response.headers.get('content-type') ?? '')) return null;
      return await readSmall(response, url);
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (attempt >= 2 || error.lasting) throw error;
      await sleep(firstPause * 2 ** attempt, signal);
    }
  }
}

const isPlain = (name) => typeof name === 'string' && /^[^/\\\p{Cc}]+$/u.test(name) && name !== '.' && name !== '..';

// The manifest's shards and the file of its tensors. Every name becomes one in the model's folder, beside the manifest,
// the tokenizer's files and our own info.json and NAME.part.
export function readManifest(text, url) {
  const wrong = (what) => new DopplerError('format', `${url} ${what}`);
  let manifest;
  try {
    manifest = JSON.parse(text);
  } catch (error) {
    throw wrong(`is no manifest: ${error.message}`);
  }
  if (typeof manifest !== 'object' || manifest === null) throw wrong('is no manifest: it holds no object');
  const algorithm = manifest.hashAlgorithm ?? 'sha256';
  if (!ShardHash.knows(algorithm)) throw new DopplerError('unsupported', `the shards are hashed with ${algorithm}; a page can check sha256 and blake3. Convert the model again`);
  if (!Array.isArray(manifest.shards) || manifest.shards.length === 0) throw wrong('lists no shards');
  if (manifest.shards.length > mostShards) throw wrong(`lists ${manifest.shards.length} shards; ${mostShards} is the most there can be`);
  const tensorsFile = typeof manifest.tensorsFile === 'string' && !manifest.tensors ? manifest.tensorsFile : null;
  if (tensorsFile !== null) {
    if (!isPlain(tensorsFile)) throw wrong('names no plain file as its tensorsFile');
    if (['info.json', 'manifest.json', ...textFiles].includes(tensorsFile) || tensorsFile.endsWith('.part')) {
      throw wrong(`names ${tensorsFile} as its tensorsFile, which is another file of the model`);
    }
  }
  const names = new Set();
  const shards = manifest.shards.map((shard) => {
    const {size} = shard ?? {}, hash = shard?.hash ?? shard?.blake3, name = shard?.fileName ?? shard?.filename;
    if (!isPlain(name) || !Number.isSafeInteger(size) || size < 0 || !/^[0-9a-f]{64}$/.test(hash ?? '')) {
      throw wrong(`lists a shard without a plain name, size and ${algorithm}`);
    }
    if (/\.(json|jinja|part)$/.test(name) || name === tensorsFile) throw wrong(`lists a shard named ${name}, which is the name of another file of the model`);
    if (names.has(name)) throw wrong(`lists two shards named ${name}`);
    names.add(name);
    return {name, size, hash, algorithm};
  });
  return {manifest, shards, tensorsFile};
}

async function downloadShard(model, base, shard, progress, signal) {
  const hash = await ShardHash.create(shard.algorithm);
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
    let most = have;  // a server that begins anew every time makes no progress
    for (let attempt = 0; ;) {
      let failure = null;
      try {
        if (have < shard.size) {
          const response = await request(base + encodeURIComponent(shard.name), signal, have ? {Range: `bytes=${have}-`} : {});
          if (have && response.status === 200) {
            startOver();  // the server knows no ranges
            fresh = true;
          } else if (!response.ok) {
            const {status} = response;
            const kind = status >= 400 && status < 500 && status !== 429 && status !== 408 ? lasting : (...error) => new DopplerError(...error);
            throw kind('network', `${shard.name} cannot be fetched: the server answers ${status}`);
          }
          const reader = response.body.getReader();
          for (;;) {
            const {done, value} = await reader.read();
            if (done) break;
            if (have + value.length > shard.size) {
              await reader.cancel();
              throw lasting('format', `${shard.name} is longer than the manifest says (${shard.size} bytes)`);
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
        const digest = hash.finish(shard.hash);
        if (digest === shard.hash) break;
        const wasFresh = fresh;
        startOver();
        fresh = true;
        most = 0;
        // A resumed shard may have been begun from another version of the file; one that came in one go is wrong there.
        if (wasFresh) {
          throw new DopplerError('format', `${shard.name} arrived damaged: its ${shard.algorithm} is ${digest}, the manifest says ${shard.hash}. Try again; if it stays so, the server's copy is faulty`);
        }
        continue;
      }
      attempt = have > most ? 0 : attempt + 1;
      most = Math.max(most, have);
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

async function downloadAll(model, base, {manifestText, manifest, shards, tensorsFile, info}, {onProgress: tell, onShard}, signal) {
  const sizes = await model.sizes();
  const missing = shards.filter(({name, size}) => sizes.get(name) !== size);
  const progress = new Progress(tell);
  progress.total = shards.reduce((sum, {size}) => sum + size, 0);
  let needed = 0;
  for (const {name, size} of shards) {
    if (sizes.get(name) === size) progress.loaded += size;
    else needed += Math.max(0, size - (sizes.get(`${name}.part`) ?? 0));
  }
  await askForRoom(model, needed);

  info.complete = false;
  await model.writeWhole('info.json', new TextEncoder().encode(JSON.stringify(info)));
  await model.writeWhole('manifest.json', new TextEncoder().encode(manifestText));
  const wanted = manifest.tokenizer === null ? ['generation_config.json'] : [...textFiles];
  if (tensorsFile !== null) wanted.push(tensorsFile);
  await Promise.all(wanted.map(async (name) => {
    const bytes = await fetchSmall(base + encodeURIComponent(name), signal);
    if (bytes) await model.writeWhole(name, bytes);
    else await model.remove(name);
  }));

  progress.add(0);
  const stop = new AbortController();
  const either = signal ? AbortSignal.any([signal, stop.signal]) : stop.signal;
  let next = 0;
  let failure = null;
  const work = async () => {
    while (next < missing.length && !failure) {
      try {
        const shard = missing[next++], start = performance.now();
        await downloadShard(model, base, shard, progress, either);
        onShard?.(shard.name, shard.size, performance.now() - start);
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

// What we wrote of the model ourselves; another version of this library, or a broken disk, may have left something else.
async function readInfo(model) {
  try {
    return JSON.parse(await model.text('info.json')) ?? {};
  } catch {
    return {};
  }
}

// The stored model, if it is whole and the one that the server has; null if not.
async function openStored(model, base, network, {signal, onRead}) {
  const release = await lock(model.folder, 'shared', signal);
  let files = null;
  try {
    const stored = await model.text('manifest.json');
    if (!(await readInfo(model)).complete || stored === null || (network !== null && network !== stored)) return null;
    const {shards} = readManifest(stored, `${base}manifest.json`);
    const sizes = await model.sizes();
    if (!shards.every(({name, size}) => sizes.get(name) === size)) return null;
    files = await model.openFiles(onRead);
    const bytes = shards.reduce((sum, {size}) => sum + size, 0);
    return {...files, bytes, offline: network === null, close: () => {
      files.close();
      release();
    }};
  } finally {
    if (!files) release();
  }
}

// What an earlier manifest lists. Nothing is known of files whose manifest cannot be read: they go.
async function shardsBefore(model, stored) {
  try {
    return readManifest(stored, 'the stored manifest').shards;
  } catch {
    for (const name of (await model.sizes()).keys()) await model.remove(name);
    return [];
  }
}

async function bringUpToDate(model, base, network, {signal, onProgress, onShard}) {
  const found = readManifest(network, `${base}manifest.json`);
  const timer = setTimeout(() => onProgress({phase: 'wait'}), 200);  // another tab downloads it
  const release = await lock(model.folder, 'exclusive', signal).finally(() => clearTimeout(timer));
  try {
    const {manifest, shards} = found;
    const stored = await model.text('manifest.json');
    if (stored !== null && stored !== network) {
      // Another version: what has changed goes.
      const wanted = new Map(shards.map(({name, hash}) => [name, hash]));
      for (const {name, hash} of await shardsBefore(model, stored)) {
        if (wanted.get(name) === hash) continue;
        await model.remove(name);
        await model.remove(`${name}.part`);
      }
    } else if ((await readInfo(model)).complete === true) {
      const sizes = await model.sizes();
      if (shards.every(({name, size}) => sizes.get(name) === size)) return;  // another tab was quicker
    }
    const info = {url: base, name: manifest.modelId ?? manifest.modelType ?? base};
    await downloadAll(model, base, {...found, manifestText: network, info}, {onProgress, onShard}, signal);
  } finally {
    release();
  }
}

/**
 * Makes sure that the model at `url` is stored whole, and opens it.
 * @returns the files for the engine; close() gives them and the model's lock back.
 */
export async function openModel(url, {signal, onProgress = () => {}, onRead, onShard} = {}) {
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
  for (let round = 0; ; ++round) {
    const files = await openStored(model, base, network, {signal, onRead});
    if (files) return files;
    if (network === null) throw failure;
    if (round === mostRounds) throw new DopplerError('file', 'the model was downloaded, but the browser does not keep it as it was written, or another tab replaces it. Close other tabs, delete the stored model, and load it again');
    await bringUpToDate(model, base, network, {signal, onProgress, onShard});
  }
}
