// Norm, rotary embedding and the cache's store against ref::norm and ref::rope.
#include "gpu/ops/attention.h"

#include <fmt/format.h>
#include <cstring>

#include "base/half.h"
#include "gpu/attention_problem.h"
#include "gpu/gpu_test.h"

namespace doppler::gpu {
namespace {

// Rows of width `heads · dim` through norm (if any) and rope, and how far a kernel in f32 may be from that.
// Norm: as many half-ulps as the sum has terms, f16 by the root, and a dozen; rope: two products and a sum of both
// partners with table entries three half-ulps off.
struct Expected {
  std::vector<float> value;
  std::vector<double> bound;
};

Expected rotated(const std::vector<float>& x, size_t width, size_t dim, const HeadNorm& norm,
                 const std::vector<float>& weight, const RopeTable& table, int first) {
  std::vector<float> normed = x;
  double ulps = 0;
  if (norm.on) {
    ref::norm(x, weight, norm.eps, norm.offset, normed);
    ulps = static_cast<double>(dim) / 4 + 14;
  }
  Expected e;
  e.value.resize(x.size());
  ref::rope(normed, static_cast<int>(width), static_cast<int>(dim), table, first, e.value);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t partner = i % dim < dim / 2 ? i + dim / 2 : i - dim / 2;
    const double size = std::abs(static_cast<double>(normed[i])) + std::abs(static_cast<double>(normed[partner]));
    e.bound.push_back(0x1p-23 * (ulps + 6) * size * static_cast<double>(table.magnitude) + 1e-30);
  }
  return e;
}

struct StoreCase {
  uint32_t heads, kv_heads, dim, tokens, first, window;
  bool norm, packed, follow_state;
  RopeConfig rope;
};

void check(Device& device, const StoreCase& c) {
  const std::string name = fmt::format("heads {}/{} dim {} tokens {} from {} norm {} packed {}", c.heads, c.kv_heads,
                                       c.dim, c.tokens, c.first, c.norm, c.packed);
  AttentionShape shape = {.heads = c.heads, .kv_heads = c.kv_heads, .head_dim = c.dim};
  shape.pages = pages_for(c.first + c.tokens, c.window, c.tokens);
  shape.table = c.tokens % 5;
  const size_t q_width = c.heads * c.dim, kv_width = c.kv_heads * c.dim;
  const std::vector<float> q = random_floats(c.tokens * q_width, 3, 1), k = random_floats(c.tokens * kv_width, 30, 2);
  std::vector<float> v = random_floats(c.tokens * kv_width, 1, 3);
  v[0] = 1e6f;  // a large dim among small ones
  v[7] = 1e-38f;
  const std::vector<float> q_norm = random_floats(c.dim, 0.5, 4), k_norm = random_floats(c.dim, 0.5, 5);
  const HeadNorm norm = {c.norm, 1e-6f, 1};
  const RopeTable table = make_rope_table(c.rope, static_cast<int>(c.dim));

  Projections projections;
  if (c.packed) {
    std::vector<float> rows;
    for (uint32_t t = 0; t < c.tokens; ++t) {
      for (const std::vector<float>* part : {&q, &k, static_cast<const std::vector<float>*>(&v)}) {
        const auto width = static_cast<ptrdiff_t>(part->size() / c.tokens);
        rows.insert(rows.end(), part->begin() + t * width, part->begin() + (t + 1) * width);
      }
    }
    projections = packed_projections(upload(device, "qkv", rows), shape);
  } else {
    projections = separate_projections(upload(device, "q", q), upload(device, "k", k), upload(device, "v", v), shape);
  }
  const CacheMap map{shape};
  const Buffer cache = upload(device, "cache", std::vector<uint16_t>(map.elements(), 0x1234));
  const Buffer q_out = device.create_buffer("q_out", q.size() * 4);
  const RopeStoreBuffers buffers = {
      upload(device, "state", map.state(c.follow_state ? c.first : 12345, c.first + c.tokens)),
      upload(device, "weights", head_weights(shape, q_norm, k_norm, {})),
      upload(device, "rope", rope_tables(table, static_cast<int>(c.first + c.tokens))), cache, q_out};
  Recording recording(device, "store");
  record_rope_store(recording, "store", shape, norm, projections, buffers, c.tokens,
                    c.follow_state ? FirstPosition{} : FirstPosition{c.first, false});
  device.submit(recording);

  const int first = static_cast<int>(c.first);
  const Expected want_q = rotated(q, q_width, c.dim, norm, q_norm, table, first);
  EXPECT_EQ(worst_of(read<float>(device, q_out, q.size()), want_q.value, want_q.bound), "") << name << ": q";
  const Expected want_k = rotated(k, kv_width, c.dim, norm, k_norm, table, first);
  const std::vector<uint16_t> got = read<uint16_t>(device, cache, map.elements());
  std::vector<bool> written(got.size());
  for (size_t i = 0; i < k.size(); i += c.dim) {
    const size_t position = c.first + i / kv_width, head = i % kv_width / c.dim;
    float step = 0;
    std::memcpy(&step, &got[map.step(head, position)], sizeof(step));
    written[map.step(head, position)] = written[map.step(head, position) + 1] = true;
    std::vector<float> value(c.dim);
    unpack_value(std::span(got).subspan(map.value(head, position, 0), c.dim), step, value.data());
    for (size_t d = 0; d < c.dim; ++d) {
      const size_t key_at = map.key(head, position, d);
      written[key_at] = written[map.value(head, position, d)] = true;
      // Half an ulp of f16, on top of what f32 may be off.
      const double key_bound =
          want_k.bound[i + d] * 1.01 + std::abs(static_cast<double>(want_k.value[i + d])) * 0x1p-11 + 0x1p-25;
      ASSERT_NEAR(f16_to_f32(got[key_at]), want_k.value[i + d], key_bound) << name << ": key " << position;
      ASSERT_NEAR(value[d], v[i + d], step * 0.51) << name << ": value " << position << " dim " << d;
    }
  }
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(written[i] || got[i] == 0x1234) << name << ": element " << i << " was not to be written";
  }
}

