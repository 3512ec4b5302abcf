// The cache's tiles and the running softmax, against plain attention over keys and values rounded to 16 bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cpu/isa.h"
#include "cpu/kv_pages.h"
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

// One kv head, `heads` queries per row, `n` rows at positions first …, keys 0 … first+n-1 in pages in no order.
void check(const Kernels& k, int dim, int heads, int n, int first, int window, float softcap, bool sinks,
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

  KvPages pages(
      Plan{.values = {}, .steps = {{.name = "attention", .op = op, .inputs = {}, .weights = {}}}, .dense = {}});
  const int tiles = (total + kKeyTile - 1) / kKeyTile;
  pages.allocate(static_cast<size_t>(tiles));
  std::memset(const_cast<float*>(pages.tile(0, 0, 0, 0).key_scales), 0xff,  // whatever was there before: NaN as well
              pages.bytes());
  const auto page_of = [&](int tile) { return static_cast<PageId>(tiles - 1 - tile); };
  std::vector<int16_t> half(width);
  for (int p = 0; p < total; ++p) {
    pages.store(k, 0, page_of(p / kKeyTile), p % kKeyTile, keys.data() + p * dim, values.data() + p * dim, half.data());
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
  for (int t = 0; t < tiles;) {
    KeyTile some[kUnitTiles];
    ReadAhead ahead{};
    const int count = std::min(1 + static_cast<int>(seed + static_cast<uint64_t>(t)) % kUnitTiles, tiles - t);
    for (int i = 0; i < count; ++i) {
      some[i] = pages.tile(0, page_of(t + i), 0, (t + i) * kKeyTile);
      ahead.pieces[i] = some[i].keys;
    }
    k.attend(q, some, count, {mixed.data(), highest.data(), sum.data()}, scratch.data(), t % 2 ? nullptr : &ahead);
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
          check(*GetParam(), dim, heads, n, first, 0, 0, false, seed);
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
          check(*GetParam(), 32, 2, 3, first, window, cap, sinks, seed);
          ++seed;
        }
      }
    }
  }
}

TEST(KvPages, APageIsItsKeysValuesAndScales) {
  ModelConfig c;
  c.hidden = 8;
  c.ffn = 8;
  c.vocab = 8;
  c.heads = c.kv_heads = 2;
  c.head_dim = 6;
  c.ropes = {RopeConfig{}};
  c.layers = {{5, 0}, {0, 0}, {100, 0}};
  // 16 bits per element and a scale per key and head, in whole lines of a cache.
  EXPECT_EQ(KvPages(build_plan(c)).page_bytes(), 2 * 512u);
  EXPECT_EQ(2 * 16 * (6 * sizeof(int16_t) + sizeof(float)), 512u);
}

std::string isa_name(const ::testing::TestParamInfo<const Kernels*>& info) { return info.param->name; }
INSTANTIATE_TEST_SUITE_P(Isa, AttendTest, ::testing::ValuesIn(available_kernels()), isa_name);

}  // namespace
}  // namespace doppler::cpu
