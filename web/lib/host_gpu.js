// WebGPU for the engine. The engine's handles are places in `objects`; what it asks for is in web/engine/host.h.
import {DopplerError} from './errors.js';

// Limits that matter to the engine; a device is opened with all that the adapter offers of them.
const limitNames = [
  'maxBufferSize', 'maxStorageBufferBindingSize', 'maxUniformBufferBindingSize', 'maxStorageBuffersPerShaderStage',
  'minUniformBufferOffsetAlignment', 'minStorageBufferOffsetAlignment', 'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup', 'maxComputeWorkgroupSizeX', 'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupSizeZ', 'maxComputeWorkgroupsPerDimension',
];
// What the kernels count on. WebGPU promises it everywhere but in its compatibility mode.
const neededLimits = {
  maxBufferSize: 256 << 20, maxStorageBufferBindingSize: 128 << 20, maxUniformBufferBindingSize: 64 << 10,
  maxStorageBuffersPerShaderStage: 8, maxComputeWorkgroupStorageSize: 16 << 10, maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupSizeX: 256, maxComputeWorkgroupsPerDimension: 65535,
};
const matrixFeature = 'chromium-experimental-subgroup-matrix';
const featureNames = ['timestamp-query', 'shader-f16', 'subgroups', matrixFeature];

// Can kernels/matmul_matrix.wgsl run? The adapter says which matrices there are; how WGSL spells them has changed and may
// change again, so the compiler is asked, too.
async function hasF16Matrices(adapter, device) {
  const fits = (config) => config.componentType === 'f16' && config.resultComponentType === 'f32'
    && config.M === 16 && config.N === 16 && config.K === 16;
  if (!device.features.has(matrixFeature) || !device.features.has('shader-f16')) return false;
  if (![...adapter.info?.subgroupMatrixConfigs ?? []].some(fits)) return false;
  device.pushErrorScope('validation');
  device.createShaderModule({
    label: 'matrix probe',
    code: `enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
var<workgroup> tile: array<vec4<u32>, 64>;
@compute @workgroup_size(32) fn main() {
  let l = subgroupMatrixLoad<subgroup_matrix_left<f16, 16, 16>, row_major>(&tile, 0u, 2u);
  let r = subgroupMatrixLoad<subgroup_matrix_right<f16, 16, 16>, col_major>(&tile, 0u, 2u);
  var sum: subgroup_matrix_result<f32, 16, 16>;
  sum = subgroupMatrixMultiplyAccumulate(l, r, sum);
  subgroupMatrixStore<row_major>(&tile, 0u, sum, 4u);
}`,
  });
  return await device.popErrorScope() === null;
}

const stagingBytes = 1 << 20;
const commandWords = 6;

const deviceLost = (why = '') => new DopplerError('device', `the GPU was lost (${why.replace(/\.$/, '') || 'no reason given'}). Load the model again`);

/** Finds an adapter, or fails with a sentence that says what to do. */
export async function requestAdapter(gpu) {
  if (!gpu) {
    throw new DopplerError('device', 'this browser has no WebGPU. Use a current Chrome, Edge or Safari, over https or on localhost');
  }
  let adapter = null;
  try {
    adapter = await gpu.requestAdapter({powerPreference: 'high-performance'});
    adapter ??= await gpu.requestAdapter();
  } catch (error) {
    throw new DopplerError('device', `WebGPU did not start: ${error.message}. Restart the browser, and update it and the graphics driver`);
  }
  if (!adapter) {
    throw new DopplerError('device', 'WebGPU finds no GPU here. Switch hardware acceleration on in the browser\'s settings, and update the graphics driver');
  }
  return adapter;
}

export class GpuHost {
  /**
   * @param {GPU | undefined} gpu
   * @param {() => {bytes: Uint8Array, words: Uint32Array, doubles: Float64Array}} memory
   */
  constructor(gpu, memory) {
    this.gpu = gpu;
    this.memory = memory;
    this.objects = [];
    this.free = [];    // places that can be used again
    this.error = null;
    this.device = null;
    this.info = null;
    this.answer = new Uint8Array();
    this.staging = null;
    this.stats = {submits: 0, dispatches: 0, recordMs: 0, bufferBytes: 0};
    this.onLost = () => {};
  }

