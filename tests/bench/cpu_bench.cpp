// Speed of the CPU executor on synthetic weights of a real shape (26 layers, hidden 1152, ffn 6912, vocabulary 262144;
// matrices in Q4_K, the embedding, value and down projections in Q6_K), without files or tokenizer.
//   cpu_bench [prompt tokens] [decoded tokens] [runs] [threads] [type of all matrices]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/half.h"
#include "base/threads.h"
#include "cpu/bandwidth.h"
#include "cpu/cpu_executor.h"
#include "cpu/isa.h"
#include "cpu/memory.h"
#include "model/cost.h"

using namespace doppler;

namespace {

ModelConfig shape() {
  ModelConfig c;
  c.id = "synthetic 1B";
  c.hidden = 1152;
  c.ffn = 6912;
  c.vocab = 262144;
  c.heads = 4;
  c.kv_heads = 1;
  c.head_dim = 256;
  c.max_context = 32768;
  c.norm_offset = 1;
  c.embed_scale = 33.94f;
  c.attn_scale = 0.0625f;
  c.qk_norm = c.post_attn_norm = c.post_ffn_norm = c.tied_output = true;
  c.activation = Activation::kGeluTanh;
  c.ropes = {RopeConfig{}, RopeConfig{.theta = 1e6}};
  for (int i = 0; i < 26; ++i) c.layers.push_back((i + 1) % 6 == 0 ? LayerConfig{0, 1} : LayerConfig{512, 0});
  return c;
}

// Random blocks whose scales are of a sane size.
void fill(DType type, std::byte* data, size_t bytes, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t r = next();
    std::memcpy(data + i, &r, 8);
  }
  const size_t block = static_cast<size_t>(info(type).block_bytes);
  const auto put = [&](size_t at, float value) {
    const uint16_t h = f32_to_f16(value);
    std::memcpy(data + at, &h, 2);
  };
  for (size_t b = 0; b + block <= bytes; b += block) {
    if (type == DType::kQ4_K) {
      put(b, 0.0003f);
      put(b + 2, 0.0022f);
    } else if (type == DType::kQ6_K) {
      put(b + 208, 0.00003f);
    } else if (type == DType::kQ8_0) {
      put(b, 0.0003f);
    } else if (type == DType::kF16) {
      put(b, (static_cast<float>(next() % 1000) - 500) * 0.0001f);
    } else if (type == DType::kBF16) {
      const uint16_t h = f32_to_bf16((static_cast<float>(next() % 1000) - 500) * 0.0001f);
      std::memcpy(data + b, &h, 2);
    }
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const int prompt = number(1, 512), decoded = number(2, 64), runs = number(3, 5), threads = number(4, 0);
  DType all = DType::kF32;
  const bool one_type = argc > 5 && dtype_from_name(argv[5], all);

  const ModelConfig config = shape();
  const Plan plan = build_plan(config);
  Weights weights;
  std::vector<cpu::Memory> memory;
  std::map<std::string, bool> seen;
  for (const Step& step : plan.steps) {
    for (const WeightUse& use : step.weights) {
      if (!seen.emplace(use.slot, true).second) continue;
      Tensor t;
      t.name = use.slot;
      t.shape = use.shape;
      const bool fine = use.slot == "embed" || use.slot.ends_with("v_proj") || use.slot.ends_with("down_proj");
      t.dtype = use.shape.size() == 1 ? DType::kF32 : one_type ? all : fine ? DType::kQ6_K : DType::kQ4_K;
      const size_t bytes = static_cast<size_t>(t.rows()) * t.stride();
      memory.emplace_back(bytes, "weights");
      if (use.shape.size() > 1) fill(t.dtype, memory.back().data(), bytes, memory.size());
      t.bytes = {memory.back().data(), bytes};
      weights.add(use.slot, t);
    }
  }

  ThreadPool pool(threads);
  const double bandwidth = measure_read_bandwidth(pool);
  auto executor = make_cpu_executor(config, plan, weights, {.context = prompt + decoded + 8, .threads = threads});
  std::vector<int32_t> tokens(static_cast<size_t>(prompt));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 7919) % 262144);
  std::vector<double> prefill, decode;
  for (int run = 0; run < runs + 1; ++run) {
    executor->reset();
    auto start = std::chrono::steady_clock::now();
    executor->forward(tokens, Logits::kLast);
    const double p = prompt / seconds_since(start);
    start = std::chrono::steady_clock::now();
    for (int i = 0; i < decoded; ++i) {
      const int32_t token = static_cast<int32_t>((i * 104729) % 262144);
      executor->forward({&token, 1}, Logits::kLast);
    }
    const double d = decoded / seconds_since(start);
    if (run == 0) continue;  // warm-up
    prefill.push_back(p);
    decode.push_back(d);
  }
  const double after = measure_read_bandwidth(pool);
  std::sort(prefill.begin(), prefill.end());
  std::sort(decode.begin(), decode.end());
  const double bytes = decode_cost(plan, weights, prompt + decoded / 2).bytes();
  const double d = decode[decode.size() / 2], best = decode.back();
  fmt::print("{}: {} threads, {:.0f} MB a token, read bandwidth {:.1f} GB/s before, {:.1f} after\n",
             cpu::choose_kernels().name, pool.size(), bytes / 1e6, bandwidth, after);
  fmt::print("decode  median {:.1f} tok/s = {:.1f} GB/s = {:.0f} % of bandwidth; best {:.1f} tok/s = {:.0f} %\n", d,
             d * bytes / 1e9, 100 * d * bytes / 1e9 / std::max(bandwidth, after), best,
             100 * best * bytes / 1e9 / std::max(bandwidth, after));
  fmt::print("prefill({}) median {:.1f} tok/s, best {:.1f}; {:.1f} times decode\n", prompt, prefill[prefill.size() / 2],
             prefill.back(), prefill[prefill.size() / 2] / d);
  return 0;
}
