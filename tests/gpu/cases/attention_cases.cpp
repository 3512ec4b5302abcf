#include "gpu/cases/attention_cases.h"

#include <fmt/format.h>

#include <cmath>

#include "gpu/cases/attention_truth.h"
#include "gpu/cases/weight_cases.h"
#include "gpu/ops/attention.h"
#include "gpu/ops/project.h"

namespace doppler::gpu {
namespace {

struct AttentionCase {
  AttentionShape shape;
  uint32_t first = 0, tokens = 1;
  uint32_t splits = 8;

  std::string name() const {
    return fmt::format("heads {}/{} dim {} window {} tokens {} from {}{}{}{}", shape.heads, shape.kv_heads,
                       shape.head_dim, shape.window, tokens, first, shape.softcap > 0 ? " softcap" : "",
                       shape.sinks ? " sinks" : "", shape.ahead > 0 ? " both ways" : "");
  }
  // Keys that all queries together look at.
  double pairs() const {
    double sum = 0;
    for (uint32_t t = first; t < first + tokens; ++t) {
      sum += shape.window != 0 && t + 1 > shape.window ? shape.window : t + 1.0;
    }
    return sum * shape.heads;
  }
};

AttentionCase make(uint32_t heads, uint32_t kv_heads, uint32_t dim, uint32_t window, uint32_t first, uint32_t tokens) {
  AttentionCase c;
  c.shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = dim};
  c.shape.window = window;
  c.shape.pages = pages_for(first + tokens, window, tokens);
  c.shape.table = heads % 3;
  c.shape.scale = 1 / std::sqrt(static_cast<float>(dim));
  c.first = first;
  c.tokens = tokens;
  return c;
}

struct Inputs {
  std::vector<float> q, keys, values, sinks;
  Buffer state, weights, cache;
};

template <class T>
Buffer upload_values(Device& device, const std::string& label, const std::vector<T>& values) {
  Buffer buffer = device.create_buffer(label, values.size() * sizeof(T));
  write<T>(device, buffer, std::span<const T>(values));
  return buffer;
}

Inputs attention_inputs(Device& device, const AttentionCase& c, CaseUse use) {
  CaseRandom random(c.first * 977 + c.tokens * 31 + c.shape.head_dim + c.shape.heads);
  Inputs in;
  const size_t kv_width = size_t{c.shape.kv_heads} * c.shape.head_dim, positions = c.first + c.tokens;
  in.q = random.floats(size_t{c.tokens} * c.shape.heads * c.shape.head_dim, -2, 2);
  if (c.shape.sinks) in.sinks = random.floats(c.shape.heads, -3, 3);
  in.keys = as_cached_keys(random.floats(positions * kv_width, -2, 2));
  in.values = as_cached_values(random.floats(positions * kv_width, -1, 1), c.shape.head_dim);
  in.state = upload_values(device, "state", CacheMap(c.shape).state(c.first, c.first + c.tokens));
  in.weights = upload_floats(device, "weights", head_weights(c.shape, {}, {}, in.sinks));
  // Where nothing was stored nothing is finite: a kernel that looked at it would show.
  const uint16_t fill = use == CaseUse::kCheck ? kUnsetElement : 0;
  in.cache = upload_values(device, "cache", packed_cache(c.shape, in.keys, in.values, fill));
  return in;
}

void add_cost_and_truth(PreparedCase& p, const AttentionCase& c, const Inputs& in, CaseUse use) {
  const double kv_width = static_cast<double>(c.shape.kv_heads) * c.shape.head_dim;
  const double seen = std::min<double>(c.first + c.tokens, c.shape.window != 0 ? c.shape.window + c.tokens : 1e9);
  p.bytes = 4 * seen * kv_width + 8.0 * static_cast<double>(in.q.size());
  p.flops = 4 * c.pairs() * c.shape.head_dim;
  if (use != CaseUse::kCheck) return;
  AttentionTruth truth = attention_truth(c.shape, in.q, in.keys, in.values, in.sinks, c.first, 0);
  p.expected = std::move(truth.expected);
  p.bound = std::move(truth.bound);
}

PreparedCase prepare_prefill(Device& device, CaseUse use, const AttentionCase& c) {
  const Inputs in = attention_inputs(device, c, use);
  PreparedCase p;
  p.out = device.create_buffer("out", in.q.size() * 4);
  p.recording = std::make_unique<Recording>(device, "attention_prefill");
  record_attention_prefill(*p.recording, "attention", c.shape,
                           {in.state, upload_floats(device, "q", in.q), in.cache, in.weights, p.out}, c.tokens, {});
  add_cost_and_truth(p, c, in, use);
  return p;
}

PreparedCase prepare_decode(Device& device, CaseUse use, const AttentionCase& c) {
  const Inputs in = attention_inputs(device, c, use);
  PreparedCase p;
  p.out = device.create_buffer("out", in.q.size() * 4);
  const Buffer partials = device.create_buffer("partials", partial_bytes(c.shape, c.splits));
  p.recording = std::make_unique<Recording>(device, "attention_decode");
  record_attention_decode(*p.recording, "attention", c.shape, upload_floats(device, "q", in.q),
                          {in.state, in.weights, in.cache, partials}, c.splits);
  record_attention_merge(*p.recording, "merge", c.shape, in.state, partials, p.out, c.splits);
  add_cost_and_truth(p, c, in, use);
  return p;
}

// The output projection that merges the splits on its way in: W · attention, with W in f32.
PreparedCase prepare_project_merge(Device& device, CaseUse use, const AttentionCase& c) {
  constexpr int64_t kRows = 75;
  const Inputs in = attention_inputs(device, c, use);
  const RandomMatrix matrix(DType::kF32, kRows, static_cast<int64_t>(in.q.size()), 8);
  PreparedCase p;
  p.out = device.create_buffer("out", kRows * 4);
  const Buffer partials = device.create_buffer("partials", partial_bytes(c.shape, c.splits));
  p.recording = std::make_unique<Recording>(device, "project_merge");
  record_attention_decode(*p.recording, "attention", c.shape, upload_floats(device, "q", in.q),
                          {in.state, in.weights, in.cache, partials}, c.splits);
  record_project_merge(*p.recording, "project", upload_weight(device, matrix.tensor),
                       {c.shape, in.state, partials, c.splits}, {}, p.out);
  add_cost_and_truth(p, c, in, use);
  if (use != CaseUse::kCheck) return p;
  const std::vector<double> attention = std::move(p.expected), off = std::move(p.bound);
  p.expected.clear();
  p.bound.clear();
  for (int64_t r = 0; r < kRows; ++r) {
    const std::vector<float> row = matrix.row(r);
    double sum = 0, bound = 1e-6;
    for (size_t i = 0; i < row.size(); ++i) {
      const double weight = static_cast<double>(row[i]);
      sum += weight * attention[i];
      bound += std::abs(weight) * (off[i] + 0x1p-17 * std::abs(attention[i]));  // of the attention, and a sum in f32
    }
    p.expected.push_back(sum);
    p.bound.push_back(bound);
  }
  return p;
}

// The same for two columns, the second of which has the partial results of the first.
PreparedCase prepare_batch_merge(Device& device, CaseUse use, const AttentionCase& c) {
  PreparedCase p = prepare_project_merge(device, use, c);
  const Inputs in = attention_inputs(device, c, use);
  const auto rows = static_cast<int64_t>(p.expected.size());
  const RandomMatrix matrix(DType::kF32, rows, static_cast<int64_t>(in.q.size()), 8);
  const Weight weight = upload_weight(device, matrix.tensor);
  const uint64_t one = partial_bytes(c.shape, c.splits);
  const Buffer partials = device.create_buffer("partials of columns", 2 * one);
  // As KvPool::show_columns writes it: two columns and their positions.
  const BatchColumns columns{upload_values<uint32_t>(device, "columns", {2, 0, 2, 0, c.first, c.first}), 2};
  const BatchX x{device.create_buffer("x", 2 * batch_x_bytes(device.capabilities(), weight)), {}};
  p.out = device.create_buffer("out", static_cast<uint64_t>(2 * rows) * 4);
  p.recording = std::make_unique<Recording>(device, "batch_merge");
  const Buffer first = device.create_buffer("partials", one);
  record_attention_decode(*p.recording, "attention", c.shape, upload_floats(device, "q", in.q),
                          {in.state, in.weights, in.cache, first}, c.splits);
  p.recording->copy("columns", first, 0, partials, 0, one);
  p.recording->copy("columns", first, 0, partials, one, one);
  record_batch_merge(*p.recording, "merge", weight, {c.shape, {}, partials, c.splits}, columns, x);
  record_project_batch(*p.recording, "project", weight, x, {}, columns, static_cast<uint32_t>(rows), p.out);
  for (std::vector<double>* all : {&p.expected, &p.bound}) {
    const std::vector<double> column = *all;
    all->insert(all->end(), column.begin(), column.end());
  }
  return p;
}

// Position 0 of the rope turns nothing and there is no norm, so the raw projections are the rotated ones; what norm and
// rope do is in rope_store's cases and in the tests.
PreparedCase prepare_fused(Device& device, CaseUse use, const AttentionCase& c) {
  const Inputs in = attention_inputs(device, c, use);
  const size_t kv_width = size_t{c.shape.kv_heads} * c.shape.head_dim;
  std::vector<float> row = in.q;
  for (const std::vector<float>* part : {&in.keys, &in.values}) {
    row.insert(row.end(), part->end() - static_cast<ptrdiff_t>(kv_width), part->end());
  }
  RopeTable still;
  still.inv_freq.assign(c.shape.head_dim / 2, 0.0f);
  const Buffer rope = upload_floats(device, "rope", rope_tables(still, static_cast<int>(c.first + 1)));
  const HeadNorm norm = {use == CaseUse::kMeasure, 1e-6f, 1};
  PreparedCase p;
  const Buffer partials = device.create_buffer("partials", partial_bytes(c.shape, c.splits));
  p.out = device.create_buffer("out", in.q.size() * 4);
  p.recording = std::make_unique<Recording>(device, "attention_fused");
  record_attention_fused(*p.recording, "attention", c.shape, norm,
                         packed_projections(upload_floats(device, "qkv", row), c.shape), rope,
                         {in.state, in.weights, in.cache, partials}, c.splits);
  if (use == CaseUse::kCheck)
    record_attention_merge(*p.recording, "merge", c.shape, in.state, partials, p.out, c.splits);
  add_cost_and_truth(p, c, in, use);
  return p;
}

}  // namespace