TEST(RopeStore, AgreesWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  const RopeConfig plain = {.theta = 10000}, million = {.theta = 1e6};
  RopeConfig yarn = {.theta = 150000, .scaling = RopeScaling::kYarn, .factor = 32};
  yarn.original_context = 4096;
  RopeConfig stretched = {.theta = 1e6, .scaling = RopeScaling::kLinear, .factor = 8};
  for (const uint32_t dim : {8u, 32u, 40u, 64u, 96u, 128u, 256u, 264u, 512u}) {
    check(device, {4, 1, dim, 1, 0, 0, true, true, true, plain});
    check(device, {4, 2, dim, 7, 250, 0, true, false, true, million});
    check(device, {3, 3, dim, 7, 1021, 0, false, true, false, stretched});
  }
  for (const uint32_t first : {0u, 1u, 255u, 256u, 257u, 511u, 4095u, 32767u}) {
    check(device, {2, 1, 64, 3, first, 0, true, true, true, plain});
    check(device, {2, 1, 64, 3, first, 0, false, true, true, yarn});
  }
  check(device, {4, 1, 256, 64, 470, 100, true, true, true, million});  // pages are used again
  check(device, {4, 2, 32, 64, 1000, 40, true, false, true, plain});
}

TEST(RopeTables, TurnAsTheAngleDoes) {
  const RopeTable table = make_rope_table({.theta = 10000}, 64);
  const std::vector<float> t = rope_tables(table, 40000);
  ASSERT_EQ(t.size(), 2u * 32 * (256 + 157));
  for (const int p : {0, 1, 255, 256, 300, 4095, 39999}) {
    for (size_t i = 0; i < 32; ++i) {
      const double angle = p * static_cast<double>(table.inv_freq[i]);
      const size_t fine = 2 * (static_cast<size_t>(p % 256) * 32 + i);
      const size_t coarse = 2 * (static_cast<size_t>(256 + p / 256) * 32 + i);
      const double c = static_cast<double>(t[fine]) * static_cast<double>(t[coarse]) -
                       static_cast<double>(t[fine + 1]) * static_cast<double>(t[coarse + 1]);
      EXPECT_NEAR(c, std::cos(angle), 3e-7) << p << " " << i;
    }
  }
}

TEST(HeadWeights, AreLaidOutSideBySide) {
  const AttentionShape shape = {.heads = 2, .kv_heads = 1, .head_dim = 8, .pages = 1};
  const std::vector<float> norm(8, 3), sinks = {5, 6};
  const std::vector<float> w = head_weights(shape, norm, {}, sinks);
  ASSERT_EQ(w.size(), 18u);
  EXPECT_EQ(w[7], 3);
  EXPECT_EQ(w[8], 0);
  EXPECT_EQ(w[17], 6);
  EXPECT_EQ(error_of([&] { head_weights(shape, sinks, {}, {}); }).code, ErrorCode::kInternal);
}

}  // namespace
}  // namespace doppler::gpu
