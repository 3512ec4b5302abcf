// Speed of the CPU executor on synthetic weights of a real shape (26 layers, hidden 1152, ffn 6912, vocabulary 262144;
// matrices in Q4_K, the embedding, value and down projections in Q6_K), without files or tokenizer.
//   cpu_bench [prompt tokens] [decoded tokens] [runs] [threads] [type of all matrices]
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
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

// CPU seconds that all processes have used, and that this one has.
struct CpuTime {
  double all = 0, own = 0;

  static CpuTime now() {
    CpuTime t;
    std::ifstream stat("/proc/stat");
    std::string cpu;
    double ticks, idle = 0;
    stat >> cpu;
    for (int i = 0; i < 8 && stat >> ticks; ++i) (i == 3 || i == 4 ? idle : t.all) += ticks;
    t.all /= static_cast<double>(sysconf(_SC_CLK_TCK));
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& v) {
      return static_cast<double>(v.tv_sec) + static_cast<double>(v.tv_usec) * 1e-6;
    };
    t.own = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    return t;
  }
};

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

  const double bytes = decode_cost(plan, weights, prompt + decoded / 2).bytes();
  // Passes over memory, runs of tokens and prompts take turns, so that whatever else the machine does falls on all of
  // them. What was measured while other processes used the CPU is left out where there is enough without it.
  auto executor = make_cpu_executor(config, plan, weights, {.context = prompt + decoded + 8, .threads = threads});
  Context context(*executor);
  ThreadPool pool(threads);
  std::vector<int32_t> tokens(static_cast<size_t>(prompt));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 7919) % 262144);
  struct Samples {
    std::vector<double> quiet, all;
    double median() const {
      std::vector<double> v = quiet.size() >= 3 ? quiet : all;
      std::sort(v.begin(), v.end());
      return v[v.size() / 2];
    }
    double best() const { return *std::max_element(all.begin(), all.end()); }
  } prefill, decode, bandwidth;
  const auto measure = [&](Samples& samples, auto&& work) {
    const CpuTime before = CpuTime::now();
    const auto start = std::chrono::steady_clock::now();
    const double rate = work(start);
    const double seconds = seconds_since(start);
    const CpuTime after = CpuTime::now();
    const double others = (after.all - before.all) - (after.own - before.own);
    samples.all.push_back(rate);
    if (others < 0.05 * seconds + 0.01) samples.quiet.push_back(rate);
  };
  for (int run = 0; run < runs; ++run) {
    context.reset();
    if (run == 0) context.forward(tokens, Logits::kLast), context.reset();  // warms up
    measure(prefill, [&](auto start) {
      context.forward(tokens, Logits::kLast);
      return prompt / seconds_since(start);
    });
    constexpr int kTogether = 8;
    for (int i = 0; i + kTogether <= decoded; i += kTogether) {
      if (i % 32 == 0)
        measure(bandwidth, [&](auto) { return measure_read_bandwidth(pool, static_cast<size_t>(bytes)); });
      measure(decode, [&](auto start) {
        for (int j = i; j < i + kTogether; ++j) {
          const int32_t token = static_cast<int32_t>((j * 104729) % 262144);
          context.forward({&token, 1}, Logits::kLast);
        }
        return kTogether / seconds_since(start);
      });
    }
  }
  const auto line = [&](const char* name, double d, double b, double p) {
    fmt::print(
        "{:<7} bandwidth {:5.1f} GB/s   decode {:5.1f} tok/s = {:5.1f} GB/s = {:3.0f} %   prefill({}) {:6.1f} tok/s = "
        "{:.1f} x\n",
        name, b, d, d * bytes / 1e9, 100 * d * bytes / 1e9 / b, prompt, p, p / d);
  };
  fmt::print("{}: {} threads, {:.0f} MB per token; quiet samples: bandwidth {}/{}, decode {}/{}, prefill {}/{}\n",
             cpu::choose_kernels().name, pool.size(), bytes / 1e6, bandwidth.quiet.size(), bandwidth.all.size(),
             decode.quiet.size(), decode.all.size(), prefill.quiet.size(), prefill.all.size());
  line("median", decode.median(), bandwidth.median(), prefill.median());
  line("best", decode.best(), bandwidth.best(), prefill.best());
  return 0;
}
