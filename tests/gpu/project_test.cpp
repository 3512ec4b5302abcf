#include "gpu/ops/project.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "gpu/cases/weight_cases.h"
#include "gpu_test.h"

namespace doppler::gpu {
namespace {

struct Case {
  DType dtype;
  int64_t rows, cols;
};

// W · x in double, and the error that float sums and, with quantised weights, int8 activations may make.
void expect_product(const RandomMatrix& matrix, const std::vector<double>& x, const std::vector<float>& got,
                    const std::string& what) {
  const bool int8 = takes_int8(matrix.tensor.dtype);
  std::vector<double> slack(x.size());
  for (size_t p = 0; p < x.size(); p += 32) {
    double highest = 0;
    for (size_t i = p; i < std::min(x.size(), p + 32); ++i) highest = std::max(highest, std::abs(x[i]));
    for (size_t i = p; i < std::min(x.size(), p + 32); ++i) {
      slack[i] = (int8 ? highest / 254 * 1.01 : 0) + 64 * 0x1p-24 * std::abs(x[i]) + 1e-6 * std::abs(x[i]);
    }
  }
  for (int64_t r = 0; r < matrix.tensor.rows(); ++r) {
    const std::vector<float> row = matrix.row(r);
    const std::vector<double> magnitudes = matrix.magnitudes(r);
    double sum = 0, bound = 1e-6;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += row[i] * x[i];
      bound += std::abs(row[i]) * slack[i] + magnitudes[i] * std::abs(x[i]) * 64 * 0x1p-24;
    }
    ASSERT_NEAR(got[static_cast<size_t>(r)], sum, bound) << what << " row " << r;
  }
}

std::vector<double> normed(const std::vector<double>& x, const std::vector<float>& weight, size_t from, double eps,
                           double offset) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  std::vector<double> out;
  for (size_t i = 0; i < x.size(); ++i) out.push_back(x[i] * factor * (offset + weight[from + i]));
  return out;
}

const Case kCases[] = {{DType::kQ4_K, 300, 1152}, {DType::kQ6_K, 64, 1152}, {DType::kQ4_K, 1500, 160},
                       {DType::kQ8_0, 33, 320},   {DType::kF32, 70, 160},   {DType::kF16, 5, 96},
                       {DType::kBF16, 200, 128},  {DType::kQ6_K, 2100, 64}, {DType::kQ4_K, 7, 36}};

TEST(Project, MultipliesOneTokenFromEveryType) {
  DOPPLER_NEED_DEVICE(device);
  for (const Case& c : kCases) {
    const RandomMatrix matrix(c.dtype, c.rows, c.cols, 5);
    CaseRandom random(3);
    const std::vector<float> x = random.floats(static_cast<size_t>(c.cols), -2, 2);
    const Buffer y = device.create_buffer("y", static_cast<uint64_t>(c.rows) * 4);
    Recording recording(device, "project");
    record_project(recording, "project", upload_weight(device, matrix.tensor), upload_floats(device, "x", x), {}, y);
    device.submit(recording);
    expect_product(matrix, {x.begin(), x.end()}, read<float>(device, y, static_cast<size_t>(c.rows)),
                   fmt::format("{} {}x{}", kernel_name(c.dtype), c.rows, c.cols));
  }
}

