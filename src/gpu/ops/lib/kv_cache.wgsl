// The cache of keys and values, and how kernels read it.

// snippet: kv_cache
// One layer's keys and values, in pages of kPage positions that sequences hold; state.pages says which page holds
// positions kPage · n to kPage · n + kPage - 1 of a sequence. A page, eight dims to a vec4<u32> ("chunk"):
//   keys   [kv_heads][chunks][kPage]  f16; neighbouring threads take neighbouring keys, each its whole dot product
//   values [kv_heads][kPage][chunks]  i16, in steps; neighbouring threads take neighbouring dims of one key
//   steps  [kv_heads][kPage]          f32, of the values
// As f16, the values were two thirds of the whole backend's error; keys gain less, and f16 needs no step.
// Indices count vec4<u32>, but those of steps count words. page: where it begins, slot: a position in it.
const kPage: u32 = 64;

fn page_size(kv_heads: u32, chunks: u32) -> u32 {
  return kv_heads * (2u * chunks * kPage + kPage / 4u);
}

fn key_index(page: u32, kv_head: u32, chunk: u32, slot: u32, chunks: u32) -> u32 {
  return page + (kv_head * chunks + chunk) * kPage + slot;
}

fn value_index(page: u32, kv_head: u32, slot: u32, chunk: u32, kv_heads: u32, chunks: u32) -> u32 {
  return page + ((kv_heads + kv_head) * kPage + slot) * chunks + chunk;
}

fn step_index(page: u32, kv_head: u32, slot: u32, kv_heads: u32, chunks: u32) -> u32 {
  return (page + 2u * kv_heads * kPage * chunks) * 4u + kv_head * kPage + slot;
}

// Eight dims of a value in steps, where `inverse` is one over the step.
fn pack_value(first: vec4<f32>, second: vec4<f32>, inverse: f32) -> vec4<u32> {
  let low = bitcast<vec4<u32>>(vec4<i32>(round(vec4<f32>(first.xz, second.xz) * inverse)));
  let high = bitcast<vec4<u32>>(vec4<i32>(round(vec4<f32>(first.yw, second.yw) * inverse)));
  return (low & vec4<u32>(0xffffu)) | (high << vec4<u32>(16u));
}

// The size of the largest dim, as bits: these have the order of the sizes, and a NaN's are above all others.
fn largest(first: vec4<f32>, second: vec4<f32>) -> u32 {
  let sizes = max(bitcast<vec4<u32>>(abs(first)), bitcast<vec4<u32>>(abs(second)));
  return max(max(sizes.x, sizes.y), max(sizes.z, sizes.w));
}

const kSteps: f32 = 32767.0;  // to the largest dim of a value
const kInfinity: u32 = 0x7f800000u;

// Of the largest dim, as bits. A dim that is no number makes a step that is none, so that the whole value is none.
fn step_of(most: u32) -> u32 {
  return select(bitcast<u32>(bitcast<f32>(most) / kSteps), most, most >= kInfinity);
}

fn inverse_step(most: u32) -> f32 {
  return select(0.0, kSteps / bitcast<f32>(most), most > 0u && most < kInfinity);
}

// Two dims of a value, in steps.
fn value_dims(word: u32) -> vec2<f32> {
  return vec2<f32>(f32(bitcast<i32>(word << 16u) >> 16u), f32(bitcast<i32>(word) >> 16u));
}

// snippet: heads = one
// One query head a workgroup.
alias Heads = f32;
const kHeads: u32 = 1;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads;
}

fn make_heads(x0: f32, x1: f32, x2: f32, x3: f32) -> Heads {
  return x0;
}

// snippet: heads = two
// Two query heads that share keys and values.
alias Heads = vec2<f32>;
const kHeads: u32 = 2;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads[i];
}

fn make_heads(x0: f32, x1: f32, x2: f32, x3: f32) -> Heads {
  return vec2<f32>(x0, x1);
}

// snippet: heads = four
// Four query heads that share keys and values.
alias Heads = vec4<f32>;
const kHeads: u32 = 4;

fn head_of(heads: Heads, i: u32) -> f32 {
  return heads[i];
}

fn make_heads(x0: f32, x1: f32, x2: f32, x3: f32) -> Heads {
  return vec4<f32>(x0, x1, x2, x3);
}

// snippet: eight
// Eight dims of a cached key or value against `Heads`: several query heads, or rows, at once. Kernels
// that use this hold their queries in a workgroup array `query`, [dim] of Heads.
//
// Named members rather than arrays: compilers keep them in registers.
struct EightChunks {
  a: vec4<u32>,
  b: vec4<u32>,
  c: vec4<u32>,
  d: vec4<u32>,
  e: vec4<u32>,
  f: vec4<u32>,
  g: vec4<u32>,
  h: vec4<u32>,
}

struct EightHeads {
  a: Heads,
  b: Heads,
  c: Heads,
  d: Heads,
  e: Heads,
  f: Heads,
  g: Heads,
  h: Heads,
}

// Eight dims of the queries, from index `at` on.
fn query_chunk(at: u32) -> EightHeads {
  return EightHeads(query[at], query[at + 1u], query[at + 2u], query[at + 3u], query[at + 4u], query[at + 5u],
                    query[at + 6u], query[at + 7u]);
}

fn dot_chunk(key: vec4<u32>, q: EightHeads) -> Heads {
  let a = unpack2x16float(key.x);
  let b = unpack2x16float(key.y);
  let c = unpack2x16float(key.z);
  let d = unpack2x16float(key.w);
  return ((q.a * a.x + q.b * a.y) + (q.c * b.x + q.d * b.y)) + ((q.e * c.x + q.f * c.y) + (q.g * d.x + q.h * d.y));
}

fn no_mix() -> EightHeads {
  let zero = Heads(0.0);
  return EightHeads(zero, zero, zero, zero, zero, zero, zero, zero);
}

fn scaled(m: EightHeads, by: Heads) -> EightHeads {
  return EightHeads(m.a * by, m.b * by, m.c * by, m.d * by, m.e * by, m.f * by, m.g * by, m.h * by);
}

// prob: the weight of the value, times its step.
fn mix_in(m: EightHeads, prob: Heads, value: vec4<u32>) -> EightHeads {
  let a = value_dims(value.x);
  let b = value_dims(value.y);
  let c = value_dims(value.z);
  let d = value_dims(value.w);
  return EightHeads(m.a + prob * a.x, m.b + prob * a.y, m.c + prob * b.x, m.d + prob * b.y, m.e + prob * c.x,
                    m.f + prob * c.y, m.g + prob * d.x, m.h + prob * d.y);
}
