// The cache's tiles and the running softmax, against plain attention over keys and values rounded to 16 bits.
#include <gtest/gtest.h>

#include <cmath>

#include "cpu/isa.h"
#include "cpu/kv_cache.h"
#include "ref/ops.h"
#include "test_random.h"

namespace doppler::cpu {
namespace {

using doppler::testing::Random;

class AttendTest : public ::testing::TestWithParam<const Kernels*> {};

// What is left of vectors of `dim` numbers when they are kept in 16 bits.
std::vector<float> rounded(const Kernels& k, std::vector<float> v, int dim) {
  std::vector<int16_t> whole(static_cast<size_t>(dim));
  for (size_t i = 0; i < v.size(); i += whole.size()) {
    const float scale = k.to_i16(v.data() + i, whole.data(), dim);
    for (size_t d = 0; d < whole.size(); ++d) v[i + d] = scale * whole[d];
  }
  return v;
}

// One kv head, `heads` queries a row, `n` rows at positions first …, keys 0 … first+n-1 in a store of `capacity`.
void check(const Kernels& k, int dim, int heads, int n, int first, int window, int capacity, float softcap, bool sinks,
           uint64_t seed) {
  Random random(seed);
  const int total = first + n;
  const size_t width = static_cast<size_t>(dim);
  const auto keys = rounded(k, random.bells(width * static_cast<size_t>(total)), dim);
  const auto values = rounded(k, random.bells(width * static_cast<size_t>(total)), dim);
  const auto queries = random.bells(width * static_cast<size_t>(n * heads));
  const auto sink = random.bells(static_cast<size_t>(heads), 3);
  const Attention op{0, heads, 1, dim, window, 0.3f, softcap, sinks};
  std::vector<float> expected(queries.size());
  ref::attention(op, queries, keys, values, sinks ? sink : std::vector<float>(), first, expected);

  KvStore store;
  store.capacity = capacity;
  store.kv_heads = 1;
  store.dim = dim;
  const Memory memory(store.bytes(), "test");
  store.place(memory.data());
  std::vector<int16_t> half(width);
  for (int p = 0; p < total; ++p) {
    store.store(k, p % capacity, keys.data() + p * dim, values.data() + p * dim, half.data());
  }

  const int rows = n * heads;
  std::vector<float> scaled = queries, mixed(queries.size(), 0.0f), highest, sum;
  for (float& q : scaled) q *= op.scale;
  std::vector<int32_t> from, to;
  for (int r = 0; r < rows; ++r) {
    const int position = first + r / heads;
    from.push_back(window > 0 ? std::max(0, position - window + 1) : 0);
    to.push_back(position);
    highest.push_back(sinks ? sink[static_cast<size_t>(r % heads)] : -1e30f);
    sum.push_back(sinks ? 1.0f : 0.0f);
  }
  const QueryTile q{scaled.data(), from.data(), to.data(), rows, dim, softcap};
  std::vector<float> scratch(static_cast<size_t>(rows) * kAttendScratch);
  const int tiles = (std::min(capacity, total) + kKeyTile - 1) / kKeyTile;
  for (int t = 0; t < tiles;) {
    KeyTile some[kUnitTiles];
    const int count = std::min(1 + static_cast<int>(seed + static_cast<uint64_t>(t)) % kUnitTiles, tiles - t);
    for (int i = 0; i < count; ++i) some[i] = store.tile(0, t + i, 0, total - 1, 0, total);
    k.attend(q, some, count, {mixed.data(), highest.data(), sum.data()}, scratch.data(), t % 2 ? nullptr : store.keys);
    t += count;
  }
  for (int r = 0; r < rows; ++r) {
    for (int d = 0; d < dim; ++d) {
      const size_t i = static_cast<size_t>(r * dim + d);
      ASSERT_NEAR(mixed[i] / sum[static_cast<size_t>(r)], expected[i], 3e-5)
          << "dim " << dim << " heads " << heads << " n " << n << " first " << first << " window " << window << " row "
          << r << " column " << d;
    }
  }
}

TEST_P(AttendTest, AgreesWithTheReferenceOverShapes) {
  uint64_t seed = 100;
  for (const int dim : {2, 14, 16, 24, 40, 64, 96, 256}) {
    for (const int heads : {1, 2, 3, 4, 8}) {
      for (const int n : {1, 2, 5}) {
        for (const int first : {0, 1, 15, 16, 40, 100}) {
          check(*GetParam(), dim, heads, n, first, 0, first + n + static_cast<int>(seed % 3), 0, false, seed);
          ++seed;
        }
      }
    }
  }
}

TEST_P(AttendTest, WindowsSoftCapsAndSinks) {
  uint64_t seed = 500;
  for (const int window : {1, 3, 16, 17, 33}) {
    for (const int first : {0, 2, 16, 50, 77}) {
      for (const float cap : {0.0f, 5.0f}) {
        for (const bool sinks : {false, true}) {
          check(*GetParam(), 32, 2, 3, first, window, first + 3, cap, sinks, seed);
          ++seed;
        }
      }
    }
  }
}

TEST_P(AttendTest, ARingOfTheWindowIsEnoughForOneToken) {
  uint64_t seed = 900;
  for (const int window : {1, 5, 16, 20, 33, 48}) {
    for (const int first : {0, 4, 16, 31, 100, 101, 117}) {
      check(*GetParam(), 24, 2, 1, first, window, window, 0, false, seed);
      ++seed;
    }
  }
}

TEST(KvCache, AWindowedLayerNeverTakesMoreThanItsWindow) {
  ModelConfig c;
  c.hidden = 8;
  c.ffn = 8;
  c.vocab = 8;
  c.heads = c.kv_heads = 2;
  c.head_dim = 6;
  c.ropes = {RopeConfig{}};
  c.layers = {{5, 0}, {0, 0}, {100, 0}};
  const KvCache cache(build_plan(c), 40, 16);
  // 16 bits an element; a scale a key and head, in whole tiles.
  EXPECT_EQ(cache.bytes(), (5 + 40 + 40) * 2 * 12 * sizeof(int16_t) + (16 + 48 + 48) * 2 * 2 * sizeof(float));
  EXPECT_EQ(cache.kind(0), KvKind::kOddRing);
  EXPECT_EQ(cache.kind(1), KvKind::kWhole);
  EXPECT_EQ(cache.kind(2), KvKind::kWhole);
}

std::string isa_name(const ::testing::TestParamInfo<const Kernels*>& info) { return info.param->name; }
INSTANTIATE_TEST_SUITE_P(Isa, AttendTest, ::testing::ValuesIn(available_kernels()), isa_name);

}  // namespace
}  // namespace doppler::cpu
