// One run against another, stage by stage, up to the first that is out of bounds: the walk of src/debug/compare.cpp, which
// is too large for the engine's module. Why a step is wrong is told by the native program, from a bundle.
import {statistics} from './stages.js';

const layerOrder = ['attn_norm', 'q_proj', 'k_proj', 'v_proj', 'q_norm', 'k_norm', 'q_scale', 'q_rope', 'k_rope', 'attention',
  'attn_out', 'post_attn_norm', 'attn_residual', 'pre_ffn_norm', 'router', 'route', 'experts_gate_up', 'gate_proj', 'up_proj',
  'glu', 'experts_down', 'ffn_out', 'post_ffn_norm', 'out'];
const ends = ['final_norm', 'raw_logits', 'scaled_logits', 'logits'];
const growth = 3;  // by which a step may enlarge what it inherits

// Where a stage comes in the computation; -1 for a name nobody knows.
function rankOf(name) {
  if (name === 'embed') return 0;
  if (ends.includes(name)) return 1e9 + ends.indexOf(name);
  const [, layer, part] = /^layer(\d{1,5})\.(.+)$/.exec(name) ?? [];
  const place = layerOrder.indexOf(part);
  return place < 0 ? -1 : 1 + Number(layer) * 100 + place;
}

// The rows of both for the positions that both have.
function align(got, expected) {
  const first = Math.max(got.position, expected.position);
  const rows = Math.max(0, Math.min(got.position + got.rows, expected.position + expected.rows) - first);
  const part = ({data, position, width}) => data.subarray((first - position) * width, (first - position + rows) * width);
  return {position: first, rows, width: got.width, got: rows ? part(got) : [], expected: rows ? part(expected) : []};
}

function compareOne(got, expected, bounds, inherited, leftOut) {
  const result = {name: got.name, relError: 0, cosine: 1, elementError: 0, worst: null, ok: true, note: ''};
  if (got.width !== expected.width) {
    return {...result, ok: false, note: `has ${got.width} columns, the reference ${expected.width}`};
  }
  const a = align(got, expected);
  if (a.rows === 0) return {...result, note: 'no position in common'};
  const {rms} = statistics(a.expected);
  let difference = 0, size = 0, own = 0, inner = 0, finite = true;
  for (let i = 0; i < a.got.length; ++i) {
    const position = a.position + Math.floor(i / a.width);
    if (leftOut.has(position)) continue;
    const g = a.got[i], e = a.expected[i];
    const here = Number.isFinite(g) || !Number.isFinite(e);
    const d = here ? Math.abs(g - e) : Infinity;
    const ratio = d === 0 ? 0 : d / (Math.abs(e) + rms + 1e-30);
    if (ratio > result.elementError || (!here && finite)) {
      result.elementError = ratio;
      result.worst = {position, column: i % a.width, got: g, expected: e};
    }
    finite &&= here;
    difference += d * d;
    size += e * e;
    own += g * g;
    inner += g * e;
  }
  result.relError = size > 0 ? Math.sqrt(difference / size) : Math.sqrt(difference);
  result.cosine = size > 0 && own > 0 ? inner / Math.sqrt(size * own) : Number(size === own);
  if (!finite) result.note = 'not finite';
  result.ok = finite && result.relError <= bounds.relative && result.relError <= bounds.added + growth * inherited.relError &&
    result.elementError <= bounds.element + growth * inherited.elementError;
  return result;
}

const none = {relError: 0, elementError: 0};
const worse = (a, b) => ({relError: Math.max(a.relError, b.relError), elementError: Math.max(a.elementError, b.elementError)});

// Positions whose chosen experts differ though the router's scores were as good as equal: left out from there on.
function addNearTies(step, got, reference, bounds, leftOut) {
  const expected = reference.get(step.name), scores = reference.get(step.inputs[0]);
  const k = step.chosen;
  if (!expected || !scores || got.width !== 2 * k || expected.width !== 2 * k) return;
  const near = 4 * bounds.added * statistics(scores.data).rms;
  const first = Math.max(got.position, expected.position, scores.position);
  const last = Math.min(...[got, expected, scores].map(({position, rows}) => position + rows));
  for (let p = first; p < last; ++p) {
    const at = (stage, column) => stage.data[(p - stage.position) * stage.width + column];
    for (let i = 0; i < k; ++i) {
      const mine = at(got, i), theirs = at(expected, i);
      if (mine === theirs || mine >= scores.width || theirs >= scores.width) continue;
      if (Math.abs(at(scores, mine) - at(scores, theirs)) <= near) leftOut.add(p);
    }
  }
}

// Where a layer has one norm less, the norm before its feed-forward goes by the name post_attn_norm elsewhere.
function withOurNames(reference, planned) {
  const names = new Set(reference.map(({name}) => name));
  return reference.map((stage) => {
    const layer = stage.name.split('.')[0];
    const renamed = stage.name === `${layer}.post_attn_norm` && !planned.has(stage.name) &&
      !names.has(`${layer}.pre_ffn_norm`) && planned.has(`${layer}.pre_ffn_norm`);
    return renamed ? {...stage, name: `${layer}.pre_ffn_norm`} : stage;
  });
}

/**
 * @param run, reference lists of stages
 * @param steps the plan: [{name, inputs, attention, chosen, kernel}]
 * @param bounds {relative, added, element}
 */
export function compareStages(run, reference, steps, bounds) {
  const planned = new Map(steps.map((step) => [step.name, step]));
  const named = withOurNames(reference, planned);
  const known = named.filter(({name}) => rankOf(name) >= 0).sort((a, b) => rankOf(a.name) - rankOf(b.name));
  const runs = new Map(run.map((stage) => [stage.name, stage])), references = new Map(known.map((stage) => [stage.name, stage]));
  const result = {stages: [], firstBad: null, kernel: null, suspects: [], notCompared: named.filter(({name}) => rankOf(name) < 0).map(({name}) => name)};
  const leftOut = new Set();
  let lastGood = -1;
  for (const expected of known) {
    const step = planned.get(expected.name), got = runs.get(expected.name);
    if (step && !got) continue;                            // not tapped
    if (!step && expected.name === 'raw_logits') continue;  // the logits before their cap: the cap itself is compared
    let compared;
    if (step) {
      if (step.chosen) addNearTies(step, got, references, bounds, leftOut);
      let inherited = none;
      for (const input of step.inputs) {
        const before = result.stages.find(({name}) => name === input) ?? result.stages.at(-1);
        if (before) inherited = worse(inherited, before);
        // The tokens an attention compares see those that are left out, too.
        const [mine, theirs] = [runs.get(input), references.get(input)];
        if (leftOut.size && step.attention && mine && theirs) inherited = worse(inherited, compareOne(mine, theirs, bounds, none, new Set()));
      }
      compared = compareOne(got, expected, bounds, inherited, leftOut);
    } else {
      compared = {name: expected.name, relError: 1, cosine: 0, elementError: 0, worst: null, ok: false, note: 'the run has no such step'};
    }
    result.stages.push(compared);
    if (compared.ok) {
      lastGood = rankOf(compared.name);
      continue;
    }
    result.firstBad = compared.name;
    result.kernel = step?.kernel ?? null;
    const between = ({name}) => rankOf(name) > lastGood && rankOf(name) < rankOf(compared.name) && !references.has(name);
    result.suspects = steps.filter(between).map(({name}) => name);
    break;
  }
  return result;
}
