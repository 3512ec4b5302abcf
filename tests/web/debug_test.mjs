// Looking into a model in the page: what was recorded natively holds there, a kernel that computes wrongly is named, and the
// bundle that the page saves names the same step natively. The tables of docs/debugging.md run.
import assert from 'node:assert/strict';
import {spawnSync} from 'node:child_process';
import {readFileSync, writeFileSync} from 'node:fs';
import {join} from 'node:path';
import {after, before, test} from 'node:test';
import {cleanUp, native, openBrowser, plainPage, program, root, scratchFolder, startServer} from './support.mjs';

const tiny = join(root, 'models/tiny');
const sky = 'The color of the sky is';
const folder = scratchFolder('debug');
let server, context, page;

const debug = (...args) => {
  const {status, stdout, stderr} = spawnSync(program, ['debug', tiny, '--backend', 'cpu', '--json', ...args], {encoding: 'utf8'});
  assert.ok(status === 0 || status === 1, stderr);
  return {status, ...JSON.parse(stdout)};
};

// Loads the model with what is said, and debugs it; the bundle comes back as text that JSON can carry.
const load = (where, options) => where.evaluate(async (choices) => {
  const {Doppler} = await import('/lib/index.js');
  const said = [];
  await globalThis.model?.unload();
  globalThis.Doppler = Doppler;
  globalThis.url = new URL('/models/tiny/', location).href;
  globalThis.model = await Doppler.load(url, {context: 128, ...choices, onLog: (line) => said.push(line)});
  return said;
}, options);
const debugInPage = (where, options) => where.evaluate(async (choices) => {
  const lines = [];
  const {bundle, ...result} = await model.debug({...choices, onTrace: ({line}) => lines.push(line)});
  const bytes = new Uint8Array(await bundle.arrayBuffer());
  let text = '';
  for (let at = 0; at < bytes.length; at += 4096) text += String.fromCharCode(...bytes.subarray(at, at + 4096));
  return {...result, lines, bundle: btoa(text)};
}, options);
const saved = (name, {bundle}) => {
  writeFileSync(join(folder, name), Buffer.from(bundle, 'base64'));
  return join(folder, name);
};

before(async () => {
  debug('--layers', '0,1', '--prompt', sky, '--dump', join(folder, 'dump'));
  server = await startServer({recorded: join(folder, 'dump')});
  context = await openBrowser();
  page = await plainPage(context, server.origin);
});
after(cleanUp);

const recorded = '/models/recorded/stages.safetensors';

test('a load says where every shard came from', {timeout: 240_000}, async () => {
  const first = (await load(page, {log: 'verbose'})).map(({text}) => text).join('\n');
  assert.match(first, /\[loader\] Shard shard_\S+: network, [\d.]+ MB in/);
  assert.match(first, /\[loader\] Complete: tiny .* on .*swiftshader/i);
  const second = (await load(page, {log: 'verbose'})).map(({text}) => text).join('\n');
  assert.match(second, /\[loader\] Shard shard_\S+: OPFS, [\d.]+ MB in/);
  assert.doesNotMatch(second, /network/);
});

test('what was recorded natively holds, probes are the same numbers, and the bundle opens natively', {timeout: 240_000}, async () => {
  const result = await debugInPage(page, {
    compare: recorded, layers: [0, 1], trace: ['logits', 'ffn'],
    probes: [{id: 'sky', stage: 'q_rope', layers: [1], tokens: [-1], dims: [5]}, {stage: 'logits', dims: [476, 1189]}],
  });
  const {comparison} = result;
  assert.equal(comparison.firstBad, null, JSON.stringify(comparison.stages.at(-1)));
  assert.ok(comparison.stages.length > 30 && comparison.stages.some(({relError}) => relError > 0), 'nothing was compared');
  assert.equal(result.top[0].piece, ' blue');
  const {probes} = debug('--layers', '1', '--prompt', sky, '--probe', 'stage=q_rope,layers=1,dims=5', '--probe', 'stage=logits,dims=476,1189');
  assert.deepEqual(result.probes.map(({stage, position, dim}) => [stage, position, dim]), probes.map(({stage, position, dim}) => [stage, position, dim]));
  for (const [i, {value}] of result.probes.entries()) assert.ok(Math.abs(value - probes[i].value) < 0.1 * Math.abs(probes[i].value) + 0.2, `${value} and ${probes[i].value}`);
  assert.match(result.lines.find((line) => line.includes('LAYER_1')), /^\[ffn\] LAYER_1 layer1\.out +position 6 .*maxAbs=[\d.]+$/);
  assert.ok(result.lines.some((line) => /^\[logits\] TOP5 logits .* 1189:/.test(line)));
  assert.ok(!result.lines.some((line) => line.startsWith('[attn]')));
  const opened = debug('--layers', '0,1', '--compare', saved('good.safetensors', result));
  assert.equal(opened.first_bad, null);
  assert.equal(opened.bundle.backend, 'webgpu');
  assert.match(opened.bundle.device.name, /swiftshader/i);
  assert.ok(Object.keys(opened.bundle.kernels).length > 10);
  assert.match(opened.bundle.agent, /Chrome/);
});

