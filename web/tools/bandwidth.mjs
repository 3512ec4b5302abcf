// Runs in a page: bytes per second that its GPU moves in a large copy (reads and writes together), the best of a few. The
// native program measures so too, with the same kernel, whose text is `code`.
export async function copyBandwidth(code) {
  const adapter = await navigator.gpu.requestAdapter({powerPreference: 'high-performance'}) ?? await navigator.gpu.requestAdapter();
  const {maxBufferSize, maxStorageBufferBindingSize, maxComputeWorkgroupsPerDimension} = adapter.limits;
  const clock = adapter.features.has('timestamp-query');
  const device = await adapter.requestDevice({
    requiredFeatures: clock ? ['timestamp-query'] : [], requiredLimits: {maxBufferSize, maxStorageBufferBindingSize},
  });
  const {info} = adapter;
  const software = info.isFallbackAdapter === true || /swiftshader|llvmpipe|software/i.test(`${info.architecture} ${info.description} ${info.device}`);
  // Far more than any cache holds; a software adapter gets less, it would take seconds.
  const bytes = Math.floor(Math.min(software ? 2 ** 24 : 2 ** 30, maxBufferSize, maxStorageBufferBindingSize) / 16) * 16;
  const copies = software ? 2 : 8;  // in one pass, because the page's clock is rounded to a tenth of a millisecond
  const words = bytes / 16, threads = 256, each = 4;
  const groups = Math.ceil(words / (threads * each));
  const x = Math.min(groups, maxComputeWorkgroupsPerDimension), y = Math.ceil(groups / x);
  device.pushErrorScope('out-of-memory');
  device.pushErrorScope('validation');
  const storage = () => device.createBuffer({size: bytes, usage: GPUBufferUsage.STORAGE});
  const from = storage(), to = storage();
  const params = device.createBuffer({size: 16, usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST});
  device.queue.writeBuffer(params, 0, new Uint32Array([words, 0, 0, 0]));
  const pipeline = device.createComputePipeline({
    layout: 'auto', compute: {module: device.createShaderModule({code}), entryPoint: 'main', constants: {threads}},
  });
  const group = device.createBindGroup({
    layout: pipeline.getBindGroupLayout(0),
    entries: [params, from, to].map((buffer, binding) => ({binding, resource: {buffer}})),
  });
  const set = clock ? device.createQuerySet({type: 'timestamp', count: 2}) : null;
  const resolved = device.createBuffer({size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC});
  const readable = device.createBuffer({size: 16, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST});
  let best = 0;
  for (let run = 0; run < 6; ++run) {
    const encoder = device.createCommandEncoder();
    const pass = encoder.beginComputePass(clock ? {timestampWrites: {querySet: set, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1}} : {});
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, group);
    for (let i = 0; i < copies; ++i) pass.dispatchWorkgroups(x, y);
    pass.end();
    if (clock) {
      encoder.resolveQuerySet(set, 0, 2, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, readable, 0, 16);
    }
    const start = performance.now();
    device.queue.submit([encoder.finish()]);
    await device.queue.onSubmittedWorkDone();
    let seconds = (performance.now() - start) / 1e3;
    if (clock) {
      await readable.mapAsync(GPUMapMode.READ);
      const [begin, end] = new BigUint64Array(readable.getMappedRange());
      seconds = Number(end - begin) * 1e-9;
      readable.unmap();
    }
    if (seconds > 0) best = Math.max(best, 2 * bytes * copies / seconds);
  }
  const error = await device.popErrorScope() ?? await device.popErrorScope();
  device.destroy();
  if (error) throw new Error(`the GPU's bandwidth could not be measured: ${error.message}`);
  return best;
}
