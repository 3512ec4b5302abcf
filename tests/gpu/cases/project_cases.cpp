// Cases of the projections of decode: W · norm(x + norm(branch)) for one token, and for tokens of many sequences.
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

PreparedCase prepare_project(Device& device, const ProjectCase& c, CaseUse use) {
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

struct BatchCase {
  DType dtype;
  int64_t rows, cols;
  uint32_t columns, most;  // that there are, and that the grid has room for
  bool normed = true;      // x is norm(x + norm(branch)), or x as it is
  bool measure = false;
};

// State of KvPool::show_columns, as far as products look at it.
Buffer upload_columns(Device& device, uint32_t columns) {
  Buffer state = device.create_buffer("state", 64);
  write<uint32_t>(device, state, std::vector<uint32_t>{columns});
  return state;
}

PreparedCase prepare_batch(Device& device, const BatchCase& c, CaseUse use) {
  const size_t cols = static_cast<size_t>(c.cols), all = cols * c.most;
  const RandomMatrix matrix(c.dtype, c.rows, c.cols, 6);
  CaseRandom random(4);
  const std::vector<float> x = random.floats(all, -20, 20), branch = random.floats(all, -3, 3),
                           norms = random.floats(2 * cols, -0.5, 0.5);
  PreparedCase p;
  p.recording = std::make_unique<Recording>(device, "project_batch");
  p.out = device.create_buffer("y", static_cast<uint64_t>(c.rows) * c.most * 4);
  const Weight weight = upload_weight(device, matrix.tensor);
  const BatchColumns columns{upload_columns(device, c.columns), c.most};
  BatchX into{device.create_buffer("x of columns", c.most * batch_x_bytes(device.capabilities(), weight)),
              device.create_buffer("norms of columns", c.most * 4)};
  const Buffer values = upload_floats(device, "x", x);
  if (c.normed && use == CaseUse::kCheck) {
    record_batch_norm(*p.recording, "norm", weight,
                      {.x = values,
                       .branch = upload_floats(device, "branch", branch),
                       .norms = upload_floats(device, "norms", norms),
                       .branch_norm = true,
                       .r = device.create_buffer("r", all * 4),
                       .eps = kEps,
                       .offset = 1},
                      {}, columns, into);
  } else if (use == CaseUse::kCheck) {
    into = record_batch_values(*p.recording, "values", weight, values, columns, {into.values, {}});
  }
  record_project_batch(*p.recording, "project_batch", weight, into, {}, columns, static_cast<uint32_t>(c.rows), p.out);
  p.bytes = static_cast<double>(weight.bytes());
  p.flops = 2.0 * static_cast<double>(c.rows) * static_cast<double>(c.cols) * c.columns;
  if (use == CaseUse::kMeasure) return p;
  for (uint32_t column = 0; column < c.columns; ++column) {
    const auto begin = static_cast<ptrdiff_t>(column * cols), end = begin + static_cast<ptrdiff_t>(cols);
    std::vector<double> product(x.begin() + begin, x.begin() + end);
    if (c.normed) {
      const std::vector<double> added = normed({branch.begin() + begin, branch.begin() + end}, norms, cols);
      for (size_t i = 0; i < cols; ++i) product[i] += added[i];
      product = normed(product, norms, 0);
    }
    expect_products(p, matrix, product, device.capabilities().int8_dot && takes_int8(c.dtype));
  }
  return p;
}

}  // namespace

void append_project_cases(std::vector<KernelCase>& cases) {
  const auto add = [&](const ProjectCase& c) {
    const std::string scaled = c.scale != 1 ? fmt::format(" times {}, branch times {}", c.scale, c.branch_scale) : "";
    cases.push_back({"project_norm", fmt::format("{} {}x{}{}", kernel_name(c.dtype), c.rows, c.cols, scaled), c.measure,
                     [c](Device& device, CaseUse use) { return prepare_project(device, c, use); }});
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
  const auto add_batch = [&](const BatchCase& c) {
    cases.push_back({"project_batch",
                     fmt::format("{} {}x{} by {} of {}{}", kernel_name(c.dtype), c.rows, c.cols, c.columns, c.most,
                                 c.normed ? "" : " without a norm"),
                     c.measure, [c](Device& device, CaseUse use) { return prepare_batch(device, c, use); }});
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (const int64_t cols : {36, 160, 1152}) add_batch({dtype, 75, cols, 3, 4, cols != 160});
    add_batch({dtype, 75, 160, 11, 16});
  }
  add_batch({DType::kMXFP4, 75, 160, 9, 16});
  for (const uint32_t columns : {1u, 2u, 4u, 5u, 8u, 32u}) {
    add_batch({DType::kQ4_K, 33, 288, columns, std::max(2u, columns)});
  }
  for (const DType dtype : {DType::kQ4_K, DType::kQ6_K}) {
    for (const uint32_t columns : {4u, 8u, 32u, 128u}) {
      add_batch({dtype, 1536, 1152, columns, columns, true, true});
      add_batch({dtype, 13824, 1152, columns, columns, true, true});
      add_batch({dtype, 1152, 6912, columns, columns, true, true});
      add_batch({dtype, 8192, 4096, columns, columns, true, true});
    }
  }
}

}  // namespace doppler::gpu
