// A value that is no number on its way through the cache: whoever sees its key is told so, and nobody else.
#include <cstring>
#include <limits>

#include "gpu/attention_problem.h"
#include "gpu/gpu_test.h"
#include "gpu/ops/attention.h"

namespace doppler::gpu {
namespace {

constexpr uint32_t kHeads = 4, kKvHeads = 2, kDim = 40, kTokens = 70, kWindow = 5;

struct Layer {
  explicit Layer(Device& d) : device(d) {
    shape = {.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim};
    shape.window = kWindow;
    shape.pages = pages_for(kTokens + 1, kWindow, kTokens);
    shape.scale = 0.2f;
    cache = upload(device, "cache", std::vector<uint16_t>(CacheMap{shape}.elements(), kUnsetElement));
    weights = upload(device, "weights", head_weights(shape, {}, {}, {}));
    rope = upload(device, "rope", rope_tables(make_rope_table({.theta = 10000}, kDim), kTokens + 1));
  }

  // Rows of [tokens, heads · dim] after the tokens from 0 on.
  std::vector<float> prefill(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v) {
    const Buffer rotated = device.create_buffer("q", q.size() * 4), out = device.create_buffer("out", q.size() * 4);
    const Buffer state = upload(device, "state", CacheMap(shape).state(0, kTokens));
    Recording recording(device, "prefill");
    record_rope_store(
        recording, "store", shape, {},
        separate_projections(upload(device, "q", q), upload(device, "k", k), upload(device, "v", v), shape),
        {state, weights, rope, cache, rotated}, kTokens, {});
    record_attention_prefill(recording, "attention", shape, {state, rotated, cache, weights, out}, kTokens, {});
    device.submit(recording);
    return read<float>(device, out, q.size());
  }

  // The token after those.
  std::vector<float> decode(std::vector<float> q, const std::vector<float>& k, const std::vector<float>& v) {
    const size_t width = q.size();
    q.insert(q.end(), k.begin(), k.end());
    q.insert(q.end(), v.begin(), v.end());
    const Buffer out = device.create_buffer("out", width * 4);
    const AttentionDecodeBuffers buffers = {upload(device, "state", CacheMap(shape).state(kTokens, kTokens + 1)),
                                            weights, cache, device.create_buffer("partials", partial_bytes(shape, 2))};
    Recording recording(device, "decode");
    record_attention_fused(recording, "attention", shape, {}, packed_projections(upload(device, "qkv", q), shape), rope,
                           buffers, 2);
    record_attention_merge(recording, "merge", shape, buffers.state, buffers.partials, out, 2);
    device.submit(recording);
    return read<float>(device, out, width);
  }

  float step(size_t kv_head, size_t position) {
    const CacheMap map{shape};
    const std::vector<uint16_t> stored = read<uint16_t>(device, cache, map.elements());
    float step = 0;
    std::memcpy(&step, &stored[map.step(kv_head, position)], sizeof(step));
    return step;
  }

  Device& device;
  AttentionShape shape;
  Buffer cache, weights, rope;
};

// Is the row of a kv head's queries made of numbers? All of it, or nothing.
void expect_numbers(bool expected, std::span<const float> row, uint32_t kv_head, const std::string& where) {
  const size_t share = row.size() / kKvHeads;
  const std::span<const float> own = row.subspan(kv_head * share, share);
  const auto count = std::count_if(own.begin(), own.end(), [](float x) { return std::isfinite(x); });
  EXPECT_EQ(count, expected ? static_cast<std::ptrdiff_t>(share) : 0) << where << ", kv head " << kv_head;
}

TEST(NotANumber, InAValueReachesThoseWhoSeeItAndNobodyElse) {
  DOPPLER_NEED_DEVICE(device);
  const size_t q_width = kHeads * kDim, kv_width = kKvHeads * kDim;
  const std::vector<float> q = random_floats(kTokens * q_width, 1, 1), k = random_floats(kTokens * kv_width, 1, 2);
  std::vector<float> v = random_floats(kTokens * kv_width, 1, 3);
  const std::vector<float> plain = Layer(device).prefill(q, k, v);
  constexpr size_t kNaNAt = 61, kInfAt = 3;  // of kv head 1 and 0
  v[kNaNAt * kv_width + kDim + 17] = std::numeric_limits<float>::quiet_NaN();
  v[kInfAt * kv_width + 2] = -std::numeric_limits<float>::infinity();
  Layer layer(device);
  const std::vector<float> got = layer.prefill(q, k, v);
  for (size_t t = 0; t < kTokens; ++t) {
    const std::span<const float> row = std::span(got).subspan(t * q_width, q_width);
    const auto sees = [&](size_t at) { return t >= at && t < at + kWindow; };
    expect_numbers(!sees(kInfAt), row, 0, "token " + std::to_string(t));
    expect_numbers(!sees(kNaNAt), row, 1, "token " + std::to_string(t));
    for (size_t i = 0; i < q_width; ++i) {
      if (std::isfinite(row[i])) {
        ASSERT_EQ(row[i], plain[t * q_width + i]) << t << " " << i;
      }
    }
  }
  EXPECT_TRUE(std::isnan(layer.step(1, kNaNAt)));
  EXPECT_FALSE(std::isfinite(layer.step(0, kInfAt)));
  EXPECT_TRUE(std::isfinite(layer.step(0, kNaNAt)));

  // A decoded token stores its own, and both are out of its window.
  const std::vector<float> next_q = random_floats(q_width, 1, 4), next_k = random_floats(kv_width, 1, 5);
  std::vector<float> next_v = random_floats(kv_width, 1, 6);
  next_v[kDim - 1] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> next = layer.decode(next_q, next_k, next_v);
  EXPECT_TRUE(std::isnan(next[kDim - 1]));
  EXPECT_TRUE(std::isnan(layer.step(0, kTokens)));
  EXPECT_TRUE(std::isfinite(layer.step(1, kTokens)));
  expect_numbers(true, next, 1, "the decoded token");
}

}  // namespace
}  // namespace doppler::gpu
