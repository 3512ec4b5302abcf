// What the tests against the JavaScript engine share. DOPPLER_ORIGINAL names a checkout of it; without one they are skipped,
// and the rules it was seen to have are held by tests/engine/public_rules_test.cpp.
import {execFileSync} from 'node:child_process';
import {existsSync, mkdtempSync, readdirSync, readFileSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import {dirname, join} from 'node:path';
import {fileURLToPath, pathToFileURL} from 'node:url';

export const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
export const build = process.env.DOPPLER_BUILD ?? join(root, 'build');
export const checkout = process.env.DOPPLER_ORIGINAL;

if (!checkout) {
  console.log('DOPPLER_ORIGINAL=PATH names no checkout of the JavaScript engine');
  process.exit(77);  // CTest's word for a test that was skipped
}
if (!existsSync(join(checkout, 'src/formats/rdrr/validation.js'))) {
  console.error(`DOPPLER_ORIGINAL=${checkout} is no checkout of the JavaScript engine: src/formats/rdrr/validation.js is not there`);
  process.exit(1);
}

export const theirs = (path) => import(pathToFileURL(join(checkout, path)).href);

export const doppler = (...args) => execFileSync(join(build, 'doppler'), args, {encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe']});

export const readManifest = (folder) => JSON.parse(readFileSync(join(folder, 'manifest.json'), 'utf8'));

export const checkpoints = () => readdirSync(join(root, 'tests/data/models')).filter((name) => existsSync(join(root, 'tests/data/models', name, 'config.json')));

/** A folder that is removed when the process ends. */
export function scratch() {
  const folder = mkdtempSync(join(tmpdir(), 'doppler-original-'));
  process.on('exit', () => rmSync(folder, {recursive: true, force: true}));
  return folder;
}
