// Cases of a mixture of experts: the choice, the sum, one token's experts in two dispatches, many tokens' products.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "gpu/cases/weight_cases.h"
#include "gpu/ops/experts.h"

namespace doppler::gpu {
namespace {

constexpr float kExpertEps = 1e-5f;

// The plan's route of one token: numbers, then weights.
std::vector<double> routed(const std::vector<float>& scores, uint32_t k, bool over_all = false) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  std::vector<double> out(2 * k);
  double sum = 0;
  for (size_t i = 0; i < k; ++i) {
    out[i] = static_cast<double>(order[i]);
    out[k + i] = std::exp(static_cast<double>(scores[order[i]]) - static_cast<double>(scores[order[0]]));
    sum += out[k + i];
  }
  if (over_all) {
    for (size_t i = k; i < order.size(); ++i) {
      sum += std::exp(static_cast<double>(scores[order[i]]) - static_cast<double>(scores[order[0]]));
    }
  }
  for (size_t i = 0; i < k; ++i) out[k + i] /= sum;
  return out;
}

// Scores with a few ties among them.
std::vector<float> random_scores(CaseRandom& random, size_t count) {
  std::vector<float> scores = random.floats(count, -4, 4);
  for (size_t i = 0; i + 2 < count; i += 5) scores[i + 2] = scores[i];
  return scores;
}

PreparedCase prepare_route(Device& device, uint64_t tokens, uint32_t experts, uint32_t k, bool over_all, bool learns) {
  CaseRandom random(tokens * 7 + experts);
  const std::vector<float> scores = random_scores(random, tokens * experts);
  const std::vector<float> learned = learns ? random.floats(experts, 0.5f, 2) : std::vector<float>(experts, 1.0f);
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "route");
  p.out = device.create_buffer("route", tokens * 2 * k * 4);
  record_route(*p.recording, "route", upload_floats(device, "scores", scores), p.out, tokens, experts,
               {.k = static_cast<int>(k), .over_all = over_all},
               learns ? BoundBuffer(upload_floats(device, "learned", learned)) : BoundBuffer());
  for (uint64_t t = 0; t < tokens; ++t) {
    const auto from = scores.begin() + static_cast<ptrdiff_t>(t * experts);
    std::vector<double> route = routed({from, from + experts}, k, over_all);
    for (uint32_t i = 0; i < k; ++i) route[k + i] *= static_cast<double>(learned[static_cast<size_t>(route[i])]);
    for (const double v : route) {
      p.bound.push_back(p.expected.size() % (2 * k) < k ? 0 : 1e-5 * v + 1e-30);
      p.expected.push_back(v);
    }
  }
  return p;
}

PreparedCase prepare_combine(Device& device, uint64_t tokens, uint32_t width, uint32_t k) {
  CaseRandom random(tokens + width);
  const std::vector<float> outputs = random.floats(tokens * k * width, -9, 9),
                           route = random.floats(tokens * 2 * k, 0, 1);
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "combine");
  p.out = device.create_buffer("out", tokens * width * 4);
  record_combine(*p.recording, "combine", upload_floats(device, "experts", outputs),
                 upload_floats(device, "route", route), p.out, tokens, width, k);
  for (uint64_t i = 0; i < tokens * width; ++i) {
    const uint64_t t = i / width;
    double sum = 0, magnitude = 0;
    for (uint64_t e = 0; e < k; ++e) {
      const double term = static_cast<double>(route[(2 * t + 1) * k + e]) *
                          static_cast<double>(outputs[(t * k + e) * width + i % width]);
      sum += term;
      magnitude += std::abs(term);
    }
    p.expected.push_back(sum);
    p.bound.push_back(magnitude * 0x1p-22);
  }
  return p;
}

struct ExpertsCase {
  ExpertsShape shape;
  Glu glu = {Activation::kClampedSwiglu, true, 7.0f, 1.702f};
  uint64_t max_part_bytes = 0;
  bool measure = false;
};

// A value with what it may be off by.
struct Bounded {
  double value = 0, bound = 0;
};

