// The outputs of a run's steps: kept as they come, in numbers, and as a file that `doppler debug --compare` reads.
import {DopplerError} from './errors.js';

/** @typedef {{name: string, width: number, position: number, rows: number, data: Float32Array}} Stage */

export class Capture {
  constructor() {
    this.stages = new Map();
  }

  add(name, data, tokens, position) {
    if (tokens < 1) return;
    const stage = this.stages.get(name) ?? {name, width: data.length / tokens, position, rows: 0, pieces: []};
    stage.rows += tokens;
    stage.pieces.push(data);
    this.stages.set(name, stage);
  }

  /** The stages in the order of the plan's steps. */
  take(steps) {
    return steps.filter(({name}) => this.stages.has(name)).map(({name}) => {
      const {pieces, ...stage} = this.stages.get(name);
      const data = new Float32Array(stage.rows * stage.width);
      let at = 0;
      for (const piece of pieces) {
        data.set(piece, at);
        at += piece.length;
      }
      return {...stage, data};
    });
  }
}

/** Numbers about all of the values: those that are not finite are counted and left out. */
export function statistics(values) {
  let min = Infinity, max = -Infinity, sum = 0, squares = 0, notFinite = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) {
      ++notFinite;
      continue;
    }
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    squares += value * value;
  }
  const count = Math.max(1, values.length - notFinite);
  if (notFinite === values.length) min = max = 0;
  return {min, max, largest: Math.max(Math.abs(min), Math.abs(max)), mean: sum / count, rms: Math.sqrt(squares / count), values: values.length, notFinite};
}

export const rowOf = ({data, width}, row) => data.subarray(row * width, (row + 1) * width);

const attention = new Set(['attn_norm', 'q_proj', 'k_proj', 'v_proj', 'q_norm', 'k_norm', 'q_scale', 'q_rope', 'k_rope',
  'attention', 'attn_out', 'post_attn_norm', 'attn_residual']);

/** What a step is part of (embed, attn, ffn or logits), its layer (-1: none), and the word by which scripts find its line. */
export function placeOf(name) {
  const [, layer, part] = /^layer(\d+)\.(.+)$/.exec(name) ?? [];
  if (layer === undefined) {
    const subject = name === 'embed' ? 'embed' : 'logits';
    return {subject, layer: -1, tag: {final_norm: 'FINAL_HIDDEN', logits: 'TOP5'}[name] ?? ''};
  }
  return {subject: attention.has(part) ? 'attn' : 'ffn', layer: Number(layer), tag: part === 'out' ? `LAYER_${layer}` : ''};
}

/** The line of a trace, as the native program prints it. */
export function traceLine({subject, tag, step, position, min, max, mean, rms, largest, notFinite, top}) {
  const short = (value) => Number(value.toPrecision(4)).toString();
  const best = top ? ` ${top.map(({id, logit}) => `${id}:${logit.toFixed(2)}`).join(' ')}` : '';
  return `[${subject}] ${tag ? `${tag} ` : ''}${step.padEnd(22)} position ${String(position).padEnd(5)} min ${short(min)} max ${short(max)} mean ${short(mean)} rms ${short(rms)} maxAbs=${short(largest)}${notFinite ? ' NOT FINITE' : ''}${best}`;
}

/** The likeliest tokens of a row of logits, with their probability. */
export function likeliest(logits, count) {
  const best = [];
  for (let id = 0; id < logits.length; ++id) {
    if (best.length === count && !(logits[id] > best[count - 1].logit)) continue;
    const place = best.findIndex(({logit}) => logits[id] > logit);
    best.splice(place < 0 ? best.length : place, 0, {id, logit: logits[id]});
    if (best.length > count) best.pop();
  }
  let total = 0;
  for (const logit of logits) total += Math.exp(logit - best[0].logit);
  return best.map(({id, logit}) => ({id, logit, probability: Math.exp(logit - best[0].logit) / total}));
}

const malformed = (why) => new DopplerError('format', `the stages to compare with cannot be read: ${why}. Expected a file of tools/dump_reference.py, stages.safetensors of doppler debug --dump, or a bundle`);

/** A safetensors file with one f32 [rows, width] per stage. */
export function readStages(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = bytes.length >= 8 ? Number(view.getBigUint64(0, true)) : bytes.length;
  if (length > bytes.length - 8) throw malformed('it ends within its header');
  let header, positions, promptIds, bundle;
  const parsed = (text, otherwise) => (text ? JSON.parse(text) : otherwise);
  try {
    header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
    const about = header.__metadata__ ?? {};
    positions = parsed(about.positions, {});
    promptIds = parsed(about.prompt_ids, []);
    bundle = parsed(about.bundle, null);
  } catch (error) {
    throw malformed(error.message);
  }
  const stages = [];
  for (const [name, {dtype, shape, data_offsets: [begin, end] = []}] of Object.entries(header)) {
    if (name === '__metadata__') continue;
    if (dtype !== 'F32' || shape?.length !== 2 || end - begin !== 4 * shape[0] * shape[1] || !(shape[0] > 0 && shape[1] > 0) || 8 + length + end > bytes.length) {
      throw malformed(`${name} is not f32 [rows, width] within the file`);
    }
    // A copy, since tensors need not lie where a Float32Array may begin.
    const data = new Float32Array(bytes.slice(8 + length + begin, 8 + length + end).buffer);
    stages.push({name, width: shape[1], position: positions[name] ?? 0, rows: shape[0], data});
  }
  return {stages, promptIds, artefact: header.__metadata__?.artefact ?? '', bundle};
}

/** The same, written: what a bundle says beside the stages goes into its metadata. */
export function writeStages(stages, {promptIds, source, artefact, bundle}) {
  const positions = Object.fromEntries(stages.filter(({position}) => position).map(({name, position}) => [name, position]));
  const header = {__metadata__: {
    order: JSON.stringify(stages.map(({name}) => name)), positions: JSON.stringify(positions),
    prompt_ids: JSON.stringify(promptIds), source, artefact, bundle: JSON.stringify(bundle),
  }};
  let at = 0;
  for (const {name, rows, width, data} of stages) header[name] = {dtype: 'F32', shape: [rows, width], data_offsets: [at, at += data.byteLength]};
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = Math.ceil(text.length / 8) * 8;
  const bytes = new Uint8Array(8 + padded + at).fill(32, 8, 8 + padded);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(padded), true);
  bytes.set(text, 8);
  at = 8 + padded;
  for (const {data} of stages) {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return bytes;
}
