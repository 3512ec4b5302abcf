// `doppler bench inference --surface browser` runs this: the same workload, in headless Chromium.
//   node web/tools/bench.mjs MODEL [--prompt-tokens 512] [--tokens 128] [--runs 5] [--profile-dir DIR] [--json]
// The first load of a fresh profile is cold (network, hash, storage, GPU), the second warm (storage, GPU).
import {existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {createServer} from 'node:http';
import {createRequire} from 'node:module';
import {cpus, tmpdir} from 'node:os';
import {dirname, join, resolve} from 'node:path';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';
import {fileFor, sendFile} from './serve.mjs';

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const site = join(web, 'dist');
const lentPort = 47113;

function stop(code, message) {
  process.stderr.write(`doppler: ${message}\n`);
  process.exit(code);
}

const {values: options, positionals} = parseArgs({
  allowPositionals: true,
  options: {
    'prompt-tokens': {type: 'string', default: '512'}, tokens: {type: 'string', default: '128'},
    runs: {type: 'string', default: '5'}, context: {type: 'string', default: '0'},
    'decode-batch': {type: 'string', default: '8'}, 'profile-dir': {type: 'string'},
    build: {type: 'string', default: join(dirname(web), 'build')}, json: {type: 'boolean', default: false},
  },
});
const workload = {
  prompt_tokens: Number(options['prompt-tokens']), tokens: Number(options.tokens), runs: Number(options.runs),
  threads: 0, decode_batch: Number(options['decode-batch']),
};
const folder = resolve(positionals[0] ?? join(dirname(web), 'models', 'tiny'));
if (!existsSync(join(folder, 'manifest.json'))) stop(3, `there is no model in ${folder}: no manifest.json`);
if (!existsSync(join(site, 'lib', 'doppler.wasm'))) stop(3, 'the page is not built. Build it: npm run build in web/, or ./run --web once');
if (!existsSync(join(options.build, 'playwright', 'version'))) stop(3, `playwright-core is not there. Fetch it: tools/fetch_playwright.sh ${options.build}`);
const {chromium} = createRequire(join(options.build, 'playwright', 'package.json'))('playwright-core');
const browser = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
if (!browser) stop(3, 'no Chromium is installed. Install the package chromium');

const percentile = (list, share) => {
  const sorted = [...list].sort((a, b) => a - b);
  const at = share / 100 * (sorted.length - 1);
  const low = Math.floor(at);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low);
};
const median = (list) => percentile(list, 50);
const say = (text) => process.stderr.isTTY && process.stderr.write(`\r\x1b[K${text}`);

const server = createServer((request, response) => {
  const match = /^\/model\/(.*)$/.exec(new URL(request.url, 'http://localhost').pathname);
  sendFile(request, response, match ? fileFor(`/${match[1]}`, folder) : fileFor(request.url, site));
});
const lent = options['profile-dir'] !== undefined;
// A port is part of an origin, and stored models belong to an origin: a lent profile stays warm under one port only.
await new Promise((done) => {
  server.on('error', () => stop(3, `port ${lentPort} is taken, and a profile that is used again needs it`));
  server.listen(lent ? lentPort : 0, 'localhost', done);
});
const origin = `http://localhost:${server.address().port}`;

const profile = lent ? resolve(options['profile-dir']) : mkdtempSync(join(tmpdir(), 'doppler-bench-'));
mkdirSync(profile, {recursive: true});
const hardware = existsSync('/dev/dri') || existsSync('/dev/nvidia0');
const args = ['--no-sandbox', '--disable-background-networking', '--disable-component-update', '--enable-unsafe-webgpu',
  ...(hardware ? ['--enable-features=Vulkan', '--ignore-gpu-blocklist'] : ['--use-webgpu-adapter=swiftshader'])];
