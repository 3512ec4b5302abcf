// Cases of the projections of decode: W · norm(x + norm(branch)) for one token, and gate and up with their activation.
#include <fmt/format.h>

#include <cmath>

#include "gpu/cases/weight_cases.h"
#include "gpu/ops/project.h"

namespace doppler::gpu {
namespace {

struct ProjectCase {
  DType dtype;
  int64_t rows, cols;
  bool measure = false;
  float branch_scale = 1, scale = 1;
};

constexpr float kEps = 1e-6f;

std::vector<double> normed(const std::vector<double>& x, const std::vector<float>& weight, size_t from) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + kEps);
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * factor * (1 + static_cast<double>(weight[from + i])));
  return out;
}

// The products in double, and what float sums and, with quantised weights, int8 activations may be off by.
void expect_products(PreparedCase& p, const RandomMatrix& matrix, const std::vector<double>& x, bool int8) {
  std::vector<double> slack(x.size());
  for (size_t from = 0; from < x.size(); from += kPiece) {
    const size_t end = std::min(x.size(), from + kPiece);
    double highest = 0;
    for (size_t i = from; i < end; ++i) highest = std::max(highest, std::abs(x[i]));
    for (size_t i = from; i < end; ++i) slack[i] = (int8 ? highest / 254 * 1.01 : 0) + 0x1p-17 * std::abs(x[i]);
  }
  for (int64_t r = 0; r < matrix.tensor.rows(); ++r) {
    const std::vector<float> row = matrix.row(r);
    const std::vector<double> magnitudes = matrix.magnitudes(r);
    double sum = 0, bound = 1e-6;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += row[i] * x[i];
      bound += std::abs(row[i]) * slack[i] + magnitudes[i] * std::abs(x[i]) * 0x1p-18;
    }
    p.expected.push_back(sum);
    p.bound.push_back(bound);
  }
}

PreparedCase prepare(Device& device, const ProjectCase& c, CaseUse use) {
  const size_t cols = static_cast<size_t>(c.cols);
  const RandomMatrix matrix(c.dtype, c.rows, c.cols, 6);
  CaseRandom random(4);
  const std::vector<float> x = random.floats(cols, -20, 20), branch = random.floats(cols, -3, 3),
                           norms = random.floats(2 * cols, -0.5, 0.5);
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "project_norm");
  p.out = device.create_buffer("y", static_cast<uint64_t>(c.rows) * 4);
  const Weight weight = upload_weight(device, matrix.tensor);
  Epilogue epilogue;
  epilogue.scale = c.scale;
  record_project_norm(*p.recording, "project_norm", weight,
                      {.x = upload_floats(device, "x", x),
                       .branch = upload_floats(device, "branch", branch),
                       .norms = upload_floats(device, "norms", norms),
                       .branch_norm = true,
                       .r = device.create_buffer("r", cols * 4),
                       .eps = kEps,
                       .offset = 1,
                       .branch_scale = c.branch_scale},
                      epilogue, p.out);
  p.bytes = static_cast<double>(weight.bytes());
  p.flops = 2.0 * static_cast<double>(c.rows) * static_cast<double>(c.cols);
  if (use == CaseUse::kMeasure) return p;
  const std::vector<double> added = normed({branch.begin(), branch.end()}, norms, cols);
  std::vector<double> residual(x.begin(), x.end());
  for (size_t i = 0; i < cols; ++i) residual[i] += static_cast<double>(c.branch_scale) * added[i];
  std::vector<double> product = normed(residual, norms, 0);
  for (double& v : product) v *= static_cast<double>(c.scale);
  expect_products(p, matrix, product, device.capabilities().int8_dot && takes_int8(c.dtype));
  return p;
}

}  // namespace

void append_project_cases(std::vector<KernelCase>& cases) {
  const auto add = [&](const ProjectCase& c) {
    const std::string scaled = c.scale != 1 ? fmt::format(" times {}, branch times {}", c.scale, c.branch_scale) : "";
    cases.push_back({"project_norm", fmt::format("{} {}x{}{}", kernel_name(c.dtype), c.rows, c.cols, scaled), c.measure,
                     [c](Device& device, CaseUse use) { return prepare(device, c, use); }});
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (const int64_t cols : {36, 160, 1152}) add({dtype, 75, cols});
  }
  add({DType::kMXFP4, 75, 160});
  for (const DType dtype : {DType::kF32, DType::kQ4_K}) add({dtype, 75, 160, false, 0.22f, 0.1f});
  for (const DType dtype : {DType::kQ4_K, DType::kQ6_K}) {
    add({dtype, 1536, 1152, true});
    add({dtype, 13824, 1152, true});
    add({dtype, 262144, 1152, true});
  }
}

}  // namespace doppler::gpu
