#include "gpu/cases/matmul_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "gpu/cases/quantized_x.h"
#include "gpu/cases/weight_cases.h"
#include "gpu/ops/matmul.h"

namespace doppler::gpu {
namespace {

struct MatmulCase {
  MatmulShape shape;
  bool bias = false;
  uint64_t max_part_bytes = 0;
  uint64_t first = 0, gap = 0;  // of out: elements before row 0, and between one token's rows and the next token's
  std::optional<MatmulChoice> choice = {};  // other than the device's own

  MatmulChoice choose(const Capabilities& capabilities) const {
    return choice ? *choice : choose_matmul(capabilities, shape);
  }
};

// On its device, ready to run. Weights may go: the recording keeps their buffers.
struct Uploaded {
  MatmulInput x;
  MatmulChoice choice;
  Buffer out;
};

Uploaded record(Device& device, Recording& recording, const MatmulCase& c, const Weight& weight,
                const std::vector<float>& x, const std::vector<float>& bias, bool quantize_too) {
  const MatmulShape& s = c.shape;
  Uploaded u;
  u.choice = c.choose(device.capabilities());
  std::vector<float> padded = x;
  padded.resize((x.size() + 3) / 4 * 4, NAN);  // garbage after x shows a kernel that reads past its end
  u.x.tokens = s.tokens;
  u.x.plain = upload_floats(device, "x", padded);
  if (u.choice.kernel == MatmulKernel::kInt8) {
    u.x.quantized = {device.create_buffer("values", quantized_values_bytes(s.tokens, s.cols)),
                     device.create_buffer("scales", quantized_scales_bytes(s.tokens, s.cols))};
    Recording separate(device, "quantize");
    record_quantize_activations(quantize_too ? recording : separate, "quantize", u.x.plain, s.tokens, s.cols,
                                u.x.quantized);
    if (!quantize_too) device.submit(separate);
  }
  if (u.choice.kernel == MatmulKernel::kMatrix) {
    u.x.f16 = {device.create_buffer("values", f16_values_bytes(s.tokens, s.cols)),
               device.create_buffer("scales", f16_scales_bytes(s.tokens))};
    Recording separate(device, "to f16");
    record_activations_to_f16(quantize_too ? recording : separate, "to f16", u.x.plain, s.tokens, s.cols, u.x.f16);
    if (!quantize_too) device.submit(separate);
  }
  const MatmulOutput out = {device.create_buffer("out", (c.first + s.tokens * (s.rows + c.gap)) * 4), s.rows + c.gap,
                            c.first};
  u.out = out.buffer.buffer;
  BoundBuffer scratch;
  if (const uint64_t bytes = matmul_scratch_bytes(u.choice, weight, s.tokens); bytes != 0) {
    scratch = device.create_buffer("scratch", bytes);
  }
  record_matmul(recording, "matmul", u.choice, weight, u.x,
                c.bias ? BoundBuffer(upload_floats(device, "bias", bias)) : BoundBuffer(), out, scratch);
  return u;
}

// Of f16: half a unit in the last place, relative; and below what it has full precision for.
constexpr double kHalf = 0x1p-11, kHalfLeast = 0x1p-25;

// What one product should be, and how far off the kernel may be.
struct Truth {
  double value = 0, bound = 0;
};

// x as the kernel sees it: 8 bits, f16 or f32.
struct SeenX {
  std::vector<double> values, uncertainty;
  double weight_rounding = 0;  // of each weight: relative, where it is held as f16
  // One for each sum over pieces and for the few operations on the way of a term into it: scales, mins, products.
  double roundings = 0;
};

SeenX see(const MatmulCase& c, const MatmulChoice& choice, const std::vector<float>& x) {
  const double cols = static_cast<double>(c.shape.cols);
  if (choice.kernel == MatmulKernel::kInt8) {
    QuantizedX q = quantize_x(x, c.shape.tokens, c.shape.cols);
    return {std::move(q.values), std::move(q.uncertainty), 0, 2 * std::ceil(cols / 32) + 16};
  }
  SeenX seen = {std::vector<double>(x.begin(), x.end()), std::vector<double>(x.size()), 0, cols + 16};
  if (choice.kernel == MatmulKernel::kMatrix) {
    for (size_t i = 0; i < x.size(); ++i) seen.uncertainty[i] = std::abs(seen.values[i]) * kHalf;
    seen.weight_rounding = kHalf;
    seen.roundings *= 2;  // sums within a matrix may be cut rather than rounded
  } else if (c.shape.dtype != DType::kF16 && choice.name().find("matmul_w=f16") != std::string::npos) {
    seen.weight_rounding = kHalf;
  }
  return seen;
}

// One row of W: its weights, and the magnitudes that rounding errors are proportional to.
struct RowOf {
  std::vector<float> weights;
  std::vector<double> magnitudes;
  RowOf(const RandomMatrix& matrix, size_t r)
      : weights(matrix.row(static_cast<int64_t>(r))), magnitudes(matrix.magnitudes(static_cast<int64_t>(r))) {}
};

Truth truth_of(const RowOf& row, size_t token, const SeenX& x, double bias) {
  const size_t cols = row.weights.size();
  double sum = bias, magnitude = std::abs(bias), unsure = 0;
  for (size_t i = 0; i < cols; ++i) {
    const double v = x.values[token * cols + i], w = static_cast<double>(row.weights[i]);
    sum += w * v;
    magnitude += row.magnitudes[i] * std::abs(v);
    unsure += std::abs(w) * x.uncertainty[token * cols + i];
    if (x.weight_rounding != 0) unsure += std::abs(v) * (std::abs(w) * x.weight_rounding + kHalfLeast);
  }
  return {sum, x.roundings * 0x1p-24 * magnitude + unsure};
}

PreparedCase prepare_check(Device& device, const MatmulCase& c) {
  const MatmulShape& s = c.shape;
  const RandomMatrix matrix(s.dtype, static_cast<int64_t>(s.rows), static_cast<int64_t>(s.cols), s.rows * 31 + s.cols);
  CaseRandom random(s.cols + s.tokens);
  const std::vector<float> x = random.floats(s.tokens * s.cols, -100, 100), bias = random.floats(s.rows, -10, 10);
  const Weight weight = upload_weight(device, matrix.tensor, c.max_part_bytes);
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "matmul");
  const Uploaded u = record(device, *p.recording, c, weight, x, bias, true);
  p.out = u.out;
  const SeenX seen = see(c, u.choice, x);
  // Elements that belong to no product must stay zero.
  p.expected.assign(c.first + s.tokens * (s.rows + c.gap), 0);
  p.bound.assign(p.expected.size(), 0);
  for (size_t r = 0; r < s.rows; ++r) {
    const RowOf row(matrix, r);
    for (size_t t = 0; t < s.tokens; ++t) {
      const Truth truth = truth_of(row, t, seen, c.bias ? static_cast<double>(bias[r]) : 0);
      const size_t at = c.first + t * (s.rows + c.gap) + r;
      p.expected[at] = truth.value;
      p.bound[at] = truth.bound;
    }
  }
  return p;
}

// What the measurements of one shape share: made once, by the first.
struct MeasureInputs {
  std::optional<Weight> weight;
  std::vector<float> x;
};

PreparedCase prepare_measure(Device& device, const MatmulCase& c, MeasureInputs& inputs) {
  const MatmulShape& s = c.shape;
  if (!inputs.weight) {
    const RandomMatrix matrix(s.dtype, static_cast<int64_t>(s.rows), static_cast<int64_t>(s.cols), 1);
    inputs.weight = upload_weight(device, matrix.tensor);
    inputs.x = CaseRandom(1).floats(s.tokens * s.cols, -1, 1);
  }
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "matmul");
  p.out = record(device, *p.recording, c, *inputs.weight, inputs.x, {}, false).out;
  device.wait();
  p.bytes = static_cast<double>(inputs.weight->bytes()) + 4.0 * static_cast<double>(s.tokens * (s.rows + s.cols));
  p.flops = 2.0 * static_cast<double>(s.tokens * s.rows * s.cols);
  return p;
}

