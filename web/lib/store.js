// Models kept in the browser: a folder each in the origin private file system.
//
// A file has its name only when it is whole (shards: hashed and found right); until then it is NAME.part, which a
// closed tab leaves behind and the next visit goes on with. Web locks keep tabs apart: whoever downloads or deletes a
// model holds its lock alone, whoever reads it shares it.
import {DopplerError} from './errors.js';

const folderName = 'doppler-models';
const partial = '.part';

/** The model's folder URL, ending in a slash. */
export function modelUrl(url, base = globalThis.location?.href) {
  const full = new URL(url, base);
  full.hash = '';
  full.search = '';
  full.pathname = full.pathname.replace(/manifest\.json$/, '').replace(/\/*$/, '/');
  return full.href;
}

/** The name of the folder for a URL: readable, and different for different URLs. */
export function folderFor(url) {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(url)) hash = (hash ^ BigInt(byte)) * 0x100000001b3n & 0xffffffffffffffffn;
  const last = url.split('/').filter(Boolean).at(-1) ?? 'model';
  return `${last.replace(/[^A-Za-z0-9._-]/g, '_').slice(0, 60)}-${hash.toString(16)}`;
}

async function modelsFolder() {
  if (!globalThis.navigator?.storage?.getDirectory) {
    throw new DopplerError('unsupported', 'this browser keeps no files for pages (OPFS), or this window is private. Use a normal window of a current browser');
  }
  try {
    const root = await navigator.storage.getDirectory();
    return await root.getDirectoryHandle(folderName, {create: true});
  } catch (error) {
    throw new DopplerError('file', `the browser gives no access to its storage: ${error.message}. Private windows often have none`);
  }
}

const lockName = (folder) => `doppler-model:${folder}`;

/** Holds the lock of a model until the returned function is called. */
export function lock(folder, mode, signal) {
  return new Promise((resolve, reject) => {
    navigator.locks.request(lockName(folder), {mode, signal}, () => new Promise((release) => resolve(release))).catch(reject);
  });
}

export class StoredModel {
  constructor(handle, folder) {
    this.handle = handle;
    this.folder = folder;
  }

  static async open(url) {
    const folder = folderFor(url);
    return new StoredModel(await (await modelsFolder()).getDirectoryHandle(folder, {create: true}), folder);
  }

  /** Sizes by name; unfinished files are under their .part names. */
  async sizes() {
    const sizes = new Map();
    for await (const [name, entry] of this.handle.entries()) {
      if (entry.kind === 'file') sizes.set(name, (await entry.getFile()).size);
    }
    return sizes;
  }

  async text(name) {
    try {
      return await (await (await this.handle.getFileHandle(name)).getFile()).text();
    } catch (error) {
      if (error.name === 'NotFoundError') return null;
      throw error;
    }
  }

  /** The unfinished file of that name, open for reading and writing. */
  async openPart(name) {
    const handle = await this.handle.getFileHandle(name + partial, {create: true});
    try {
      return await handle.createSyncAccessHandle();
    } catch (error) {
      if (error.name !== 'NoModificationAllowedError') throw error;
      throw new DopplerError('file', `${name} is being written by another tab. Close it, or wait for it`);
    }
  }

  /** The unfinished file takes its name; its access handle must be closed. */
  async commitPart(name) {
    const handle = await this.handle.getFileHandle(name + partial);
    await this.remove(name);
    await handle.move(name);
  }

  async writeWhole(name, bytes) {
    const file = await this.openPart(name);
    try {
      file.truncate(0);
      let at = 0;
      while (at < bytes.length) at += file.write(bytes.subarray(at), {at});
      file.flush();
    } finally {
      file.close();
    }
    await this.commitPart(name);
  }

  async remove(name) {
    await this.handle.removeEntry(name).catch((error) => {
      if (error.name !== 'NotFoundError') throw error;
    });
  }

  /** The files for the engine; `onRead` hears of the bytes of every read. */
  async openFiles(onRead = () => {}) {
    const open = new Map();
    const close = () => {
      for (const file of open.values()) file.close();
    };
    try {
      for await (const [name, entry] of this.handle.entries()) {
        if (entry.kind !== 'file' || name.endsWith(partial)) continue;
        open.set(name, await entry.createSyncAccessHandle({mode: 'read-only'}));
      }
    } catch (error) {
      close();
      if (error.name !== 'NoModificationAllowedError') throw error;
      throw new DopplerError('file', 'the model is open in another tab, and this browser lets only one read it. Close the other tab');
    }
    return {
      size: (name) => open.get(name)?.getSize() ?? -1,
      read(name, offset, out) {
        const file = open.get(name);
        const bytes = file ? file.read(out, {at: offset}) : 0;
        if (bytes !== out.length) throw new DopplerError('file', `${name} ends too early in the browser's storage. Delete the stored model and load it again`);
        onRead(name, bytes);
      },
      close,
    };
  }
}

/** What is stored: [{url, folder, bytes, complete}]. */
export async function storedModels() {
  const found = [];
  for await (const [folder, handle] of (await modelsFolder()).entries()) {
    if (handle.kind !== 'directory') continue;
    const model = new StoredModel(handle, folder);
    const sizes = await model.sizes();
    if (sizes.size === 0) continue;  // of a load that was refused
    let info = {};
    try {
      info = JSON.parse(await model.text('info.json')) ?? {};
    } catch {
      // Half a file from another time: the folder can still be listed and deleted.
    }
    let bytes = 0;
    for (const size of sizes.values()) bytes += size;
    found.push({url: info.url ?? '', name: info.name ?? folder, folder, bytes, complete: info.complete === true});
  }
  return found;
}

/** Deletes a stored model, by its URL or its folder. */
export async function removeModel(urlOrFolder) {
  const root = await modelsFolder();
  const folder = urlOrFolder.includes('/') ? folderFor(modelUrl(urlOrFolder)) : urlOrFolder;
  await navigator.locks.request(lockName(folder), {mode: 'exclusive', ifAvailable: true}, async (held) => {
    if (!held) throw new DopplerError('usage', 'the model is in use in this or another tab. Unload it there first');
    await root.removeEntry(folder, {recursive: true}).catch((error) => {
      if (error.name !== 'NotFoundError') throw error;
    });
  });
}

const inUnits = (bytes) => {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    ++unit;
  }
  return `${bytes.toFixed(unit && bytes < 100 ? 1 : 0)} ${units[unit]}`;
};

/** Fails with a plain sentence if `bytes` more do not fit beside what is stored in `model`. */
export async function askForRoom(model, bytes) {
  const {quota = 0, usage = 0} = await navigator.storage.estimate();
  const advice = 'Delete stored models, free disk space, or take a smaller model';
  if (bytes > quota - usage) {
    throw new DopplerError('quota', `the model needs ${inUnits(bytes)} more, but the browser allows this page only ${inUnits(Math.max(0, quota - usage))}. ${advice}`);
  }
  // What a browser says of its quota may be rounded, for privacy; whether it gives a file of that size is the truth.
  const file = await model.openPart('room.json');  // no shard has such a name
  try {
    file.truncate(bytes);
  } catch (error) {
    if (error.name !== 'QuotaExceededError') throw error;
    throw new DopplerError('quota', `the model needs ${inUnits(bytes)} more, but the browser does not give this page that much. ${advice}`);
  } finally {
    file.close();
    await model.remove(`room.json${partial}`);
  }
}