test('a traced answer is the same answer', {timeout: 240_000}, async () => {
  const expected = native(tiny, '--raw', sky, '--max-tokens', '2');
  const {ids, traces} = await page.evaluate(async (prompt) => {
    const list = [];
    const result = await model.generate(prompt, {maxTokens: 2, debug: true, debugLayers: [2], onTrace: (trace) => list.push(trace)}).result;
    return {ids: result.ids, traces: list};
  }, sky);
  assert.deepEqual(ids, expected.token_ids);
  assert.deepEqual([...new Set(traces.map(({layer}) => layer))].sort(), [-1, 2]);
  const places = traces.filter(({tag}) => tag === 'LAYER_2').map(({position}) => position);
  assert.deepEqual(places, [6, 7]);
});

test('what cannot be read or found is refused, and the model stays', {timeout: 120_000}, async () => {
  const refused = (options) => page.evaluate(async (choices) => {
    try {
      const bytes = choices.bytes && new Uint8Array(choices.bytes);
      await model.debug(bytes ? {compare: bytes} : choices);
      return null;
    } catch ({code, message}) {
      return {code, message, usable: await model.usable()};
    }
  }, options);
  for (const [options, code, words] of [
    [{layers: [99]}, 'usage', /no such layer.*0 to 7/], [{bytes: [1, 2, 3]}, 'format', /cannot be read: it ends within its header/],
    [{bytes: [4, 0, 0, 0, 0, 0, 0, 0, 123, 34, 97, 34]}, 'format', /cannot be read/],
    [{compare: '/nowhere'}, 'network', /\/nowhere cannot be fetched.*404/], [{prompt: 'Hi', compare: recorded}, 'usage', /another prompt/],
    [{prompt: 'Hi', trace: 'kernel'}, 'usage', /kernel is no subject/], [{prompt: 'Hi', layers: [0], probes: [{stage: 'nothing'}]}, 'usage', /nothing/],
  ]) {
    const error = await refused(options);
    assert.equal(error?.code, code, JSON.stringify([options, error]));
    assert.match(error.message, words);
    assert.equal(error.usable, true);
  }
});

test('each line of the table about the browser runs', {timeout: 240_000}, async () => {
  const text = readFileSync(join(root, 'docs/debugging.md'), 'utf8');
  const lines = [...text.matchAll(/^\| .*? \| `((?:model|Doppler)\..*?)` \| `(.*?)` \|$/gm)];
  assert.ok(lines.length >= 7, 'the table was not found');
  for (const [, code, field] of lines) {
    const value = await page.evaluate(`(async () => { const answer = await (${code}); return JSON.stringify(answer${field}); })()`);
    assert.ok(value && value !== '[]' && value !== 'null', `${code} gives ${value} as ${field}`);
  }
});

// Every GELU of the page's kernels has another cubic term: what a miscompiled kernel is like.
test('a kernel that computes wrongly is named in the page, and natively by its bundle', {timeout: 240_000}, async () => {
  let planted = 0;
  server.fault = (request, response, path) => {
    if (!path?.endsWith('host_gpu.js')) return false;
    const source = readFileSync(path, 'utf8');
    const faulty = source.replace('{label: about.label, code}', "{label: about.label, code: code.replaceAll('0.044715', '-1.5')}");
    planted += faulty !== source;
    response.writeHead(200, {'content-type': 'text/javascript'});
    response.end(faulty);
    return true;
  };
  const other = await plainPage(await openBrowser(), server.origin);
  await load(other, {});
  const result = await debugInPage(other, {compare: recorded, layers: [0, 1]});
  assert.ok(planted > 0, 'the fault was not planted');
  assert.equal(result.comparison.firstBad, 'layer0.glu', JSON.stringify(result.comparison.stages.at(-1)));
  assert.ok(result.comparison.kernel, 'its kernel is not named');
  const opened = debug('--layers', '0,1', '--compare', saved('bad.safetensors', result));
  assert.equal(opened.status, 1);
  assert.equal(opened.first_bad, 'layer0.glu');
  assert.equal(opened.kernel, result.comparison.kernel);
  assert.match(opened.cause, /layer0\.glu is not what the plan makes of this run's own inputs/);
  const bad = result.comparison.stages.at(-1), same = opened.stages.at(-1);
  assert.ok(Math.abs(bad.relError - same.rel_error) < 0.01 * same.rel_error, `${bad.relError} in the page, ${same.rel_error} natively`);
});
