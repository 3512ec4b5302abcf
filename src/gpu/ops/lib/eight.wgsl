// Eight dims of a cached key or value (lib/kv_cache.wgsl) against `Heads`: several query heads, or rows, at once. Kernels
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

// share: of the value, times its step.
fn mix_in(m: EightHeads, share: Heads, value: vec4<u32>) -> EightHeads {
  let a = value_dims(value.x);
  let b = value_dims(value.y);
  let c = value_dims(value.z);
  let d = value_dims(value.w);
  return EightHeads(m.a + share * a.x, m.b + share * a.y, m.c + share * b.x, m.d + share * b.y, m.e + share * c.x,
                    m.f + share * c.y, m.g + share * d.x, m.h + share * d.y);
}
