// The kernels that only the current Dawn can compile, by its compiler: that needs no GPU, but the npm package webgpu.
import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {kernelText} from '../../../web/tools/kernel_text.mjs';
import {cleanUp, root, scratchFolder} from '../support.mjs';

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

const variants = [
  ['activations_to_f16', {}],
  ...['q4_k', 'q6_k'].flatMap((weights) => ['t64', 't32'].map((share) => ['matmul_matrix', {weights, subgroup_tile: share}])),
  ...['f16', 'q4_k', 'q6_k'].flatMap((weights) => ['r4t4', 'r8t4', 'r8t8'].map(
    (share) => ['matmul_f32', {weights, thread_tile: share, matmul_w: 'f16'}])),
];
for (const [kernel, choices] of variants) {
  test(`${kernel} ${Object.values(choices).join(' ')} compiles`, async () => {
    device.pushErrorScope('validation');
    const {messages} = await device.createShaderModule({code: kernelText(root, kernel, choices)}).getCompilationInfo();
    assert.equal(await device.popErrorScope(), null);
    assert.deepEqual(messages.map(({message, lineNum}) => `${lineNum}: ${message}`), []);
  });
}