KernelCase check_case_of(const MatmulCase& c, const std::string& note) {
  const MatmulShape& s = c.shape;
  return {"matmul", fmt::format("{} {}x{}x{}{}", kernel_name(s.dtype), s.tokens, s.rows, s.cols, note), false,
          [c](Device& device, CaseUse) { return prepare_check(device, c); }};
}

KernelCase measure_case_of(const MatmulCase& c, const std::string& note,
                           std::shared_ptr<MeasureInputs> inputs = nullptr) {
  const MatmulShape& s = c.shape;
  return {"matmul", fmt::format("{} {}x{}x{}{}", kernel_name(s.dtype), s.tokens, s.rows, s.cols, note), true,
          [c, inputs](Device& device, CaseUse) {
            MeasureInputs own;
            return prepare_measure(device, c, inputs ? *inputs : own);
          }};
}

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};
constexpr DType kQuantized[] = {DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};

}  // namespace

void append_matmul_cases(std::vector<KernelCase>& cases) {
  auto add = [&](const MatmulCase& c, const std::string& note) { cases.push_back(check_case_of(c, note)); };
  for (DType dtype : kTypes) {
    for (uint64_t cols : {32, 96, 160, 256, 320, 1152}) {
      for (uint64_t rows : {1, 5, 64, 97, 160, 300}) {
        // Every number of tokens with every number of columns and of rows, but not every three of them.
        const uint64_t tokens[] = {1, 2, 7, 16, 33, 64, 130};
        for (size_t i = 0; i < 7; ++i) {
          if ((cols / 32 + rows + i) % 3 == 0) add({{dtype, tokens[i], rows, cols}}, "");
        }
      }
    }
    for (uint64_t cols : {1, 31, 33, 1154}) add({{dtype, 9, 70, cols}, true}, " bias");
    add({{dtype, 20, 150, 160}, true, 16384}, " several parts of rows");
    add({{dtype, 20, 50, 160}, true, 0, 7, 13}, " within a wider buffer");
    add({{dtype, 40, 70, 2304, false, true}, true}, " columns in parts");
    add({{dtype, 20, 75, 2304, false, true}, true, 65536, 3, 5}, " rows and columns in parts");
  }
  for (DType dtype : kQuantized) {
    for (uint64_t cols : {32, 160, 1154}) add({{dtype, 20, 70, cols, true}}, " exact");
  }
  for (const bool exact : {false, true}) add({{DType::kMXFP4, 20, 70, 1154, exact}}, exact ? " exact" : "");
  auto measure = [&](DType dtype, uint64_t tokens, uint64_t rows, uint64_t cols) {
    cases.push_back(measure_case_of({{dtype, tokens, rows, cols, false, true}}, ""));
  };
  for (uint64_t tokens : {32, 128, 512, 2048}) {
    for (DType dtype : {DType::kQ4_K, DType::kQ6_K}) {
      measure(dtype, tokens, 6912, 1152);
      measure(dtype, tokens, 1152, 6912);
      measure(dtype, tokens, 1536, 1152);
      measure(dtype, tokens, 1152, 1024);
    }
  }
  for (DType dtype : {DType::kQ8_0, DType::kBF16, DType::kF16, DType::kF32}) measure(dtype, 512, 6912, 1152);
  cases.push_back(measure_case_of({{DType::kQ4_K, 512, 6912, 1152, true}}, " exact"));
}

