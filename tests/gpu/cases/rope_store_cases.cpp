#include <fmt/format.h>

#include <cmath>

#include "gpu/cases/attention_cases.h"
#include "gpu/cases/attention_truth.h"
#include "gpu/ops/attention.h"
#include "gpu/ops/elementwise.h"

namespace doppler::gpu {
namespace {

struct StoreCase {
  uint32_t heads, kv_heads, dim, first, tokens;
  bool norm;
  double rotated = 1;  // share of a head that turns
};

// The rotated queries are checked; what goes to the cache is checked by the tests and by attention_fused.
PreparedCase prepare_store(Device& device, CaseUse use, const StoreCase& c) {
  AttentionShape shape = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.dim};
  shape.pages = pages_for(c.first + c.tokens, 0, c.tokens);
  shape.table = c.dim % 3;
  const HeadNorm norm = {c.norm, 1e-6f, 1};
  CaseRandom random(c.dim * 131 + c.tokens + c.first);
  const size_t row = size_t{c.heads + 2 * c.kv_heads} * c.dim;
  const std::vector<float> qkv = random.floats(row * c.tokens, -30, 30);
  const std::vector<float> q_norm = random.floats(c.dim, -0.5, 1), k_norm = random.floats(c.dim, -0.5, 1);
  const RopeConfig rope{.theta = 10000, .rotated = c.rotated};
  const RopeTable table = make_rope_table(rope, static_cast<int>(c.dim));
  const size_t half = table.inv_freq.size();
  const std::vector<uint32_t> words = CacheMap(shape).state(c.first, c.first + c.tokens);
  const Buffer state = device.create_buffer("state", words.size() * 4);
  write<uint32_t>(device, state, words);
  PreparedCase p;
  p.out = device.create_buffer("q_out", size_t{c.tokens} * c.heads * c.dim * 4);
  p.recording = std::make_unique<Recording>(device, "rope_store");
  record_rope_store(
      *p.recording, "store", shape, norm, packed_projections(upload_floats(device, "qkv", qkv), shape),
      {state, upload_floats(device, "weights", head_weights(shape, q_norm, k_norm, {})),
       upload_floats(device, "rope",
                     rope_tables(table, static_cast<int>(c.first + c.tokens), static_cast<int>(c.dim / 2))),
       device.create_buffer("cache", kv_bytes(shape)), p.out, static_cast<uint32_t>(2 * half)},
      c.tokens, {});
  p.bytes = static_cast<double>(c.tokens) * c.dim * (8.0 * c.heads + 12.0 * c.kv_heads);
  p.flops = static_cast<double>(c.tokens) * c.dim * (c.heads + c.kv_heads) * 10;
  if (use != CaseUse::kCheck) return p;
  for (size_t i = 0; i < size_t{c.tokens} * c.heads; ++i) {
    const float* x = qkv.data() + i / c.heads * row + i % c.heads * c.dim;
    std::vector<double> normed(x, x + c.dim);
    if (c.norm) {
      double squares = 0;
      for (const double v : normed) squares += v * v;
      const double factor = 1 / std::sqrt(squares / c.dim + static_cast<double>(norm.eps));
      for (size_t d = 0; d < c.dim; ++d) {
        normed[d] *= factor * (static_cast<double>(norm.offset) + static_cast<double>(q_norm[d]));
      }
    }
    for (size_t d = 0; d < c.dim; ++d) {
      if (d >= 2 * half) {
        p.expected.push_back(normed[d]);
        p.bound.push_back(0x1p-23 * (c.norm ? c.dim / 4.0 + 14 : 0) * std::abs(normed[d]) + 1e-30);
        continue;
      }
      const size_t pair = d % half;
      const double position = static_cast<double>(c.first) + static_cast<double>(i / c.heads);
      const double angle = position * static_cast<double>(table.inv_freq[pair]);
      const double a = normed[pair], b = normed[pair + half];
      p.expected.push_back(d < half ? a * std::cos(angle) - b * std::sin(angle)
                                    : b * std::cos(angle) + a * std::sin(angle));
      // Norm: as many half-ulps as the sum has terms, f16 by the root, and a dozen. Rope: two products and a sum of
      // both partners, with table entries three half-ulps off.
      p.bound.push_back(0x1p-23 * ((c.norm ? c.dim / 4.0 + 14 : 0) + 6) * (std::abs(a) + std::abs(b)) + 1e-30);
    }
  }
  return p;
}

// The rotary embedding by itself.
PreparedCase prepare_rope(Device& device, CaseUse use, const RopeShape& shape, uint32_t first) {
  CaseRandom random(shape.head_dim * 131 + shape.tokens + first);
  const size_t half = shape.dims / 2, rows = size_t{shape.tokens} * shape.heads;
  const std::vector<float> x = random.floats(rows * shape.head_dim, -30, 30);
  const double rotated = static_cast<double>(shape.dims) / shape.head_dim;
  const RopeTable table = make_rope_table({.theta = 10000, .rotated = rotated}, static_cast<int>(shape.head_dim));
  const Buffer state = device.create_buffer("state", sizeof(DecodeState));
  write<DecodeState>(device, state, std::vector<DecodeState>{{.position = first}});
  PreparedCase p;
  p.out = device.create_buffer("out", x.size() * 4);
  p.recording = std::make_unique<Recording>(device, "rope");
  record_rope(
      *p.recording, "rope", shape, state,
      upload_floats(device, "rope",
                    rope_tables(table, static_cast<int>(first + shape.tokens), static_cast<int>(shape.head_dim / 2))),
      upload_floats(device, "x", x), p.out);
  p.bytes = 8.0 * static_cast<double>(x.size());
  p.flops = 3.0 * static_cast<double>(x.size());
  if (use != CaseUse::kCheck) return p;
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / shape.head_dim, d = i % shape.head_dim;
    if (d >= 2 * half) {
      p.expected.push_back(static_cast<double>(x[i]));
      p.bound.push_back(0);
      continue;
    }
    const size_t pair = d % half;
    const double a = static_cast<double>(x[row * shape.head_dim + pair]);
    const double b = static_cast<double>(x[row * shape.head_dim + pair + half]);
    const double angle = (static_cast<double>(first) + static_cast<double>(row / shape.heads)) *
                         static_cast<double>(table.inv_freq[pair]);
    p.expected.push_back(d < half ? a * std::cos(angle) - b * std::sin(angle)
                                  : b * std::cos(angle) + a * std::sin(angle));
    // Two products and a sum of both partners, with table entries three half-ulps off.
    p.bound.push_back(0x1p-23 * 6 * (std::abs(a) + std::abs(b)) + 1e-30);
  }
  return p;
}

}  // namespace

