// llama.cpp (through node-llama-cpp) behind the line protocol of `doppler bench peers`: one JSON object a line in, one
// out. Run with node_modules beside the working folder:
//   {"model": PATH, "threads": 2, "context": 640}      → {"load_ms", "node_ms"}
//   {"prompt": [ids], "tokens": 128}                    → {"prefill_ms", "decode_ms", "ids": [...]}
//   {"logits": [ids], "to": FILE}                       → {"vocab"}, and f32 [ids, vocab] in the file
//   {"tokenize": TEXT, "special": false}                → {"ids": [...]}
//   {"text": [ids]}                                     → {"text": TEXT}
import {writeFile} from "node:fs/promises";
import {createInterface} from "node:readline";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

const began = performance.now();
const require = createRequire(process.cwd() + "/");
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(require.resolve("node-llama-cpp")).href);
const node_ms = performance.now();  // counted from the process's own start

let model, context;

async function load({model: modelPath, threads, context: contextSize}) {
  const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error, maxThreads: threads});
  model = await llama.loadModel({modelPath, gpuLayers: 0, useMmap: true});
  context = await model.createContext({contextSize, batchSize: Math.min(contextSize, 512), threads, sequences: 1});
  return {load_ms: performance.now() - began, node_ms};
}

async function run({prompt, tokens}) {
  const sequence = context.getSequence();
  const start = performance.now();
  const ids = [];
  let first = 0;
  // The first token comes out of the evaluation of the prompt; the others are decoded one by one.
  for await (const token of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
    if (ids.length === 0) first = performance.now();
    ids.push(token);
    if (ids.length > tokens) break;
  }
  const end = performance.now();
  await sequence.clearHistory();
  sequence.dispose();
  return {prefill_ms: first - start, decode_ms: end - first, ids};
}

// The logits behind each token.
async function writeLogits({logits, to}) {
  const sequence = context.getSequence();
  const generateNext = {logits: true, options: {temperature: 0}};
  const outputs = await sequence.controlledEvaluate(logits.map((id) => [id, {generateNext}]));
  const vocab = outputs[0].next.logits.size;
  const rows = new Float32Array(logits.length * vocab);
  outputs.forEach((output, row) => {
    for (const [id, logit] of output.next.logits) rows[row * vocab + id] = logit;
  });
  await writeFile(to, rows);
  await sequence.clearHistory();
  sequence.dispose();
  return {vocab};
}

for await (const line of createInterface({input: process.stdin})) {
  const request = JSON.parse(line);
  let reply;
  try {
    if (request.model) reply = await load(request);
    else if (request.prompt) reply = await run(request);
    else if (request.logits) reply = await writeLogits(request);
    else if (request.tokenize !== undefined) reply = {ids: model.tokenize(request.tokenize, request.special ?? false)};
    else if (request.text) reply = {text: model.detokenize(request.text, true)};
    else reply = {error: "an unknown request"};
  } catch (error) {
    reply = {error: String(error?.message ?? error)};
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}
process.exit(0);
