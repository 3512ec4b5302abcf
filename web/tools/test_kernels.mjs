// Every kernel on the GPU that the package `webgpu` finds, as `doppler test correctness` and `doppler bench kernels` do
// with the native Dawn. Needs Node 25, and first:  node tools/build.mjs --kernel-tests
//   node tools/test_kernels.mjs [--filter TEXT] [--verbose] [--plain] [--bench] [--tiles] [--dawn FLAG]... [--wasm FILE]
//     --bench   timings instead of checks        --tiles   the matrix product in every tile there is
//     --plain   without optional features        --safe    without Dawn's experimental ones
import {readFileSync} from 'node:fs';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';
import {Engine} from '../lib/engine.js';
import {openGpu} from '../lib/node.js';

const {values: options} = parseArgs({options: {
  filter: {type: 'string', default: ''}, verbose: {type: 'boolean'}, plain: {type: 'boolean'}, bench: {type: 'boolean'},
  tiles: {type: 'boolean'}, safe: {type: 'boolean'}, dawn: {type: 'string', multiple: true},
  wasm: {type: 'string', default: fileURLToPath(new URL('../../build/wasm/kernel_tests.wasm', import.meta.url))},
}});
const module = new WebAssembly.Module(readFileSync(options.wasm));
const engine = await Engine.create(module, {gpu: await openGpu(options.dawn ?? (options.safe ? [] : undefined))});
let first = true;
engine.onPiece = (line) => {
  if (first || options.verbose || options.bench || !line.startsWith('pass')) console.log(line);
  first = false;
  return true;
};
const request = new TextEncoder().encode(JSON.stringify(options));
const at = engine.exports.allocate(request.length);
engine.memory().bytes.set(request, at >>> 0);
const failed = await WebAssembly.promising(engine.exports.test_kernels)(at, request.length);
if (failed < 0) console.error('no case matches --filter');
process.exit(failed === 0 ? 0 : 1);
