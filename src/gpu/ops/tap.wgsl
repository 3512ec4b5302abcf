// Keeps what a tap asks for of the token being decoded, behind that of the tokens before it in the same submit: values
// as they are, their norms, and their norms rotated (RoPE). A workgroup takes a group of a part.
// use: state
// use: rope_rotation

override threads: u32 = 256;

const kWords: u32 = 9;  // of a part
const kNorm: u32 = 1;   // bits of `how`
const kRotate: u32 = 2;

struct Params {
  first: u32,   // part of this dispatch; its y counts on from there
  stride: u32,  // f32 of a token's row
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: State;
// Parts: source, where the value begins there, its place in a row, its f32, f32 of a group, how, where its norm's weights
// begin in this table, and as f32 the norm's eps and offset. Then the weights of norms, as f32.
@group(0) @binding(2) var<storage, read> table: array<u32>;
@group(0) @binding(3) var<storage, read> rope: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read> a: array<f32>;
@group(0) @binding(5) var<storage, read> b: array<f32>;
@group(0) @binding(6) var<storage, read> c: array<f32>;
@group(0) @binding(7) var<storage, read> d: array<f32>;
@group(0) @binding(8) var<storage, read_write> taps: array<f32>;  // [tokens, stride]

var<workgroup> squares: array<f32, threads>;

fn load(source: u32, i: u32) -> f32 {
  switch (source) {
    case 0u: { return a[i]; }
    case 1u: { return b[i]; }
    case 2u: { return c[i]; }
    default: { return d[i]; }
  }
}

@compute @workgroup_size(threads)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let part = (params.first + id.y) * kWords;
  let source = table[part];
  let count = table[part + 3u];
  let group = table[part + 4u];
  let how = table[part + 5u];
  let weights = table[part + 6u];
  let offset = bitcast<f32>(table[part + 8u]);
  let begin = id.x * group;
  let size = min(group, max(count, begin) - begin);
  let start = table[part + 1u] + begin;
  let to = state.produced * params.stride + table[part + 2u] + begin;

  var factor = 1.0;
  if ((how & kNorm) != 0u) {
    var sum = 0.0;
    for (var i = lane; i < size; i += threads) {
      let x = load(source, start + i);
      sum += x * x;
    }
    squares[lane] = sum;
    workgroupBarrier();
    for (var half = threads / 2u; half > 0u; half /= 2u) {
      if (lane < half) {
        squares[lane] += squares[lane + half];
      }
      workgroupBarrier();
    }
    factor = 1.0 / sqrt(squares[0] / f32(group) + bitcast<f32>(table[part + 7u]));
  }
  let pairs = select(size, size / 2u, (how & kRotate) != 0u);  // their partners are half a group further
  for (var i = lane; i < pairs; i += threads) {
    var low = load(source, start + i);
    if ((how & kNorm) != 0u) {
      low *= factor * (offset + bitcast<f32>(table[weights + i]));
    }
    if ((how & kRotate) == 0u) {
      taps[to + i] = low;
      continue;
    }
    var high = load(source, start + pairs + i);
    if ((how & kNorm) != 0u) {
      high *= factor * (offset + bitcast<f32>(table[weights + pairs + i]));
    }
    let turn = rope_rotation(state.position, i, pairs);
    taps[to + i] = low * turn.x - high * turn.y;
    taps[to + pairs + i] = high * turn.x + low * turn.y;
  }
}
