// Attention in all its kernels against ref::attention: head sizes, shared heads, windows, pages in any order, blocks,
// soft-cap and sinks.
#include <fmt/format.h>
#include <cstring>

#include "base/half.h"
#include "gpu/attention_problem.h"
#include "gpu/cases/attention_cases.h"
#include "gpu/gpu_test.h"
#include "gpu/ops/attention.h"

namespace doppler::gpu {
namespace {

constexpr uint16_t kUnset = kUnsetElement;  // where nothing was stored: reading it would show

struct Problem {
  AttentionShape shape;
  uint32_t first = 0, tokens = 1;  // positions first … first + tokens - 1 are asked for
  double spread = 1;               // of q and k: larger means a sharper softmax

  std::string name() const {
    return fmt::format("heads {}/{} dim {} window {} pages {} softcap {} sinks {} tokens {} from {}", shape.heads,
                       shape.kv_heads, shape.head_dim, shape.window, shape.pages, shape.softcap, shape.sinks, tokens,
                       first);
  }
};

Problem problem(uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t window, uint32_t first, uint32_t tokens,
                float softcap = 0, bool sinks = false) {
  Problem p;
  p.shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = dim};
  p.shape.window = window;
  p.shape.pages = pages_for(first + tokens, window, tokens);
  p.shape.table = (heads + first) % 4;
  p.shape.scale = 1 / std::sqrt(static_cast<float>(dim));
  p.shape.softcap = softcap;
  p.shape.sinks = sinks;
  p.first = first;
  p.tokens = tokens;
  return p;
}

struct Data {
  std::vector<float> q, keys, values, sinks;
};

Data make(const Problem& p) {
  const uint32_t seed = p.first * 31 + p.tokens * 7 + p.shape.head_dim + p.shape.heads;
  const size_t positions = p.first + p.tokens, kv_width = size_t{p.shape.kv_heads} * p.shape.head_dim;
  Data d;
  d.q = random_floats(size_t{p.tokens} * p.shape.heads * p.shape.head_dim, 1.5 * p.spread, seed);
  d.keys = as_cached_keys(random_floats(positions * kv_width, p.spread, seed + 1));
  d.values = as_cached_values(random_floats(positions * kv_width, 1, seed + 2), p.shape.head_dim);
  if (p.shape.sinks) d.sinks = random_floats(p.shape.heads, 2, seed + 3);
  return d;
}

std::vector<float> truth(const Problem& p, const Data& d) {
  std::vector<float> out(d.q.size());
  ref::attention(plan_op(p.shape), d.q, d.keys, d.values, d.sinks, static_cast<int>(p.first), out);
  return out;
}

std::vector<float> run_prefill(Device& device, const Problem& p, const Data& d, bool follow_state) {
  const Buffer out = device.create_buffer("out", d.q.size() * 4);
  const AttentionPrefillBuffers buffers = {
      upload(device, "state", CacheMap(p.shape).state(follow_state ? p.first : 999999, p.first + p.tokens)),
      upload(device, "q", d.q), upload(device, "cache", packed_cache(p.shape, d.keys, d.values, kUnset)),
      upload(device, "weights", head_weights(p.shape, {}, {}, d.sinks)), out};
  Recording recording(device, "prefill");
  record_attention_prefill(recording, "attention", p.shape, buffers, p.tokens,
                           follow_state ? FirstPosition{} : FirstPosition{p.first, false});
  device.submit(recording);
  return read<float>(device, out, d.q.size());
}

std::vector<float> run_decode(Device& device, const Problem& p, const Data& d, uint32_t splits) {
  const Buffer out = device.create_buffer("out", d.q.size() * 4);
  // Splits that have no keys must not be looked at: the buffer starts as NaN.
  const Buffer partials =
      upload(device, "partials", std::vector<float>(partial_bytes(p.shape, splits) / 4, std::nanf("")));
  const AttentionDecodeBuffers buffers = {upload(device, "state", CacheMap(p.shape).state(p.first, p.first + 1)),
                                          upload(device, "weights", head_weights(p.shape, {}, {}, d.sinks)),
                                          upload(device, "cache", packed_cache(p.shape, d.keys, d.values, kUnset)),
                                          partials};
  Recording recording(device, "decode");
  record_attention_decode(recording, "attention", p.shape, upload(device, "q", d.q), buffers, splits);
  record_attention_merge(recording, "merge", p.shape, buffers.state, partials, out, splits);
  device.submit(recording);
  return read<float>(device, out, d.q.size());
}

void check(const Problem& p, const Data& d, const std::vector<float>& got, double* worst) {
  const std::vector<double> bound = attention_truth(p.shape, d.q, d.keys, d.values, d.sinks, p.first, 0).bound;
  EXPECT_EQ(worst_of(got, truth(p, d), bound, worst), "") << p.name();
}

TEST(AttentionPrefill, AgreesWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  std::vector<Problem> problems;
  for (const uint32_t dim : {8u, 32u, 40u, 64u, 96u, 128u, 256u, 264u, 512u}) {
    problems.push_back(problem(4, 1, dim, 0, 0, 7));
    problems.push_back(problem(2, 2, dim, 0, 100, 1));
    problems.push_back(problem(8, 1, dim, 33, 90, 20));
  }
  for (const uint32_t share : {1u, 2u, 3u, 4u, 5u, 8u}) {
    problems.push_back(problem(2 * share, 2, 64, 0, 3, 64));
    problems.push_back(problem(2 * share, 2, 32, 16, 250, 30));
  }
  for (const uint32_t window : {1u, 5u, 64u, 100u, 1000u}) {
    for (const uint32_t first : {0u, 63u, 64u, 255u, 300u}) {
      problems.push_back(problem(4, 2, 32, window, first, 7));
      problems.push_back(problem(4, 2, 32, window, first, 65));
    }
  }
  problems.push_back(problem(4, 1, 64, 50, 200, 33, 5));
  problems.push_back(problem(4, 1, 64, 50, 200, 33, 0, true));
  problems.push_back(problem(4, 2, 64, 0, 10, 33, 30, true));
  problems.back().spread = 3;
  double worst = 0;
  for (const Problem& p : problems) {
    const Data d = make(p);
    check(p, d, run_prefill(device, p, d, true), &worst);
  }
  std::cout << "  " << problems.size() << " problems, worst error " << worst << " of its bound\n";
}

TEST(AttentionPrefill, TakesItsPositionFromParametersToo) {
  DOPPLER_NEED_DEVICE(device);
  const Problem p = problem(4, 2, 64, 20, 40, 9);
  const Data d = make(p);
  EXPECT_EQ(run_prefill(device, p, d, true), run_prefill(device, p, d, false));
}

TEST(AttentionPrefill, WhereABlockBeginsMakesNoDifference) {
  DOPPLER_NEED_DEVICE(device);
  for (const uint32_t window : {0u, 50u, 200u}) {
    const Problem whole = problem(4, 2, 32, window, 100, 90);
    const Data d = make(whole);
    const std::vector<float> expected = run_prefill(device, whole, d, true);
    for (const uint32_t cut : {1u, 37u, 64u, 89u}) {
      Problem rest = whole;
      rest.first += cut;
      rest.tokens -= cut;
      Data last = d;
      const auto before = static_cast<ptrdiff_t>(cut * whole.shape.heads * whole.shape.head_dim);
      last.q.erase(last.q.begin(), last.q.begin() + before);
      const std::vector<float> got = run_prefill(device, rest, last, true);
      EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + before)) << rest.name();
    }
  }
}