void append_rope_store_cases(std::vector<KernelCase>& cases) {
  const auto add = [&](const StoreCase& c, bool measure) {
    cases.push_back({"rope_store",
                     fmt::format("heads {}/{} dim {} tokens {} from {}{}", c.heads, c.kv_heads, c.dim, c.tokens,
                                 c.first, c.norm ? " norm" : "") +
                         (c.rotated < 1 ? fmt::format(", {} of a head", c.rotated) : ""),
                     measure, [=](Device& device, CaseUse use) { return prepare_store(device, use, c); }});
  };
  for (const uint32_t dim : {8u, 64u, 256u}) {
    for (const uint32_t first : {0u, 250u}) {
      for (const uint32_t dims : {dim, dim / 2, 0u}) {
        cases.push_back({"rope", fmt::format("heads 3 dim {} of {} tokens 9 from {}", dims, dim, first), false,
                         [=](Device& device, CaseUse use) {
                           const RopeShape shape = {.tokens = 9, .heads = 3, .head_dim = dim, .dims = dims};
                           return prepare_rope(device, use, shape, first);
                         }});
      }
    }
  }
  for (const uint32_t dim : {8u, 32u, 40u, 64u, 96u, 128u, 256u}) {
    add({4, 1, dim, 0, 1, true}, false);
    add({3, 3, dim, 250, 9, false}, false);
    add({4, 2, dim, 32760, 9, true}, false);
    add({4, 2, dim, 250, 9, true, 0.5}, false);
  }
  add({4, 1, 256, 4000, 1, true}, true);
  add({4, 1, 256, 0, 512, true}, true);
}

}  // namespace doppler::gpu
