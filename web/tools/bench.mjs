// `doppler bench inference --surface browser` drives headless Chromium through this: a request a line on standard input, its
// answer a line on standard output, JSON both. It measures and counts; what the numbers mean is told by the program.
//   {do: open, model: FOLDER, profile: FOLDER or ''} → {browser}
//   {do: load, context}                              → {ms, downloaded, kv_bytes, gpu}
//   {do: run, ids, first, tokens, decode_batch, taps} → {first_token_ms, token_ms, ids, submits, dispatches, device_bytes}
//   {do: score, ids}                                 → {choices, nll}
//   {do: memory} → {bytes}      {do: bandwidth} → {bytes_per_second}
// What fails is {failed: {code, message}}. The end of the input, or a signal, closes the browser.
import {existsSync, mkdtempSync, readFileSync, rmSync} from 'node:fs';
import {createRequire} from 'node:module';
import {tmpdir} from 'node:os';
import {basename, dirname, join} from 'node:path';
import {createInterface} from 'node:readline';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';
import {copyBandwidth} from './bandwidth.mjs';
import {Heaps} from './heaps.mjs';
import {kernelText} from './kernel_text.mjs';
import {fileFor, localServer, sendFile, sitePolicy} from './serve.mjs';

const web = dirname(dirname(fileURLToPath(import.meta.url)));
const root = dirname(web);
const site = join(web, 'dist');
// A port is part of an origin, and stored models belong to an origin: a profile that is kept stays warm under one port only.
const keptPort = 47113;
const {values: {build, headed}} = parseArgs({
  options: {build: {type: 'string', default: join(root, 'build')}, headed: {type: 'boolean', default: false}},
});

class Refusal extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

const undo = [];  // newest last
let closing = null;
function close() {
  return closing ??= (async () => {
    for (const step of undo.splice(0).reverse()) await step();
  })();
}

let page, context, heaps, modelUrl;

// What fails in the page comes back as data: an error that crosses would lose its code.
async function inPage(work, argument) {
  const {value, failed} = await page.evaluate(`(async (argument) => {
    try {
      return {value: await (${work})(argument)};
    } catch (error) {
      return {failed: {code: error.code ?? 'device', message: error.message}};
    }
  })(${JSON.stringify(argument ?? null)})`);
  if (failed) throw new Refusal(failed.code, failed.message);
  return value;
}

function chromium() {
  if (!existsSync(join(site, 'lib', 'doppler.wasm'))) throw new Refusal('file', 'the page is not built. Build it: npm run build in web/, or ./run --web once');
  if (!existsSync(join(build, 'playwright', 'version'))) throw new Refusal('file', `playwright-core is not there. Fetch it: tools/setup.sh test ${build}`);
  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
  if (!executablePath) throw new Refusal('file', 'no Chromium is installed. Install the package chromium');
  const hardware = existsSync('/dev/dri') || existsSync('/dev/nvidia0');
  const args = ['--no-sandbox', '--disable-background-networking', '--disable-component-update', '--enable-unsafe-webgpu',
    ...(hardware ? ['--enable-features=Vulkan', '--ignore-gpu-blocklist'] : ['--use-webgpu-adapter=swiftshader'])];
  const {chromium: driver} = createRequire(join(build, 'playwright', 'package.json'))('playwright-core');
  return (profile) => driver.launchPersistentContext(profile, {
    executablePath, headless: !headed, args, handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false,
  });
}

const verbs = {
  async open({model, profile}) {
    const launch = chromium();
    const name = basename(model);
    const server = localServer((request, response, path) => {
      const [folder, rest] = path.startsWith(`/bench/${name}/`) ? [model, path.slice(`/bench/${name}`.length)] : [site, path];
      sendFile(request, response, fileFor(rest, folder), sitePolicy);
    });
    await new Promise((resolve, reject) => {
      server.on('error', () => reject(new Refusal('file', `port ${keptPort} is taken, and a profile that is kept needs it`)));
      server.listen(profile ? keptPort : 0, '127.0.0.1', resolve);
    });
    undo.push(() => server.close());
    const origin = `http://localhost:${server.address().port}`;
    modelUrl = `${origin}/bench/${encodeURIComponent(name)}/`;
    let folder = profile;
    if (!folder) {
      folder = mkdtempSync(join(tmpdir(), 'doppler-bench-'));
      undo.push(() => rmSync(folder, {recursive: true, force: true, maxRetries: 5, retryDelay: 200}));
    }
    context = await launch(folder);
    undo.push(() => context.close());
    page = await context.newPage();
    await page.goto(`${origin}/icon.svg`);  // a page of the site that runs nothing of its own
    heaps = await Heaps.watch(context, page);
    return {browser: `Chromium ${context.browser()?.version() ?? await page.evaluate(() => /Chrome\/([\d.]+)/.exec(navigator.userAgent)?.[1] ?? '')}`.trim()};
  },

  async load({context: tokens}) {
    const loading = inPage(async ([url, room]) => {
      const {Doppler} = await import('/lib/index.js');
      await globalThis.model?.unload();
      const phases = new Set();
      const start = performance.now();
      globalThis.model = await Doppler.load(url, {context: room, onProgress: ({phase}) => phases.add(phase)});
      return {ms: performance.now() - start, downloaded: phases.has('download'), info: model.info};
    }, [modelUrl, tokens]);
    const {ms, downloaded, info: {adapter, kvBytes}} = await heaps.during(loading, 200);
    const names = {subgroups: 'subgroups', f16: 'f16', subgroupMatrix: 'subgroup matrix', int8Dot: 'int8 dot', timestamps: 'timestamps', software: 'software'};
    return {
      ms, downloaded, kv_bytes: kvBytes,
      gpu: {
        name: adapter.name, vendor: adapter.vendor, architecture: adapter.architecture, driver: adapter.description,
        backend: 'WebGPU', features: Object.keys(names).filter((key) => adapter[key]).map((key) => names[key]),
      },
    };
  },

  async run({ids, first, tokens, decode_batch: decodeBatch, taps}) {
    const result = await inPage((request) => model.bench(request), {ids, first, tokens, decodeBatch, taps});
    await heaps.look();
    return {
      first_token_ms: result.firstTokenMs, token_ms: result.tokenMs, ids: result.ids, submits: result.decodeSubmits,
      dispatches: result.decodeDispatches, device_bytes: result.deviceBytes,
    };
  },

  score: ({ids}) => inPage((request) => model.link.request('score', request), {ids}),

  async memory() {
    return {bytes: heaps.largest};
  },

  async bandwidth() {
    return {bytes_per_second: await inPage(copyBandwidth, kernelText(root, 'copy'))};
  },
};

process.stdout.on('error', () => {});  // nobody listens any more; the end of the input comes next
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => close().finally(() => process.exit(1)));
for await (const line of createInterface({input: process.stdin})) {
  let answer;
  try {
    const {do: verb, ...request} = JSON.parse(line);
    answer = await verbs[verb](request);
  } catch (error) {
    const code = error instanceof Refusal ? error.code : error.errno ? 'file' : 'device';
    answer = {failed: {code, message: String(error.message).split('\n')[0]}};
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await close();
process.exit(0);
