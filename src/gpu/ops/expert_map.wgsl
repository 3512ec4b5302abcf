// Groups the entries (token, place) of a route by expert, in the order of the entries, and cuts every expert's into tiles
// of at most tile_tokens. One workgroup; a thread an expert.
// use: top_experts

override threads: u32 = 256;  // at least kMostExperts
const kChunk = 1024u;

struct Params {
  entries: u32,      // tokens · k
  k: u32,
  experts: u32,
  tile_tokens: u32,
  tiles: u32,        // room; tiles nobody needs get no entries
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> route: array<f32>;             // [tokens, 2k]
@group(0) @binding(2) var<storage, read_write> entries: array<u32>;     // [entries]: token · k + place
@group(0) @binding(3) var<storage, read_write> tiles: array<vec4<u32>>;  // expert, first entry, entries, where its rows are

var<workgroup> chunk: array<u32, kChunk>;
var<workgroup> counts: array<u32, kMostExperts>;

fn read_chunk(first: u32, lane: u32) {
  workgroupBarrier();
  for (var i = lane; i < min(kChunk, params.entries - first); i += threads) {
    let entry = first + i;
    chunk[i] = u32(route[entry / params.k * 2u * params.k + entry % params.k]);
  }
  workgroupBarrier();
}

@compute @workgroup_size(threads)
fn main(@builtin(local_invocation_index) lane: u32) {
  var count = 0u;
  for (var first = 0u; first < params.entries; first += kChunk) {
    read_chunk(first, lane);
    for (var i = 0u; i < min(kChunk, params.entries - first); i++) {
      count += select(0u, 1u, chunk[i] == lane);
    }
  }
  if (lane < kMostExperts) {
    counts[lane] = count;
  }
  workgroupBarrier();
  var at = 0u;    // of this expert's entries
  var tile = 0u;  // of its tiles
  for (var e = 0u; e < min(lane, params.experts); e++) {
    at += counts[e];
    tile += (counts[e] + params.tile_tokens - 1u) / params.tile_tokens;
  }
  for (var done = 0u; done < count; done += params.tile_tokens) {
    tiles[tile] = vec4<u32>(lane, at + done, min(params.tile_tokens, count - done), lane);
    tile++;
  }
  if (lane == params.experts - 1u) {
    for (; tile < params.tiles; tile++) {
      tiles[tile] = vec4<u32>(0u);
    }
  }
  for (var first = 0u; first < params.entries; first += kChunk) {
    read_chunk(first, lane);
    for (var i = 0u; i < min(kChunk, params.entries - first); i++) {
      if (chunk[i] == lane) {
        entries[at] = first + i;
        at++;
      }
    }
  }
}