TEST(AttentionDecode, AgreesWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  std::vector<Problem> problems;
  for (const uint32_t dim : {8u, 32u, 40u, 64u, 96u, 128u, 256u}) {
    for (const uint32_t first : {0u, 63u, 64u, 500u}) problems.push_back(problem(4, 1, dim, 0, first, 1));
    problems.push_back(problem(8, 2, dim, 70, 300, 1));
  }
  for (const uint32_t share : {1u, 2u, 3u, 4u, 5u, 8u}) {
    for (const uint32_t first : {0u, 100u, 257u}) problems.push_back(problem(2 * share, 2, 64, 0, first, 1));
  }
  for (const uint32_t window : {1u, 5u, 64u, 100u, 1000u}) {
    for (const uint32_t first : {0u, 4u, 63u, 64u, 255u, 256u, 700u}) {
      problems.push_back(problem(4, 2, 32, window, first, 1));
    }
  }
  for (const bool sinks : {false, true}) {
    for (const uint32_t first : {0u, 63u, 200u}) {
      problems.push_back(problem(4, 1, 64, 0, first, 1, 5, sinks));
      problems.push_back(problem(6, 2, 64, 90, first, 1, 0, sinks));
      problems.back().spread = 3;
    }
  }
  double worst = 0;
  for (const Problem& p : problems) {
    const Data d = make(p);
    const uint32_t splits = std::vector<uint32_t>{1, 3, 50, 100}[(p.first + p.shape.head_dim / 8 + p.shape.heads) % 4];
    check(p, d, run_decode(device, p, d, splits), &worst);
  }
  std::cout << "  " << problems.size() << " problems, worst error " << worst << " of its bound\n";
}

