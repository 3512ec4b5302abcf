// GPUs that are not there, offer too little or run out: a sentence that says what to do. A stand-in for WebGPU does
// what a browser's would.
import assert from 'node:assert/strict';
import {test} from 'node:test';
import {GpuHost} from '../../web/lib/host_gpu.js';

Object.assign(globalThis, {
  GPUBufferUsage: {STORAGE: 1, COPY_SRC: 2, COPY_DST: 4, UNIFORM: 8, MAP_READ: 16},
  GPUOutOfMemoryError: class {},
});

// WebGPU's own smallest limits.
const limits = {
  maxBufferSize: 256 << 20, maxStorageBufferBindingSize: 128 << 20, maxUniformBufferBindingSize: 64 << 10,
  maxStorageBuffersPerShaderStage: 8, minUniformBufferOffsetAlignment: 256, minStorageBufferOffsetAlignment: 256,
  maxComputeWorkgroupStorageSize: 16 << 10, maxComputeInvocationsPerWorkgroup: 256, maxComputeWorkgroupSizeX: 256,
  maxComputeWorkgroupSizeY: 256, maxComputeWorkgroupSizeZ: 64, maxComputeWorkgroupsPerDimension: 65535,
};

function standIn({adapter = {}, device = {}, lack = false} = {}) {
  const made = {
    limits, features: new Set(), lost: new Promise(() => {}), addEventListener() {}, destroy() {},
    createBuffer: () => ({}), pushErrorScope() {}, popErrorScope: async () => null, ...device,
  };
  const found = {limits, features: new Set(), info: {description: 'a stand-in'}, requestDevice: async () => made, ...adapter};
  return {requestAdapter: async () => (lack ? null : found), wgslLanguageFeatures: new Set()};
}

const refusal = (gpu) => new GpuHost(gpu, () => ({})).open().then(() => assert.fail('it was opened'), (error) => error);

test('what WebGPU promises everywhere is enough', async () => {
  assert.equal((await new GpuHost(standIn(), () => ({})).open()).name, 'a stand-in');
});

test('no WebGPU, no adapter and an adapter that gives no device are told apart', async () => {
  for (const [gpu, sentence] of [
    [undefined, /no WebGPU\. Use a current Chrome/],
    [standIn({lack: true}), /finds no GPU here\. Switch hardware acceleration on/],
    [{requestAdapter: () => Promise.reject(new Error('blocked'))}, /did not start: blocked\. Restart the browser/],
    [standIn({adapter: {requestDevice: () => Promise.reject(new Error('busy'))}}), /could not be opened: busy\. Close other tabs/],
  ]) {
    const error = await refusal(gpu);
    assert.equal(error.code, 'device');
    assert.match(error.message, sentence);
  }
});

test('a limit below what the engine needs is named, with both numbers', async () => {
  for (const [name, value] of Object.entries({
    maxStorageBuffersPerShaderStage: 4, maxComputeInvocationsPerWorkgroup: 128, maxStorageBufferBindingSize: 1 << 20,
  })) {
    const error = await refusal(standIn({adapter: {limits: {...limits, [name]: value}}}));
    assert.equal(error.code, 'unsupported');
    assert.match(error.message, new RegExp(`${name} is ${value}, and at least ${limits[name]} is needed.*Use `));
  }
});

test('a GPU without room says so before anything is read from it', async () => {
  const out = standIn({device: {popErrorScope: async () => new GPUOutOfMemoryError()}});
  const host = new GpuHost(out, () => ({}));
  await host.open();
  host.buffer('layer0.q_proj', 1 << 20, 0);
  await Promise.resolve();
  await Promise.resolve();
  assert.throws(() => host.check(), (error) => error.code === 'memory' && /layer0\.q_proj, 1048576 bytes.*Use a smaller context or a smaller model/.test(error.message));
});