// How far off every element may be when pieces of 32 become integers of 16 bits, or stay floats that were summed.
std::vector<Bounded> as_seen(std::vector<Bounded> x) {
  for (size_t from = 0; from < x.size(); from += kPiece) {
    const size_t end = std::min(x.size(), from + kPiece);
    double peak = 0;
    for (size_t i = from; i < end; ++i) peak = std::max(peak, std::abs(x[i].value) + x[i].bound);
    for (size_t i = from; i < end; ++i) x[i].bound += peak / 65024 * 1.01 + 0x1p-20 * std::abs(x[i].value);
  }
  return x;
}

Bounded product(const std::vector<float>& row, const std::vector<Bounded>& x, double bias) {
  Bounded sum{bias, 1e-7 * std::abs(bias)};
  for (size_t i = 0; i < x.size(); ++i) {
    sum.value += static_cast<double>(row[i]) * x[i].value;
    sum.bound += std::abs(static_cast<double>(row[i])) * (x[i].bound + 0x1p-20 * std::abs(x[i].value));
  }
  return sum;
}

Bounded activated(const Glu& glu, const Bounded& gate, const Bounded& up) {
  double g = gate.value, u = up.value, a = 0;
  switch (glu.activation) {
    case Activation::kGeluTanh: a = g / (1 + std::exp(-1.5957691216057308 * (g + 0.044715 * g * g * g))); break;
    case Activation::kSilu: a = g / (1 + std::exp(-g)); break;
    case Activation::kSigmoid: a = 1 / (1 + std::exp(-g)); break;
    case Activation::kClampedSwiglu:
      g = std::min(g, static_cast<double>(glu.limit));
      a = g / (1 + std::exp(-static_cast<double>(glu.alpha) * g));
      u = std::clamp(u, -static_cast<double>(glu.limit), static_cast<double>(glu.limit)) + 1;
      break;
  }
  const double slack = 0x1p-18 * (std::abs(a * u) + std::min(1.0, std::abs(g)) * std::abs(u));
  return {a * u, 1.2 * gate.bound * (std::abs(u) + up.bound) + std::abs(a) * up.bound + slack};
}

struct ExpertMatrices {
  RandomMatrix up, down;
  explicit ExpertMatrices(const ExpertsShape& s)
      : up(s.dtype, static_cast<int64_t>(s.experts * 2 * s.ffn), static_cast<int64_t>(s.hidden), 3),
        down(s.dtype, static_cast<int64_t>(s.experts * s.hidden), static_cast<int64_t>(s.ffn), 4) {
    const auto i = [](uint64_t v) { return static_cast<int64_t>(v); };
    up.tensor.shape = {i(s.experts), i(2 * s.ffn), i(s.hidden)};
    down.tensor.shape = {i(s.experts), i(s.hidden), i(s.ffn)};
  }
};