  string(at, length) {
    return new TextDecoder().decode(this.memory().bytes.subarray(at >>> 0, (at >>> 0) + length));
  }

  add(object) {
    const handle = this.free.pop() ?? this.objects.length;
    this.objects[handle] = object;
    return handle;
  }

  drop(handle) {
    if (this.objects[handle] === undefined) return;  // the device was closed before
    this.objects[handle] = undefined;
    this.free.push(handle);
  }

  check() {
    if (!this.error) return;
    const error = this.error;
    if (!error.lasting) this.error = null;
    throw error;
  }

  note(error) {
    this.error ??= error;
  }

  async open() {
    const adapter = await requestAdapter(this.gpu);
    for (const [name, least] of Object.entries(neededLimits)) {
      if (adapter.limits[name] >= least) continue;
      throw new DopplerError('unsupported', `this GPU offers too little: ${name} is ${adapter.limits[name]}, and at least ${least} is needed. Use a newer graphics driver, another browser or another device`);
    }
    const requiredLimits = {};
    for (const name of limitNames) {
      if (adapter.limits[name] !== undefined) requiredLimits[name] = adapter.limits[name];
    }
    const requiredFeatures = featureNames.filter((name) => adapter.features.has(name));
    let device;
    try {
      device = await adapter.requestDevice({label: 'doppler', requiredLimits, requiredFeatures});
    } catch (error) {
      throw new DopplerError('device', `the GPU could not be opened: ${error.message}. Close other tabs that use it, or restart the browser`);
    }
    this.device = device;
    this.error = null;
    device.lost.then((info) => {
      if (this.device !== device || info.reason === 'destroyed' && this.closing) return;
      const error = deviceLost(info.message);
      error.lasting = true;
      this.error = error;
      this.onLost(error);
    });
    device.addEventListener('uncapturederror', ({error}) => this.note(this.translate(error, '')));
    const about = adapter.info ?? {};
    this.info = {
      name: about.description || about.device || [about.vendor, about.architecture].filter(Boolean).join(' ') || 'GPU',
      vendor: about.vendor ?? '',
      architecture: about.architecture ?? '',
      description: about.description ?? '',
      software: about.isFallbackAdapter === true || /swiftshader|llvmpipe|software/i.test(`${about.architecture} ${about.description} ${about.device}`),
      limits: Object.fromEntries(limitNames.map((name) => [name, device.limits[name]])),
      subgroups: device.features.has('subgroups'),
      subgroupMin: about.subgroupMinSize ?? 0,
      subgroupMax: about.subgroupMaxSize ?? 0,
      f16: device.features.has('shader-f16'),
      subgroupMatrix: device.features.has(matrixFeature),
      f16Matrices: await hasF16Matrices(adapter, device),
      timestamps: device.features.has('timestamp-query'),
      int8Dot: this.gpu.wgslLanguageFeatures?.has('packed_4x8_integer_dot_product') ?? false,
    };
    return this.info;
  }

  close() {
    this.closing = true;
    this.device?.destroy();
    this.device = null;
    this.objects = [];
    this.free = [];
    this.staging = null;
  }

  translate(error, where) {
    const at = where ? ` (${where})` : '';
    if (typeof GPUOutOfMemoryError !== 'undefined' && error instanceof GPUOutOfMemoryError) {
      return new DopplerError('memory', `the GPU has not enough memory${at}. Use a smaller context or a smaller model, or close other tabs`);
    }
    return new DopplerError('device', `${error.message}${at}`);
  }

  buffer(label, size, use) {
    const usage = [
      GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
      GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
      GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    ][use];
    this.check();
    const {device} = this;
    device.pushErrorScope('out-of-memory');
    let buffer;
    try {
      buffer = device.createBuffer({label, size, usage});
    } catch (error) {
      throw this.translate(error, `${label}, ${size} bytes`);
    }
    // The verdict comes later; nothing is read before it (see wait).
    device.popErrorScope().then((error) => error && this.note(this.translate(error, `${label}, ${size} bytes`)), () => {});
    this.stats.bufferBytes += size;
    return this.add(buffer);
  }