TEST(Project, NormsAndAddsTheResidualOnTheWay) {
  DOPPLER_NEED_DEVICE(device);
  for (const Case& c : kCases) {
    for (const int branch : {0, 1, 2}) {
      const size_t cols = static_cast<size_t>(c.cols);
      const RandomMatrix matrix(c.dtype, c.rows, c.cols, 6);
      CaseRandom random(4);
      const std::vector<float> x = random.floats(cols, -20, 20), b = random.floats(cols, -3, 3),
                               norms = random.floats(2 * cols, -0.5, 0.5);
      const Buffer y = device.create_buffer("y", static_cast<uint64_t>(c.rows) * 4),
                   r = device.create_buffer("r", cols * 4);
      Recording recording(device, "project");
      record_project_norm(recording, "project", upload_weight(device, matrix.tensor),
                          {.x = upload_floats(device, "x", x),
                           .branch = branch ? BoundBuffer(upload_floats(device, "branch", b)) : BoundBuffer(),
                           .norms = upload_floats(device, "norms", norms),
                           .branch_norm = branch == 2,
                           .r = r,
                           .eps = 1e-6f,
                           .offset = 1},
                          {}, y);
      device.submit(recording);
      std::vector<double> residual(x.begin(), x.end());
      std::vector<double> added(b.begin(), b.end());
      if (branch == 2) added = normed(added, norms, cols, 1e-6, 1);
      for (size_t i = 0; branch && i < cols; ++i) residual[i] += added[i];
      const std::string what = fmt::format("{} {}x{} branch {}", kernel_name(c.dtype), c.rows, c.cols, branch);
      const std::vector<float> kept = read<float>(device, r, cols);
      for (size_t i = 0; i < cols; ++i) ASSERT_NEAR(kept[i], residual[i], 1e-5 * (1 + std::abs(residual[i]))) << what;
      expect_product(matrix, normed(residual, norms, 0, 1e-6, 1), read<float>(device, y, static_cast<size_t>(c.rows)),
                     what);
    }
  }
}

TEST(Project, GoesThroughRowsOfTwoTypesInOneDispatch) {
  DOPPLER_NEED_DEVICE(device);
  constexpr size_t kCols = 1152;
  const RandomMatrix q(DType::kQ4_K, 48, kCols, 11), k(DType::kQ4_K, 16, kCols, 12), v(DType::kQ6_K, 33, kCols, 13);
  const Tensor* tensors[] = {&q.tensor, &k.tensor, &v.tensor};
  ASSERT_TRUE(can_join(device.capabilities(), tensors));
  const JoinedWeight joined = upload_joined(device, tensors);
  ASSERT_TRUE(joined.all.second);
  CaseRandom random(14);
  const std::vector<float> x = random.floats(kCols, -2, 2), norms = random.floats(kCols, -0.5, 0.5);
  const Buffer y = device.create_buffer("y", 97 * 4), r = device.create_buffer("r", kCols * 4);
  Recording recording(device, "project");
  record_project_norm(recording, "project", joined.all,
                      {.x = upload_floats(device, "x", x),
                       .branch = {},
                       .norms = upload_floats(device, "norms", norms),
                       .branch_norm = false,
                       .r = r,
                       .eps = 1e-6f,
                       .offset = 1},
                      {}, y);
  EXPECT_EQ(recording.dispatches(), 1u);
  device.submit(recording);
  const std::vector<double> expected = normed({x.begin(), x.end()}, norms, 0, 1e-6, 1);
  const std::vector<float> got = read<float>(device, y, 97);
  expect_product(q, expected, {got.begin(), got.begin() + 48}, "q");
  expect_product(k, expected, {got.begin() + 48, got.begin() + 64}, "k");
  expect_product(v, expected, {got.begin() + 64, got.end()}, "v");
}

TEST(Project, RefusesToJoinWhatNoKernelCanRead) {
  DOPPLER_NEED_DEVICE(device);
  const RandomMatrix q(DType::kQ4_K, 16, 256, 1), k(DType::kQ6_K, 16, 256, 2), v(DType::kQ8_0, 16, 256, 3);
  const Tensor* downwards[] = {&k.tensor, &q.tensor};
  const Tensor* others[] = {&q.tensor, &v.tensor};
  EXPECT_FALSE(can_join(device.capabilities(), downwards));
  EXPECT_FALSE(can_join(device.capabilities(), others));
}