void append_attention_cases(std::vector<KernelCase>& cases) {
  using Prepare = PreparedCase (*)(Device&, CaseUse, const AttentionCase&);
  const auto add = [&](const char* op, Prepare prepare, const AttentionCase& c, bool measure) {
    const std::string splits = prepare == prepare_prefill ? "" : fmt::format(" splits {}", c.splits);
    cases.push_back(
        {op, c.name() + splits, measure, [=](Device& device, CaseUse use) { return prepare(device, use, c); }});
  };
  for (const uint32_t dim : {64u, 256u}) {
    for (const auto& [heads, kv_heads] : {std::pair{4u, 1u}, {10u, 2u}}) {
      AttentionCase c = make(heads, kv_heads, dim, 40, 100, 19);
      c.shape.softcap = heads == 4 ? 10.0f : 0.0f;
      c.shape.sinks = heads == 10;
      add("attention_prefill", prepare_prefill, c, false);
      for (const uint32_t first : {0u, 64u, 300u}) {
        c = make(heads, kv_heads, dim, first == 300 ? 150 : 0, first, 1);
        c.shape.softcap = heads == 4 ? 10.0f : 0.0f;
        c.shape.sinks = heads == 10;
        add("attention_decode", prepare_decode, c, false);
        add("attention_fused", prepare_fused, c, false);
        if (dim == 64 && first == 300) {
          add("project_merge", prepare_project_merge, c, false);
          add("batch_merge", prepare_batch_merge, c, false);
        }
      }
    }
  }
  // Whole texts whose tokens see both ways: all, or half a window to either side.
  for (const uint32_t window : {0u, 41u}) {
    AttentionCase c = make(3, 1, 64, 0, 0, 150);
    c.shape.window = window;
    c.shape.ahead = window == 0 ? 1u << 30 : window - 1;
    add("attention_prefill", prepare_prefill, c, false);
  }
  // A model of 1B parameters: 4 heads on 1, windows of 512.
  add("attention_prefill", prepare_prefill, make(4, 1, 256, 512, 0, 512), true);
  add("attention_prefill", prepare_prefill, make(4, 1, 256, 512, 3584, 512), true);
  add("attention_prefill", prepare_prefill, make(4, 1, 256, 0, 3584, 512), true);
  add("attention_prefill", prepare_prefill, make(32, 8, 128, 0, 512, 512), true);
  for (const auto& [window, length, splits] : {std::tuple{512u, 128u, 8u},
                                               {512u, 512u, 8u},
                                               {512u, 4096u, 8u},
                                               {0u, 512u, 32u},
                                               {0u, 4096u, 16u},
                                               {0u, 4096u, 32u},
                                               {0u, 4096u, 64u}}) {
    AttentionCase c = make(4, 1, 256, window, length - 1, 1);
    c.splits = splits;
    add("attention_fused", prepare_fused, c, true);
    if (splits != 8) add("attention_decode", prepare_decode, c, true);
  }
  AttentionCase large = make(32, 8, 128, 0, 4095, 1);
  large.splits = 32;
  add("attention_fused", prepare_fused, large, true);
}

}  // namespace doppler::gpu
