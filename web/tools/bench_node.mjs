// Prefill and decode of a model under Node, on the GPU that the package `webgpu` finds. Needs Node 25 and lib/doppler.wasm
// (node tools/build.mjs --library).
//   node tools/bench_node.mjs FOLDER [--prompt-tokens 512] [--tokens 128] [--runs 9] [--safe]
//     --safe   Dawn as it comes, without subgroup matrices and without f16 on NVIDIA
import {parseArgs} from 'node:util';
import {Doppler} from '../lib/node.js';

const {values: options, positionals: [folder]} = parseArgs({allowPositionals: true, options: {
  'prompt-tokens': {type: 'string', default: '512'}, tokens: {type: 'string', default: '128'},
  runs: {type: 'string', default: '9'}, safe: {type: 'boolean'},
}});
if (!folder) {
  console.error('usage: node tools/bench_node.mjs FOLDER [--prompt-tokens N] [--tokens N] [--runs N] [--safe]');
  process.exit(2);
}
const [promptTokens, tokens, runs] = ['prompt-tokens', 'tokens', 'runs'].map((name) => Number(options[name]));
const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

const model = await Doppler.load(folder, {
  context: Math.max(4096, promptTokens + tokens), dawn: options.safe ? [] : undefined,
});
const {name, f16, f16Matrices, int8Dot} = model.info.adapter;
console.log(`${name}: f16 ${f16}, f16 matrices ${f16Matrices}, int8 products ${int8Dot}`);
const prompt = Array.from({length: promptTokens}, (_, i) => (i * 7919 + 13) % model.info.vocab);
const first = [], each = [];
for (let run = -3; run < runs; ++run) {  // three to warm up
  const {firstTokenMs, tokenMs} = await model.bench({ids: prompt, tokens});
  if (run < 0) continue;
  first.push(firstTokenMs);
  each.push(tokenMs.reduce((sum, ms) => sum + ms, 0) / tokenMs.length);
}
const rate = (count, ms) => (count / ms * 1000).toFixed(count / ms < 0.1 ? 1 : 0);
const figures = (list, count) => `${rate(count, median(list))} tok/s (${rate(count, Math.max(...list))} to ${rate(count, Math.min(...list))})`;
console.log(`prefill of ${promptTokens}, to the first token: ${figures(first, promptTokens)}`);
console.log(`decode of ${tokens}: ${figures(each, 1)}`);
await model.unload();
process.exit(0);