TEST(AttentionDecode, FusedStoresTheTokenAndAttends) {
  DOPPLER_NEED_DEVICE(device);
  double worst = 0;
  for (const uint32_t dim : {32u, 40u, 256u}) {
    for (const uint32_t share : {1u, 2u, 4u, 8u}) {
      for (const uint32_t first : {0u, 63u, 64u, 300u, 513u}) {
        if ((dim / 8 + share + first) % 3 == 0) continue;  // two thirds of them are plenty
        const bool with_norm = (dim + share + first) % 3 != 0;
        Problem p = problem(2 * share, 2, dim, first == 300 ? 100 : 0, first, 1, share == 4 ? 20.0f : 0.0f, share == 2);
        Data d = make(p);
        const size_t q_width = p.shape.heads * dim, kv_width = 2 * dim;
        const std::vector<float> raw_q = random_floats(q_width, 2, first + dim),
                                 raw_k = random_floats(kv_width, 3, dim), raw_v = random_floats(kv_width, 1, share);
        const std::vector<float> q_norm = random_floats(dim, 0.3, 1), k_norm = random_floats(dim, 0.3, 2);
        const HeadNorm norm = {with_norm, 1e-6f, 1};
        const RopeTable table = make_rope_table({.theta = 10000}, static_cast<int>(dim));

        // q, k and v packed in one row behind eight floats that belong to nobody.
        std::vector<float> packed(8, 1e9f);
        for (const auto* part : {&raw_q, &raw_k, &raw_v}) packed.insert(packed.end(), part->begin(), part->end());
        const uint32_t splits = std::vector<uint32_t>{2, 50, 100}[(dim / 8 + share + first / 2) % 3];
        Projections projections = packed_projections(upload(device, "qkv", packed), p.shape);
        for (uint32_t* offset : {&projections.q_offset, &projections.k_offset, &projections.v_offset}) *offset += 8;
        const std::vector<float> old_keys(d.keys.begin(), d.keys.end() - static_cast<ptrdiff_t>(kv_width));
        const std::vector<float> old_values(d.values.begin(), d.values.end() - static_cast<ptrdiff_t>(kv_width));
        const Buffer out = device.create_buffer("out", q_width * 4);
        const Buffer cache = upload(device, "cache", packed_cache(p.shape, old_keys, old_values, kUnset));
        const AttentionDecodeBuffers buffers = {
            upload(device, "state", CacheMap(p.shape).state(first, first + 1)),
            upload(device, "weights", head_weights(p.shape, q_norm, k_norm, d.sinks)), cache,
            upload(device, "partials", std::vector<float>(partial_bytes(p.shape, splits) / 4, std::nanf("")))};
        Recording recording(device, "fused");
        record_attention_fused(recording, "attention", p.shape, norm, projections,
                               upload(device, "rope", rope_tables(table, 1024)), buffers, splits);
        record_attention_merge(recording, "merge", p.shape, buffers.state, buffers.partials, out, splits);
        device.submit(recording);
        const std::vector<float> got = read<float>(device, out, q_width);
        const std::vector<uint16_t> stored = read<uint16_t>(device, cache, CacheMap{p.shape}.elements());

        std::vector<float> k = raw_k, rotated(kv_width);
        d.q = raw_q;
        if (with_norm) {
          ref::norm(raw_q, q_norm, norm.eps, norm.offset, d.q);
          ref::norm(raw_k, k_norm, norm.eps, norm.offset, k);
        }
        std::vector<float> q = d.q;
        ref::rope(q, static_cast<int>(q_width), static_cast<int>(dim), table, static_cast<int>(first), d.q);
        ref::rope(k, static_cast<int>(kv_width), static_cast<int>(dim), table, static_cast<int>(first), rotated);
        // What was stored is the truth rounded, but for keys that an f32 error moved over a rounding border.
        const std::vector<float> cached_value = as_cached_values(raw_v, dim);
        const CacheMap map{p.shape};
        std::vector<float> stored_value(kv_width);
        for (size_t i = 0; i < kv_width; ++i) {
          const float key = f16_to_f32(stored[map.key(i / dim, first, i % dim)]);
          ASSERT_NEAR(key, rotated[i], std::abs(rotated[i]) * 0x1.01p-11 + 1e-5) << p.name() << " key dim " << i;
          d.keys[d.keys.size() - kv_width + i] = key;
        }
        for (size_t head = 0; head < p.shape.kv_heads; ++head) {
          float step = 0;
          std::memcpy(&step, &stored[map.step(head, first)], sizeof(step));
          unpack_value(std::span(stored).subspan(map.value(head, first, 0), dim), step, &stored_value[head * dim]);
          for (size_t i = 0; i < dim; ++i) {
            // The same integers, but where a device's division made 1 / step another f32.
            ASSERT_NEAR(stored_value[head * dim + i], cached_value[head * dim + i], step * 1.001) << p.name();
          }
        }
        // Nothing else of the cache changed.
        std::vector<uint16_t> expected_cache = packed_cache(p.shape, d.keys, d.values, kUnset);
        for (size_t head = 0; head < p.shape.kv_heads; ++head) {
          const auto same = [&](size_t at, size_t count) { std::copy_n(&stored[at], count, &expected_cache[at]); };
          same(map.value(head, first, 0), dim);
          same(map.step(head, first), 2);
        }
        EXPECT_EQ(stored, expected_cache) << p.name();
        // The newest value takes part as the cache has it.
        std::copy(stored_value.begin(), stored_value.end(), d.values.end() - static_cast<ptrdiff_t>(kv_width));
        double largest = 0;
        for (float v : d.q) largest = std::max(largest, std::abs(static_cast<double>(v)));
        const double q_error = 0x1p-23 * (dim / 4.0 + 24) * largest;
        const std::vector<double> bound =
            attention_truth(p.shape, d.q, d.keys, d.values, d.sinks, first, q_error).bound;
        EXPECT_EQ(worst_of(got, truth(p, d), bound, &worst), "") << p.name();
      }
    }
  }
  std::cout << "  worst error " << worst << " of its bound\n";
}