  async kernel(about, code) {
    const {device} = this;
    this.check();
    device.pushErrorScope('validation');
    const module = device.createShaderModule({label: about.label, code});
    const bindGroupLayout = device.createBindGroupLayout({
      label: about.label,
      entries: about.bindings.map(({binding, type, size}) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: {type, minBindingSize: size},
      })),
    });
    const layout = device.createPipelineLayout({label: about.label, bindGroupLayouts: [bindGroupLayout]});
    let failure = null;
    let pipeline = null;
    try {
      pipeline = await device.createComputePipelineAsync({
        label: about.label,
        layout,
        compute: {module, entryPoint: 'main', constants: about.constants},
      });
    } catch (error) {
      failure = error;
    }
    const scope = await device.popErrorScope().catch(() => null);
    this.check();
    if (!failure && !scope) return this.add({pipeline, bindGroupLayout});
    const {messages} = await module.getCompilationInfo();
    const place = (line) => {
      const part = about.parts.findLast(([first]) => line >= first);
      return part ? `${part[1]}:${line - part[0] + part[2]}` : 'directives';
    };
    const text = messages.filter(({type}) => type === 'error').map((m) => `${place(m.lineNum)}:${m.linePos}: ${m.message}`);
    throw new DopplerError('device', `a kernel does not compile: ${text.join('; ') || (failure ?? scope).message} (kernel ${about.label})`);
  }

  bindGroup(label, kernel, at, count) {
    const {words, doubles} = this.memory();
    const entries = [];
    for (let i = 0; i < count; ++i) {
      const word = (at >>> 0) / 4 + i * 6;
      const double = (at >>> 0) / 8 + i * 3 + 1;
      entries.push({
        binding: words[word],
        resource: {buffer: this.objects[words[word + 1]], offset: doubles[double], size: doubles[double + 1]},
      });
    }
    return this.add(this.device.createBindGroup({label, layout: this.objects[kernel].bindGroupLayout, entries}));
  }

  // Encodes the commands; `begin` makes a pass, `each` gives every dispatch one of its own.
  encode(encoder, at, count, begin, each) {
    const {words} = this.memory();
    const {objects} = this;
    let pass = null;
    let current = -1;
    const end = () => {
      pass?.end();
      pass = null;
      current = -1;
    };
    let word = (at >>> 0) / 4;
    for (let i = 0; i < count; ++i, word += commandWords) {
      const a = words[word + 1], b = words[word + 2], x = words[word + 3], y = words[word + 4], z = words[word + 5];
      if (words[word] === 0) {
        if (each) end();
        pass ??= begin();
        if (a !== current) pass.setPipeline(objects[a].pipeline);
        current = a;
        pass.setBindGroup(0, objects[b]);
        pass.dispatchWorkgroups(x, y, z);
      } else {
        end();
        if (words[word] === 1) encoder.copyBufferToBuffer(objects[a], x * 4, objects[b], y * 4, z * 4);
        else encoder.clearBuffer(objects[b], y * 4, z * 4);
      }
    }
    return end;
  }

  submit(at, count, times) {
    this.check();
    const start = performance.now();
    const encoder = this.device.createCommandEncoder();
    for (let i = 0; i < times; ++i) this.encode(encoder, at, count, () => encoder.beginComputePass(), false)();
    this.device.queue.submit([encoder.finish()]);
    this.stats.recordMs += performance.now() - start;
    ++this.stats.submits;
    this.stats.dispatches += count * times;
  }

  async map(buffer, bytes, use) {
    try {
      await buffer.mapAsync(GPUMapMode.READ, 0, bytes);
    } catch (error) {
      this.check();
      throw new DopplerError('device', `the GPU's answer could not be read: ${error.message}`);
    }
    use(new Uint8Array(buffer.getMappedRange(0, bytes)));
    buffer.unmap();
    this.check();
  }

  async read(handle, offset, out, bytes) {
    out >>>= 0;
    this.staging ??= this.device.createBuffer({
      label: 'staging', size: stagingBytes, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST,
    });
    while (bytes > 0) {
      this.check();
      const piece = Math.min(bytes, stagingBytes);
      const whole = (piece + 3) & ~3;
      const encoder = this.device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.objects[handle], offset, this.staging, 0, whole);
      this.device.queue.submit([encoder.finish()]);
      await this.map(this.staging, whole, (mapped) => this.memory().bytes.set(mapped.subarray(0, piece), out));
      offset += piece;
      out += piece;
      bytes -= piece;
    }
  }

  async time(at, count, times, each, out, most) {
    const {device} = this;
    this.check();
    const perSet = 4096;
    const sets = [];
    let passes = 0;
    const encoder = device.createCommandEncoder();
    const begin = () => {
      const index = passes++ * 2 % perSet;
      if (index === 0) sets.push(device.createQuerySet({type: 'timestamp', count: perSet}));
      return encoder.beginComputePass({
        timestampWrites: {querySet: sets.at(-1), beginningOfPassWriteIndex: index, endOfPassWriteIndex: index + 1},
      });
    };
    for (let i = 0; i < times; ++i) this.encode(encoder, at, count, begin, each)();
    const size = sets.length * perSet * 8;
    const resolved = device.createBuffer({size, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC});
    const readable = device.createBuffer({size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
    sets.forEach((set, i) => encoder.resolveQuerySet(set, 0, Math.min(passes * 2 - i * perSet, perSet), resolved, i * perSet * 8));
    encoder.copyBufferToBuffer(resolved, 0, readable, 0, size);
    device.queue.submit([encoder.finish()]);
    const pairs = Math.min(passes, most);
    await this.map(readable, size, (mapped) => {
      const raw = new BigUint64Array(mapped.buffer, mapped.byteOffset, pairs * 2);
      const {doubles} = this.memory();
      for (let i = 0; i < pairs * 2; ++i) doubles[(out >>> 0) / 8 + i] = Number(raw[i] - raw[0]);
    });
    for (const object of [resolved, readable, ...sets]) object.destroy();
    return pairs;
  }

  // The functions of the module "host", and the names of those that wait.
  imports() {
    return {
      plain: {
        gpu_take: (at) => this.memory().bytes.set(this.answer, at >>> 0),
        gpu_close: () => this.close(),
        gpu_buffer: (label, length, size, use) => this.buffer(this.string(label, length), size, use),
        gpu_buffer_free: (handle) => {
          const buffer = this.objects[handle];
          if (buffer) this.stats.bufferBytes -= buffer.size;
          buffer?.destroy();
          this.drop(handle);
        },
        gpu_write: (handle, offset, at, bytes) => {
          this.check();
          this.device.queue.writeBuffer(this.objects[handle], offset, this.memory().bytes, at >>> 0, bytes);
        },
        gpu_begin_read: (handle) => {
          const buffer = this.objects[handle];
          buffer.pending = buffer.mapAsync(GPUMapMode.READ);
          buffer.pending.catch(() => {});
        },
        gpu_kernel_free: (handle) => this.drop(handle),
        gpu_bind_group: (label, length, kernel, at, count) => this.bindGroup(this.string(label, length), kernel, at, count),
        gpu_bind_group_free: (handle) => this.drop(handle),
        gpu_submit: (label, length, at, count, times) => this.submit(at, count, times),
        gpu_lose: () => this.device.destroy(),
      },
      waiting: {
        gpu_open: async () => {
          this.answer = new TextEncoder().encode(JSON.stringify(await this.open()));
          return this.answer.length;
        },
        gpu_read: (handle, offset, out, bytes) => this.read(handle, offset, out, bytes),
        gpu_end_read: async (handle, out, bytes) => {
          const buffer = this.objects[handle];
          await buffer.pending.catch((error) => {
            this.check();
            throw new DopplerError('device', `the GPU's answer could not be read: ${error.message}`);
          });
          this.memory().bytes.set(new Uint8Array(buffer.getMappedRange(), 0, bytes), out >>> 0);
          buffer.unmap();
        },
        gpu_wait: async () => {
          await this.device.queue.onSubmittedWorkDone();
          this.check();
        },
        gpu_kernel: (about, length, code, codeLength) =>
          this.kernel(JSON.parse(this.string(about, length)), this.string(code, codeLength)),
        gpu_time: (at, count, times, each, out, most) => this.time(at, count, times, each !== 0, out, most),
      },
    };
  }
}
