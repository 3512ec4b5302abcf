// The kernels that only the current Dawn can compile, by its compiler: that needs no GPU, but the npm package webgpu.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {cleanUp, root, scratchFolder} from '../support.mjs';

const kernels = join(root, 'src/gpu/kernels');
let gpu, device;  // a device does not keep its gpu alive

before(async () => {
  const folder = scratchFolder('kernels');
  writeFileSync(join(folder, 'package.json'), JSON.stringify({private: true}));
  execFileSync('npm', ['install', '--silent', '--no-audit', '--no-fund', 'webgpu@0.6.2'], {cwd: folder, stdio: 'inherit'});
  const webgpu = await import(join(folder, 'node_modules/webgpu/index.js'));
  Object.assign(globalThis, webgpu.globals);
  gpu = webgpu.create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);
  const adapter = await gpu.requestAdapter();
  device = await adapter.requestDevice({requiredFeatures: ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix']});
});
after(async () => {
  await cleanUp();
  setTimeout(() => process.exit(), 0);  // Dawn's instance would keep the process alive
});

// As compose() in src/gpu/kernel_source.cpp: snippets in the order of their `use` lines, directives first.
function compose(kernel, slots) {
  const main = readFileSync(join(kernels, `${kernel}.wgsl`), 'utf8');
  const texts = [...main.matchAll(/^\/\/ use: (\w+)(?: = (.*))?$/gm)].map(([, slot, choices]) => {
    const list = choices?.split('|').map((choice) => choice.trim());
    const chosen = list && `.${list.length === 1 ? list[0] : slots[slot]}`;
    return readFileSync(join(kernels, 'lib', `${slot}${chosen ?? ''}.wgsl`), 'utf8');
  });
  const lines = [...texts, main].join('').split('\n');
  const directive = (line) => /^(enable|requires|diagnostic)\b/.test(line);
  return [...new Set(lines.filter(directive)), ...lines.filter((line) => !directive(line))].join('\n');
}

const variants = [
  ['halve_activations', {}],
  ...['q4_k', 'q6_k'].flatMap((weights) => ['t64', 't32'].map((share) => ['matmul_matrix', {weights, matrix_share: share}])),
  ...['f16', 'q4_k', 'q6_k'].flatMap((weights) => ['r4t4', 'r8t4', 'r8t8'].map(
    (share) => ['matmul_f32', {weights, matmul_share: share, matmul_w: 'f16'}])),
];
for (const [kernel, slots] of variants) {
  test(`${kernel} ${Object.values(slots).join(' ')} compiles`, async () => {
    device.pushErrorScope('validation');
    const {messages} = await device.createShaderModule({code: compose(kernel, slots)}).getCompilationInfo();
    assert.equal(await device.popErrorScope(), null);
    assert.deepEqual(messages.map(({message, lineNum}) => `${lineNum}: ${message}`), []);
  });
}