TEST(AttentionDecode, OneRecordingServesEveryLength) {
  DOPPLER_NEED_DEVICE(device);
  Problem p = problem(4, 2, 32, 0, 300, 1);
  const Data d = make(p);
  const uint32_t splits = choose_splits(device.capabilities(), p.shape, 301);
  const Buffer out = device.create_buffer("out", d.q.size() * 4),
               state = upload(device, "state", CacheMap(p.shape).state(0, 301));
  const Buffer partials = device.create_buffer("partials", partial_bytes(p.shape, splits));
  const AttentionDecodeBuffers buffers = {state, upload(device, "weights", head_weights(p.shape, {}, {}, {})),
                                          upload(device, "cache", packed_cache(p.shape, d.keys, d.values, kUnset)),
                                          partials};
  Recording recording(device, "decode");
  record_attention_decode(recording, "attention", p.shape, upload(device, "q", d.q), buffers, splits);
  record_attention_merge(recording, "merge", p.shape, state, partials, out, splits);
  double worst = 0;
  for (const uint32_t position : {300u, 0u, 127u, 64u, 299u}) {
    write<DecodeState>(device, state, std::vector<DecodeState>{{.position = position}});
    device.submit(recording);
    p.first = position;
    check(p, d, read<float>(device, out, d.q.size()), &worst);
  }
}

TEST(AttentionCases, AgreeWithTheTruth) {
  DOPPLER_NEED_DEVICE(device);
  std::vector<KernelCase> cases;
  append_attention_cases(cases);
  append_rope_store_cases(cases);
  append_token_cases(cases);
  for (const KernelCase& c : cases) {
    if (c.measure) continue;
    const CheckResult result = check_case(device, c);
    EXPECT_TRUE(result.pass) << c.op << " " << c.name << " [" << result.variants << "]: element " << result.worst
                             << " is " << result.got << ", expected " << result.expected << " within " << result.bound;
  }
}

