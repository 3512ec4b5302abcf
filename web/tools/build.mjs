// Builds the engine for WebAssembly and puts the site together:  npm run build   →  dist/, for any web server.
//   --library   only the library (lib/*.wasm beside its JavaScript)
//   --kernel-tests   only what tools/test_kernels.mjs runs
//   --out DIR   somewhere else than dist
import {spawnSync} from 'node:child_process';
import {copyFileSync, cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync} from 'node:fs';
import {dirname, join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const root = dirname(web);
const {values: options} = parseArgs({options: {library: {type: 'boolean'}, 'kernel-tests': {type: 'boolean'}, out: {type: 'string', default: join(web, 'dist')}}});
const build = join(root, 'build', 'wasm');

function run(command, ...args) {
  const {status, error} = spawnSync(command, args, {stdio: ['ignore', 'inherit', 'inherit']});
  if (status === 0) return;
  console.error(error ? `${command}: ${error.message}` : `${command} failed`);
  process.exit(1);
}

if (!existsSync(join(build, 'build.ninja'))) {
  run('cmake', '-S', web, '-B', build, '-G', 'Ninja', `-DCMAKE_TOOLCHAIN_FILE=${join(web, 'toolchain.cmake')}`);
}
if (options['kernel-tests']) {
  run('cmake', '--build', build, '--target', 'kernel_tests');
  process.exit(0);
}
run('cmake', '--build', build);
for (const name of ['doppler.wasm', 'sha256.wasm', 'blake3.wasm']) copyFileSync(join(build, name), join(web, 'lib', name));
if (options.library) process.exit(0);

// Whole or not there: the site is made beside its place.
const out = resolve(options.out);
const fresh = `${out}.partial`;
rmSync(fresh, {recursive: true, force: true});
mkdirSync(join(fresh, 'models'), {recursive: true});
cpSync(join(web, 'page'), fresh, {recursive: true});
cpSync(join(web, 'lib'), join(fresh, 'lib'), {recursive: true, filter: (path) => !/\.d\.ts$|node\.js$/.test(path)});
const tiny = join(root, 'models', 'tiny');
cpSync(tiny, join(fresh, 'models', 'tiny'), {recursive: true});
const {shards} = JSON.parse(readFileSync(join(tiny, 'manifest.json'), 'utf8'));
const offers = [{
  name: 'Tiny', url: 'models/tiny/', bytes: shards.reduce((sum, {size}) => sum + size, 0),
  about: 'Tells short stories. Comes with Doppler',
}];
writeFileSync(join(fresh, 'models.json'), JSON.stringify(offers, null, 1));
rmSync(out, {recursive: true, force: true});
renameSync(fresh, out);
const {size} = statSync(join(out, 'lib', 'doppler.wasm'));
console.log(`${out}: the site, engine ${(size / 1000).toFixed(0)} kB`);