TEST(Project, FinishesWithBiasSoftcapAndPlace) {
  DOPPLER_NEED_DEVICE(device);
  const RandomMatrix matrix(DType::kF32, 40, 64, 7);
  CaseRandom random(8);
  const std::vector<float> x = random.floats(64, -1, 1), bias = random.floats(50, -5, 5);
  const Buffer y = device.create_buffer("y", 50 * 4);
  Recording recording(device, "project");
  record_project(recording, "project", upload_weight(device, matrix.tensor), upload_floats(device, "x", x),
                 {.bias = upload_floats(device, "bias", bias), .softcap = 3, .activation = {}, .first_row = 10}, y);
  device.submit(recording);
  const std::vector<float> got = read<float>(device, y, 50);
  for (size_t r = 0; r < 10; ++r) EXPECT_EQ(got[r], 0);
  for (size_t r = 0; r < 40; ++r) {
    double sum = bias[10 + r];
    for (size_t i = 0; i < 64; ++i) sum += matrix.row(static_cast<int64_t>(r))[i] * x[i];
    EXPECT_NEAR(got[10 + r], 3 * std::tanh(sum / 3), 1e-5) << r;
  }
}

TEST(Project, FusesGateAndUp) {
  DOPPLER_NEED_DEVICE(device);
  for (const int64_t rows : {2, 6, 640, 2048}) {
    for (const Activation activation : {Activation::kGeluTanh, Activation::kSilu}) {
      const RandomMatrix matrix(DType::kF32, rows, 96, 9);
      CaseRandom random(10);
      const std::vector<float> x = random.floats(96, -1, 1);
      const Buffer y = device.create_buffer("y", static_cast<uint64_t>(rows) * 2);
      Recording recording(device, "project");
      record_project(recording, "project", upload_weight(device, matrix.tensor), upload_floats(device, "x", x),
                     {.bias = {}, .softcap = 0, .activation = activation, .first_row = 0}, y);
      device.submit(recording);
      const std::vector<float> got = read<float>(device, y, static_cast<size_t>(rows / 2));
      const auto product = [&](int64_t r) {
        const std::vector<float> row = matrix.row(r);
        double sum = 0;
        for (size_t i = 0; i < 96; ++i) sum += static_cast<double>(row[i]) * x[i];
        return sum;
      };
      for (int64_t r = 0; r < rows / 2; ++r) {
        const double gate = product(r), up = product(rows / 2 + r);
        const double inner = std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate);
        const double a =
            activation == Activation::kSilu ? gate / (1 + std::exp(-gate)) : 0.5 * gate * (1 + std::tanh(inner));
        ASSERT_NEAR(got[static_cast<size_t>(r)], a * up, 1e-4 * (1 + std::abs(a * up))) << rows << " row " << r;
      }
    }
  }
}

TEST(Project, LeavesResultsAsInt8ForTheNext) {
  DOPPLER_NEED_DEVICE(device);
  if (!device.capabilities().int8_dot) GTEST_SKIP() << "no packed integer products here";
  for (const auto& [width, cols] : {std::pair<int64_t, int64_t>{32, 64}, {96, 160}, {1120, 1152}}) {
    const RandomMatrix first(DType::kQ4_K, 2 * width, cols, 21), second(DType::kQ6_K, 40, width, 22);
    const Weight gate_up = upload_weight(device, first.tensor), down = upload_weight(device, second.tensor);
    ASSERT_TRUE(can_project_stored(device.capabilities(), {DType::kQ6_K, 40, static_cast<uint64_t>(width)}));
    CaseRandom random(23);
    const Buffer x = upload_floats(device, "x", random.floats(static_cast<size_t>(cols), -2, 2)),
                 norms = upload_floats(device, "norms", random.floats(static_cast<size_t>(cols), -0.5, 0.5)),
                 r = device.create_buffer("r", static_cast<uint64_t>(cols) * 4),
                 plain = device.create_buffer("plain", static_cast<uint64_t>(width) * 4),
                 stored = device.create_buffer("stored", static_cast<uint64_t>(width) * 4),
                 y = device.create_buffer("y", 40 * 4);
    Recording recording(device, "project");
    for (const bool int8 : {false, true}) {
      record_project_norm(
          recording, "gate and up", gate_up,
          {.x = x, .branch = {}, .norms = norms, .branch_norm = false, .r = r, .eps = 1e-6f, .offset = 1},
          {.bias = {}, .softcap = 0, .activation = Activation::kGeluTanh, .first_row = 0, .int8 = int8},
          int8 ? stored : plain);
    }
    record_project_stored(recording, "down", down, stored, {}, y);
    device.submit(recording);
    const std::vector<float> between = read<float>(device, plain, static_cast<size_t>(width));
    expect_product(second, {between.begin(), between.end()}, read<float>(device, y, 40), fmt::format("{}", width));
  }
}