const context = await chromium.launchPersistentContext(profile, {executablePath: browser, headless: true, args});
let failed = null;
try {
  const page = await context.newPage();
  await page.goto(`${origin}/`);
  const context_tokens = Number(options.context) || workload.prompt_tokens + workload.tokens;
  const load = () => page.evaluate(async ([url, tokens]) => {
    const {Doppler} = await import('/lib/index.js');
    await globalThis.model?.unload();
    const start = performance.now();
    const phases = new Set();
    globalThis.model = await Doppler.load(url, {context: tokens, onProgress: ({phase}) => phases.add(phase)});
    return {ms: performance.now() - start, info: model.info, cold: phases.has('download')};
  }, [`${origin}/model/`, context_tokens]);
  say('loading');
  const first = await load();
  const second = first.cold ? await load() : first;
  const result = {prefill: [], decode: [], first: [], token: [], record: []};
  let bytesPerToken = 0;
  for (let run = -1; run < workload.runs; ++run) {
    say(run < 0 ? 'warming up' : `run ${run + 1} of ${workload.runs}`);
    const answer = await page.evaluate((request) => model.bench(request),
      {promptTokens: workload.prompt_tokens, tokens: workload.tokens, decodeBatch: workload.decode_batch});
    ({bytesPerToken} = answer);
    if (run < 0) continue;
    result.first.push(answer.firstTokenMs);
    result.prefill.push(workload.prompt_tokens * 1000 / answer.firstTokenMs);
    result.decode.push(workload.tokens * 1000 / answer.tokenMs.reduce((sum, ms) => sum + ms, 0));
    result.token.push(...answer.tokenMs);
    result.record.push(answer.recordMs * 1e6 / answer.dispatches);
  }
  const stats = await page.evaluate(() => model.stats());
  say('');
  const {info} = second;
  const decodeBytes = median(result.decode) * bytesPerToken;
  const json = {
    model: info.id, quantization: info.quantization, backend: 'webgpu', surface: 'browser', cpu: cpus()[0]?.model ?? '',
    adapter: info.adapter.name, workload,
    load_ms: second.ms, load: {cold_ms: first.cold ? first.ms : null, warm_ms: second.ms},
    prefill_tok_s: {median: median(result.prefill), runs: result.prefill},
    decode_tok_s: {median: median(result.decode), runs: result.decode},
    first_token_ms: {median: median(result.first), runs: result.first},
    token_ms: {p50: percentile(result.token, 50), p95: percentile(result.token, 95), p99: percentile(result.token, 99)},
    record_ns_per_dispatch: median(result.record),
    memory: {artefact_bytes: info.artefactBytes, kv_bytes: info.kvBytes, peak_bytes: stats.heapBytes, gpu_bytes: stats.bufferBytes},
    bytes_per_token: bytesPerToken, decode_gb_s: decodeBytes / 1e9, read_bandwidth_gb_s: null, bandwidth_share: null,
  };
  if (options.json) {
    console.log(JSON.stringify(json, null, 1));
  } else {
    const row = (name, value) => console.log(`  ${name.padEnd(18)} ${value}`);
    console.log(`${json.model} ${json.quantization} in Chromium on ${json.adapter} (${json.cpu})`);
    row('prefill', `${json.prefill_tok_s.median.toFixed(1)} tok/s (${workload.prompt_tokens} tokens, median of ${workload.runs})`);
    row('decode', `${json.decode_tok_s.median.toFixed(2)} tok/s (${workload.tokens} tokens; a token takes ${json.token_ms.p50.toFixed(1)} ms, p95 ${json.token_ms.p95.toFixed(1)}, p99 ${json.token_ms.p99.toFixed(1)})`);
    row('first token', `${json.first_token_ms.median.toFixed(0)} ms`);
    row('load', `${first.cold ? `cold ${first.ms.toFixed(0)} ms, ` : ''}warm ${second.ms.toFixed(0)} ms`);
    row('recording', `${json.record_ns_per_dispatch.toFixed(0)} ns a dispatch`);
    row('read per token', `${(bytesPerToken / 1e6).toFixed(1)} MB`);
    row('decode reads', `${json.decode_gb_s.toFixed(2)} GB/s`);
    row('memory', `${(stats.heapBytes / 2 ** 20).toFixed(0)} MiB of WebAssembly heap, ${(stats.bufferBytes / 2 ** 20).toFixed(0)} MiB on the GPU`);
  }
} catch (error) {
  failed = error;
} finally {
  await context.close();
  server.close();
  if (!lent) rmSync(profile, {recursive: true, force: true, maxRetries: 5, retryDelay: 200});
}
if (failed) stop(7, failed.message.split('\n')[0]);