PreparedCase prepare_experts(Device& device, const ExpertsCase& c, CaseUse use) {
  const ExpertsShape& s = c.shape;
  const ExpertMatrices matrices(s);
  CaseRandom random(s.hidden + s.ffn);
  const std::vector<float> r = random.floats(s.hidden, -20, 20), norms = random.floats(s.hidden, 0.5, 1.5),
                           up_bias = random.floats(s.experts * 2 * s.ffn, -1, 1),
                           down_bias = random.floats(s.experts * s.hidden, -1, 1),
                           scores = random_scores(random, s.experts);
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "experts");
  p.out = device.create_buffer("y", s.hidden * 4);
  const Weight up = upload_weight(device, matrices.up.tensor, c.max_part_bytes),
               down = upload_weight(device, matrices.down.tensor, c.max_part_bytes);
  const Buffer between = device.create_buffer("between", experts_between_bytes(device.capabilities(), s)),
               route = device.create_buffer("route", uint64_t{s.k} * 8);
  // To be measured, every expert's turn comes: weights that a cache holds would be read too fast.
  const uint32_t times = use == CaseUse::kMeasure ? s.experts / s.k : 1;
  const Buffer r_there = upload_floats(device, "r", r), norms_there = upload_floats(device, "norms", norms),
               up_bias_there = upload_floats(device, "up bias", up_bias),
               down_bias_there = upload_floats(device, "down bias", down_bias);
  for (uint32_t i = 0; i < times; ++i) {
    std::vector<float> turn = scores;
    for (uint32_t e = i * s.k; use == CaseUse::kMeasure && e < (i + 1) * s.k; ++e) turn[e] = 9;
    record_experts_up(*p.recording, "up", s, up,
                      {r_there, norms_there, upload_floats(device, "scores", turn), kExpertEps, 0}, up_bias_there,
                      c.glu, between, route);
    record_experts_down(*p.recording, "down", s, down, between, route, down_bias_there, p.out);
  }
  p.bytes = static_cast<double>(s.k * times) / s.experts * static_cast<double>(up.bytes() + down.bytes());
  p.flops = 6.0 * times * s.k * static_cast<double>(s.hidden * s.ffn);
  if (use == CaseUse::kMeasure) return p;

  double squares = 0;
  for (const float v : r) squares += static_cast<double>(v) * static_cast<double>(v);
  const double factor = 1 / std::sqrt(squares / static_cast<double>(s.hidden) + static_cast<double>(kExpertEps));
  std::vector<Bounded> x(s.hidden);
  for (size_t i = 0; i < x.size(); ++i) x[i].value = static_cast<double>(r[i]) * static_cast<double>(norms[i]) * factor;
  x = as_seen(x);
  const std::vector<double> chosen = routed(scores, s.k);
  std::vector<Bounded> y(s.hidden);
  for (size_t slot = 0; slot < s.k; ++slot) {
    const size_t expert = static_cast<size_t>(chosen[slot]);
    const double weight = chosen[s.k + slot];
    std::vector<Bounded> h(s.ffn);
    for (size_t i = 0; i < h.size(); ++i) {
      const size_t row = expert * 2 * s.ffn + 2 * i;
      const auto half = [&](size_t at) {
        return product(matrices.up.row(static_cast<int64_t>(at)), x, static_cast<double>(up_bias[at]));
      };
      h[i] = activated(c.glu, half(row), half(row + 1));
    }
    h = as_seen(h);
    for (size_t i = 0; i < y.size(); ++i) {
      const size_t row = expert * s.hidden + i;
      const Bounded out = product(matrices.down.row(static_cast<int64_t>(row)), h, static_cast<double>(down_bias[row]));
      y[i].value += weight * out.value;
      y[i].bound += weight * (out.bound + 1e-5 * std::abs(out.value));
    }
  }
  for (const Bounded& v : y) {
    p.expected.push_back(v.value);
    p.bound.push_back(v.bound + 1e-6);
  }
  return p;
}

struct ExpertMatmulCase {
  ExpertMatmulShape shape;
  uint64_t max_part_bytes = 0;
  bool measure = false;
};

// Every token's k different experts; some experts have none, one has most.
std::vector<float> random_routes(CaseRandom& random, const ExpertMatmulShape& s) {
  std::vector<float> routes;
  for (uint64_t t = 0; t < s.tokens; ++t) {
    std::vector<float> experts(s.experts);
    std::iota(experts.begin(), experts.end(), 0.0f);
    for (size_t i = 0; i < s.k; ++i) {
      const size_t left = s.experts - i;
      std::swap(experts[i], experts[i + std::min<size_t>(random.bits() % left, random.bits() % left)]);
    }
    routes.insert(routes.end(), experts.begin(), experts.begin() + s.k);
    for (size_t i = 0; i < s.k; ++i) routes.push_back(0.25f);
  }
  return routes;
}