std::vector<KernelCase> matmul_tile_cases(const Capabilities& capabilities) {
  std::vector<KernelCase> cases;
  for (const MatmulShape& shape : {MatmulShape{DType::kQ4_K, 130, 150, 160},
                                   {DType::kQ6_K, 130, 150, 160},
                                   {DType::kQ8_0, 130, 150, 160},
                                   {DType::kQ4_K, 130, 150, 160, true},
                                   {DType::kF16, 130, 150, 160}}) {
    // Where the GPU is the CPU a compilation takes seconds, and the longer the larger the tile: there, every thread's
    // tile of a thread once, in its smallest tile, for one type of each kernel.
    if (capabilities.software && (shape.exact || shape.dtype == DType::kQ6_K || shape.dtype == DType::kQ8_0)) continue;
    std::vector<MatmulChoice> choices = matmul_candidates(capabilities, shape);
    std::stable_sort(choices.begin(), choices.end(), [](const MatmulChoice& a, const MatmulChoice& b) {
      return a.tile_rows + a.tile_tokens < b.tile_rows + b.tile_tokens;
    });
    std::vector<std::string> seen;
    for (const MatmulChoice& choice : choices) {
      const std::string tile = choice.variant.name().substr(0, choice.variant.name().find(" row_lanes"));
      if (capabilities.software && std::find(seen.begin(), seen.end(), tile) != seen.end()) continue;
      seen.push_back(tile);
      MatmulCase c = {shape};
      c.choice = choice;
      cases.push_back(check_case_of(c, " " + choice.name()));
    }
  }
  return cases;
}

std::vector<KernelCase> matmul_tuning_cases(const Capabilities& capabilities) {
  std::vector<KernelCase> cases;
  auto add = [&](const MatmulShape& shape) {
    auto inputs = std::make_shared<MeasureInputs>();
    for (const MatmulChoice& choice : matmul_candidates(capabilities, shape)) {
      MatmulCase c = {shape};
      c.choice = choice;
      cases.push_back(measure_case_of(c, " " + choice.name(), inputs));
    }
  };
  for (DType dtype : {DType::kQ4_K, DType::kQ6_K}) {
    add({dtype, 512, 6912, 1152, false, true});
    add({dtype, 512, 1152, 6912, false, true});
    add({dtype, 512, 1536, 1152, false, true});
    add({dtype, 512, 1152, 1024, false, true});
  }
  for (uint64_t tokens : {128, 2048}) {
    add({DType::kQ4_K, tokens, 6912, 1152, false, true});
    add({DType::kQ4_K, tokens, 1152, 6912, false, true});
  }
  add({DType::kQ4_K, 512, 6912, 1152, true, true});
  add({DType::kBF16, 512, 6912, 1152, false, true});
  return cases;
}

}  // namespace doppler::gpu