// The pairs of a matrix in one part and in several, and the token they lead to.
TEST(Project, LeavesTheBestOfEveryWorkgroup) {
  DOPPLER_NEED_DEVICE(device);
  constexpr size_t kCols = 64;
  for (const int64_t rows : {1, 5, 700, 9000}) {
    const RandomMatrix matrix(DType::kQ4_K, rows, kCols, 31);
    CaseRandom random(static_cast<uint64_t>(rows));
    const Buffer x = upload_floats(device, "x", random.floats(kCols, -2, 2)),
                 norms = upload_floats(device, "norms", random.floats(kCols, -0.5, 0.5)),
                 r = device.create_buffer("r", kCols * 4),
                 y = device.create_buffer("y", static_cast<uint64_t>(rows) * 4);
    const ResidualNorm input{
        .x = x, .branch = {}, .norms = norms, .branch_norm = false, .r = r, .eps = 1e-6f, .offset = 1};
    for (const uint64_t max_bytes : {uint64_t{0}, uint64_t{100000}}) {
      const Weight weight = upload_weight(device, matrix.tensor, max_bytes);
      const uint32_t count = best_pairs(device.capabilities(), weight), before = 3;
      const Buffer pairs = device.create_buffer("pairs", uint64_t{8} * (before + count));
      Recording recording(device, "project");
      record_project_norm(recording, "logits", weight, input, {}, y);
      Epilogue epilogue;
      epilogue.best = true;
      epilogue.first_pair = before;
      record_project_norm(recording, "best", weight, input, epilogue, pairs);
      device.submit(recording);
      const std::vector<float> logits = read<float>(device, y, static_cast<size_t>(rows));
      const std::vector<uint32_t> got = read<uint32_t>(device, pairs, 2 * (before + count));
      uint32_t key = 0, id = 0;
      std::set<uint32_t> ids;
      for (uint32_t i = 0; i < before + count; ++i) {
        if (i < before) {
          EXPECT_EQ(got[2 * i], 0u);
          continue;
        }
        ids.insert(got[2 * i + 1]);
        if (got[2 * i] > key) {
          key = got[2 * i];
          id = got[2 * i + 1];
        }
      }
      EXPECT_EQ(ids.size(), count);
      EXPECT_EQ(id, std::max_element(logits.begin(), logits.end()) - logits.begin()) << rows << " rows";
      const uint32_t bits = std::bit_cast<uint32_t>(logits[id]);
      EXPECT_EQ(key, bits >> 31 ? ~bits : bits | 0x80000000u);
    }
  }
}

TEST(ProjectChoice, NeverAsksForMoreThanTheDeviceHas) {
  Capabilities minimal = minimal_capabilities();
  EXPECT_FALSE(can_project(minimal, {DType::kQ4_K, 100, 6912})) << "27 KiB of x do not fit in 16 KiB";
  EXPECT_FALSE(can_project(minimal, {DType::kF32, 100, 101})) << "x is read four at a time";
  for (const uint64_t cols : {32u, 160u, 1152u, 2880u, 6912u, 9216u}) {
    for (const uint64_t rows : {1u, 2u, 256u, 1152u, 262144u}) {
      const Variant v = choose_project(minimal, {DType::kQ4_K, rows, cols}, {});
      double lanes = 0, groups = 0;
      for (const auto& [name, value] : v.constants) {
        if (name == "lanes") lanes = value;
        if (name == "groups") groups = value;
      }
      EXPECT_LE(lanes * groups, 256) << v.name();
    }
  }
}

}  // namespace
}  // namespace doppler::gpu