PreparedCase prepare_matmul(Device& device, const ExpertMatmulCase& c, CaseUse use) {
  const ExpertMatmulShape& s = c.shape;
  RandomMatrix matrix(s.dtype, static_cast<int64_t>(s.experts * s.rows), static_cast<int64_t>(s.cols), s.rows);
  matrix.tensor.shape = {static_cast<int64_t>(s.experts), static_cast<int64_t>(s.rows), static_cast<int64_t>(s.cols)};
  CaseRandom random(s.tokens + s.cols);
  const std::vector<float> x = random.floats(s.x_rows() * s.cols, -10, 10),
                           bias = random.floats(s.experts * s.rows, -5, 5), routes = random_routes(random, s);
  const MatmulChoice choice = choose_expert_matmul(device.capabilities(), s);
  const bool int8 = choice.kernel == MatmulKernel::kInt8;
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "expert_matmul");
  p.out = device.create_buffer("out", s.entries() * s.rows * 4);
  const Weight weight = upload_weight(device, matrix.tensor, c.max_part_bytes);
  std::vector<float> padded = x;
  padded.resize((x.size() + 3) / 4 * 4, NAN);
  MatmulInput input{upload_floats(device, "x", padded), {}, s.x_rows()};
  if (int8) {
    input.quantized.values = device.create_buffer("values", quantized_values_bytes(s.x_rows(), s.cols));
    input.quantized.scales = device.create_buffer("scales", quantized_scales_bytes(s.x_rows(), s.cols));
    record_quantize_activations(*p.recording, "x", input.plain, s.x_rows(), s.cols, input.quantized);
  }
  const ExpertMap map{device.create_buffer("entries", expert_entries_bytes(s.tokens, s.k)),
                      device.create_buffer("tiles", expert_tiles_bytes(s.tokens, s.experts, s.k))};
  record_expert_map(*p.recording, "map", s, choice.tile_tokens, upload_floats(device, "route", routes), map);
  record_expert_matmul(*p.recording, "expert_matmul", choice, s, weight, input, map,
                       upload_floats(device, "bias", bias), p.out);
  p.bytes = static_cast<double>(weight.bytes());
  p.flops = 2.0 * static_cast<double>(s.entries() * s.rows * s.cols);
  if (use == CaseUse::kMeasure) return p;

  for (uint64_t entry = 0; entry < s.entries(); ++entry) {
    const uint64_t t = entry / s.k, expert = static_cast<uint64_t>(routes[t * 2 * s.k + entry % s.k]);
    const float* own = x.data() + (s.per_expert ? entry : t) * s.cols;
    std::vector<double> unsure(s.cols);
    for (size_t i = 0; i < s.cols; ++i) {
      const size_t from = i / kPiece * kPiece, end = std::min<size_t>(s.cols, from + kPiece);
      double peak = 0;
      for (size_t j = from; j < end; ++j) peak = std::max(peak, std::abs(static_cast<double>(own[j])));
      unsure[i] = (int8 ? peak / 254 * 1.001 : 0) + 0x1p-19 * std::abs(static_cast<double>(own[i]));
    }
    for (uint64_t r = 0; r < s.rows; ++r) {
      const uint64_t at = expert * s.rows + r;
      const std::vector<float> row = matrix.row(static_cast<int64_t>(at));
      const std::vector<double> magnitudes = matrix.magnitudes(static_cast<int64_t>(at));
      double sum = static_cast<double>(bias[at]), bound = 1e-6 * std::abs(sum);
      for (size_t i = 0; i < s.cols; ++i) {
        sum += static_cast<double>(row[i]) * static_cast<double>(own[i]);
        bound += std::abs(static_cast<double>(row[i])) * unsure[i] +
                 magnitudes[i] * std::abs(static_cast<double>(own[i])) * 0x1p-19;
      }
      p.expected.push_back(sum);
      p.bound.push_back(bound + 1e-7);
    }
  }
  return p;
}

}  // namespace