TEST(AttentionChoice, FitsTheSmallestDevice) {
  const Capabilities least = minimal_capabilities();
  Capabilities large = least;
  large.limits.workgroup_bytes = 48u << 10;
  large.limits.invocations = 1024;
  const auto constant = [](const Variant& v, const std::string& name) {
    for (const auto& [n, value] : v.constants) {
      if (n == name) return value;
    }
    return -1.0;
  };
  for (uint32_t dim = 8; dim <= kMaxHeadDim; dim += 8) {
    for (const uint32_t share : {1u, 2u, 3u, 4u, 8u}) {
      const AttentionShape shape = {.heads = share, .kv_heads = 1, .head_dim = dim, .pages = 8};
      for (const Capabilities& c : {least, large}) {
        const Variant prefill = choose_attention_prefill(c, shape, 512);
        const double teams = constant(prefill, "teams"), key_parts = constant(prefill, "key_parts");
        EXPECT_GE(teams * key_parts, 1);
        EXPECT_LE(teams * key_parts * 32, c.limits.invocations);
        EXPECT_LE(16 * teams * (dim + key_parts * (2 * 64 + 8)), c.limits.workgroup_bytes);
        if (dim > kMaxDecodeHeadDim) continue;
        for (const uint32_t splits : {1u, 8u, 100u}) {
          const Variant decode = choose_attention_decode(c, shape, splits, true);
          const double rounds = constant(decode, "round_dims");
          EXPECT_TRUE(rounds == 1 || rounds == 2 || rounds == 4 || rounds == 8);
          const std::string heads = decode.snippets.at(0).second;
          const double vector = heads == "one" ? 4 : heads == "two" ? 8 : 16;
          EXPECT_LE(vector / 4, share == 3 ? 4 : share);
          EXPECT_LE(vector * (dim + std::max(512.0, rounds * 257) + 192 + 9) + 5.5 * dim, c.limits.workgroup_bytes);
        }
      }
    }
  }
  const AttentionShape wide = {.heads = 4, .kv_heads = 1, .head_dim = 256, .pages = 8};
  EXPECT_EQ(choose_attention_prefill(least, wide, 512).name(), "teams=2 key_parts=1 head_dim=256");
  EXPECT_EQ(choose_attention_prefill(large, wide, 512).name(), "teams=2 key_parts=2 head_dim=256");
  EXPECT_EQ(choose_attention_decode(least, wide, 100, true).name(),
            "heads=two threads=256 head_dim=256 round_dims=4 made_here=1");
  EXPECT_EQ(choose_attention_decode(large, wide, 100, false).name(),
            "heads=four threads=256 head_dim=256 round_dims=8 made_here=0");
  EXPECT_EQ(choose_attention_decode(large, wide, 64, false).name(),
            "heads=two threads=256 head_dim=256 round_dims=8 made_here=0");
  EXPECT_EQ(choose_attention_decode(large, wide, 8, false).name(),
            "heads=one threads=256 head_dim=256 round_dims=8 made_here=0");
}

TEST(AttentionChoice, RefusesShapesThatNoKernelDoes) {
  const AttentionShape good = {.heads = 4, .kv_heads = 2, .head_dim = 64, .pages = 1};
  check_attention_shape(good, "layer0");
  for (const auto& change : std::vector<std::function<void(AttentionShape&)>>{
           [](AttentionShape& s) { s.head_dim = kMaxHeadDim + 8; }, [](AttentionShape& s) { s.head_dim = 36; },
           [](AttentionShape& s) { s.kv_heads = 3; }, [](AttentionShape& s) { s.kv_heads = 0; },
           [](AttentionShape& s) { s.pages = 0; }}) {
    AttentionShape bad = good;
    change(bad);
    EXPECT_EQ(error_of([&] { check_attention_shape(bad, "layer0"); }).code, ErrorCode::kUnsupported);
  }
  AttentionShape wide = good;
  wide.head_dim = 512;
  check_attention_shape(wide, "layer0");
  EXPECT_EQ(error_of([&] { check_attention_shape(wide, "layer0", kMaxDecodeHeadDim); }).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace doppler::gpu