void append_expert_cases(std::vector<KernelCase>& cases) {
  for (const auto& [tokens, experts, k] :
       {std::tuple(1u, 32u, 4u), {5u, 4u, 2u}, {3u, 1u, 1u}, {2u, 128u, 8u}, {1u, 256u, 32u}, {2u, 5u, 5u}}) {
    const uint32_t t = tokens, e = experts, chosen = k;
    for (const auto& [over_all, learns] : {std::pair(false, false), {true, false}, {false, true}}) {
      const std::string name = fmt::format("{} tokens, {} of {}{}{}", t, chosen, e,
                                           over_all ? ", softmax over all" : "", learns ? ", learned weights" : "");
      cases.push_back(
          {"route", name, false, [t, e, chosen, over_all = over_all, learns = learns](Device& device, CaseUse) {
             return prepare_route(device, t, e, chosen, over_all, learns);
           }});
    }
  }
  for (const auto& [tokens, width, k] : {std::tuple(1u, 33u, 4u), {7u, 160u, 2u}, {3u, 5u, 1u}}) {
    const uint32_t t = tokens, w = width, chosen = k;
    cases.push_back({"combine", fmt::format("{}x{}, {} experts", t, w, chosen), false,
                     [t, w, chosen](Device& device, CaseUse) { return prepare_combine(device, t, w, chosen); }});
  }
  const auto add = [&](const ExpertsCase& c, const std::string& note) {
    const ExpertsShape& s = c.shape;
    cases.push_back({"experts",
                     fmt::format("{} {} of {}, {}x{}{}", kernel_name(s.dtype), s.k, s.experts, s.hidden, s.ffn, note),
                     c.measure, [c](Device& device, CaseUse use) { return prepare_experts(device, c, use); }});
  };
  constexpr DType kType = DType::kMXFP4;
  add({{kType, 8, 4, 64, 64}}, "");
  add({{kType, 5, 2, 160, 96}}, "");
  add({{kType, 3, 3, 36, 32}}, "");
  add({{kType, 7, 4, 96, 36}}, " not by the piece");
  add({{kType, 4, 2, 2880, 32}}, " wide");
  add({{kType, 4, 3, 32, 352}}, " deep");
  add({{kType, 6, 4, 96, 64}, {Activation::kClampedSwiglu, true, 7.0f, 1.702f}, 40000}, " in parts");
  add({{kType, 4, 2, 64, 64}, {Activation::kSilu, true, 0, 0}}, " silu");
  add({{kType, 4, 2, 64, 64}, {Activation::kGeluTanh, true, 0, 0}}, " gelu");
  add({{DType::kBF16, 5, 2, 96, 64}}, "");
  add({{DType::kQ8_0, 4, 2, 64, 96}}, "");
  add({{kType, 32, 4, 2880, 2880}, {Activation::kClampedSwiglu, true, 7.0f, 1.702f}, 0, true}, "");

  const auto add_matmul = [&](const ExpertMatmulCase& c, const std::string& note) {
    const ExpertMatmulShape& s = c.shape;
    cases.push_back({"expert_matmul",
                     fmt::format("{} {} tokens, {} of {}, {}x{}{}{}", kernel_name(s.dtype), s.tokens, s.k, s.experts,
                                 s.rows, s.cols, s.exact ? " exact" : "", note),
                     c.measure, [c](Device& device, CaseUse use) { return prepare_matmul(device, c, use); }});
  };
  for (const bool exact : {false, true}) {
    for (const bool per_expert : {false, true}) {
      add_matmul({{kType, 1, 70, 64, 8, 4, per_expert, exact}}, per_expert ? " x each" : "");
      add_matmul({{kType, 33, 97, 160, 5, 2, per_expert, exact}}, per_expert ? " x each" : "");
    }
    add_matmul({{kType, 9, 5, 36, 3, 3, false, exact}}, "");
    add_matmul({{kType, 130, 33, 96, 2, 1, false, exact}}, " many");
    add_matmul({{kType, 20, 40, 96, 6, 2, false, exact}, 5000}, " in parts");
  }
  add_matmul({{DType::kBF16, 7, 20, 64, 4, 2, false, false}}, "");
  add_matmul({{DType::kQ4_K, 7, 20, 256, 4, 2, false, false}}, "");
  for (const uint64_t tokens : {128, 512}) {
    add_matmul({{kType, tokens, 5760, 2880, 32, 4, false, false}, 0, true}, "");
    add_matmul({{kType, tokens, 2880, 2880, 32, 4, true, false}, 0, true}, "");
  }
}

}  // namespace doppler::gpu
