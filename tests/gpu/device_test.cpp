#include "gpu/webgpu/device.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <thread>

#include "gpu/gpu_test.h"
#include "gpu/ops/elementwise.h"
#include "gpu/webgpu/recording.h"
#include "gpu/wgsl/elementwise.h"

namespace doppler::gpu {
namespace {

using testing::Test;

std::vector<float> ramp(size_t n, float first) {
  std::vector<float> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

TEST(Device, ReportsLimitsAtLeastAsLargeAsWebGpuPromises) {
  DOPPLER_NEED_DEVICE(device);
  check_capabilities(device.capabilities(), "test");
  EXPECT_FALSE(device.info().name.empty());
  if (device.capabilities().subgroups) {
    EXPECT_GE(device.capabilities().subgroup_min, 4u);
    EXPECT_LE(device.capabilities().subgroup_max, 128u);
  }
}

TEST(Device, RefusesAnAdapterThatIsNotThere) {
  DOPPLER_NEED_DEVICE(device);
  const Error error = error_of([] { Device other({.adapter = 99}); });
  EXPECT_EQ(error.code, ErrorCode::kUsage);
}

TEST(Device, ReadsBackWhatWasWritten) {
  DOPPLER_NEED_DEVICE(device);
  const size_t n = (3u << 20) / 4 + 5;  // more than one staging buffer, and not a multiple of it
  const std::vector<float> values = ramp(n, 1);
  Buffer buffer = device.create_buffer("values", n * 4);
  write<float>(device, buffer, values);
  EXPECT_EQ(read<float>(device, buffer, n), values);
  EXPECT_EQ(read<float>(device, buffer, 7, 8), std::vector<float>(values.begin() + 2, values.begin() + 9));
}

// Whichever thread waits may be the one that hears another's answer.
TEST(Device, TwoThreadsReadEachFromADeviceOfItsOwn) {
  DOPPLER_NEED_DEVICE(ignored);
  const auto work = [](float first, int* wrong) {
    Device device;
    Buffer buffer = device.create_buffer("values", 64 * 4);
    for (int round = 0; round < 100; ++round) {
      const std::vector<float> values = ramp(64, first + static_cast<float>(round));
      write<float>(device, buffer, values);
      *wrong += read<float>(device, buffer, 64) != values;
    }
  };
  int wrong[2] = {0, 0};
  struct stat before = {};
  ASSERT_EQ(::fstat(STDERR_FILENO, &before), 0);
  std::thread other(work, 1000.0f, &wrong[1]);
  work(0.0f, &wrong[0]);
  other.join();
  EXPECT_EQ(wrong[0] + wrong[1], 0);
  struct stat after = {};
  ASSERT_EQ(::fstat(STDERR_FILENO, &after), 0);
  EXPECT_TRUE(after.st_dev == before.st_dev && after.st_ino == before.st_ino) << "stderr is another file now";
}

TEST(Device, NewBuffersHoldZeros) {
  DOPPLER_NEED_DEVICE(device);
  Buffer buffer = device.create_buffer("fresh", 64);
  EXPECT_EQ(read<float>(device, buffer, 16), std::vector<float>(16, 0.0f));
}

TEST(Device, CountsTheBytesOfLiveBuffers) {
  DOPPLER_NEED_DEVICE(device);
  const uint64_t before = device.allocated_bytes();
  {
    Buffer buffer = device.create_buffer("counted", 100);
    EXPECT_EQ(device.allocated_bytes(), before + 112);
  }
  EXPECT_EQ(device.allocated_bytes(), before);
}

TEST(Device, ABufferLargerThanTheDeviceAllowsIsAMemoryErrorThatNamesIt) {
  DOPPLER_NEED_DEVICE(device);
  const Error error =
      error_of([&] { device.create_buffer("giant", device.capabilities().limits.max_buffer_bytes + 16); });
  EXPECT_EQ(error.code, ErrorCode::kMemory);
  EXPECT_NE(error.where.find("giant"), std::string::npos);
}

TEST(Device, MemoryThatIsNotThereIsAMemoryErrorAndTheDeviceGoesOn) {
  DOPPLER_NEED_DEVICE(device);
  const uint64_t bytes = device.capabilities().limits.max_buffer_bytes;
  if (bytes < uint64_t{512} << 30) GTEST_SKIP() << "this device has no buffers larger than its memory";
  const Error error = error_of([&] { device.create_buffer("everything", bytes); });
  EXPECT_EQ(error.code, ErrorCode::kMemory) << error.message();
  EXPECT_NE(error.where.find("everything"), std::string::npos);
  Buffer small = device.create_buffer("small", 64);
  EXPECT_EQ(read<float>(device, small, 4), std::vector<float>(4, 0.0f));
}

TEST(Device, CanBeOpenedAndClosedManyTimesWithoutGrowing) {
  DOPPLER_NEED_DEVICE(device);
  auto resident_pages = [] {
    std::ifstream statm("/proc/self/statm");
    long total = 0, resident = 0;
    statm >> total >> resident;
    return resident;
  };
  auto open_and_close = [](int times) {
    for (int i = 0; i < times; ++i) {
      Device other;
      Buffer a = other.create_buffer("a", 1 << 16), b = other.create_buffer("b", 1 << 16);
      Buffer out = other.create_buffer("out", 1 << 16);
      Recording recording(other, "once");
      record_add(recording, "sum", a, b, out, 1 << 14);
      other.submit(recording);
      read<float>(other, out, 16);
    }
  };
  open_and_close(3);
  const long before = resident_pages();
  open_and_close(20);
  EXPECT_LT(resident_pages() - before, 20 * 1024 * 1024 / 4096);  // a device costs several MiB; 20 of them far more
}

TEST(Device, WritesAndReadsOutsideABufferAreRefused) {
  DOPPLER_NEED_DEVICE(device);
  Buffer buffer = device.create_buffer("small", 16);
  const std::vector<float> five(5);
  EXPECT_EQ(error_of([&] { write<float>(device, buffer, five); }).code, ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { read<float>(device, buffer, 5); }).code, ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { read<float>(device, buffer, 1, 2); }).code, ErrorCode::kInternal);
}

TEST(Device, ShaderErrorsNameTheFileAndLineOfTheFault) {
  DOPPLER_NEED_DEVICE(device);
  const SnippetChoice choice = {"", {"", "fn fine() -> u32 {\n  return 1u;\n}\n", {}}};
  const Snippet snippet = {"fine", {&choice, 1}};
  const BindingInfo binding = {"out", 0, BindingType::kStorage, 0};
  const KernelSource broken = {"broken",
                               {"",
                                "@group(0) @binding(0) var<storage, read_write> out: array<f32>;\n"
                                "@compute @workgroup_size(1)\nfn main() {\n  out[0] = fine() + nonsense;\n}\n",
                                {},
                                "ops/broken.wgsl"},
                               {&snippet, 1},
                               {&binding, 1},
                               0};
  const Error error = error_of([&] { device.kernel(broken, {}); });
  EXPECT_EQ(error.code, ErrorCode::kDevice);
  EXPECT_NE(error.what.find("ops/broken.wgsl:4"), std::string::npos) << error.what;
  EXPECT_NE(error.where.find("broken"), std::string::npos);
}

TEST(Device, AnInvalidPipelineIsAnErrorThatNamesTheKernel) {
  DOPPLER_NEED_DEVICE(device);
  Variant variant = choose_add(device.capabilities());
  variant.constants[0].second = 1u << 20;  // threads
  const Error error = error_of([&] { device.kernel(wgsl::Add::source(), variant); });
  EXPECT_EQ(error.code, ErrorCode::kDevice);
  EXPECT_NE(error.where.find("add"), std::string::npos);
}

TEST(Device, AValidationErrorCarriesTheStepsName) {
  DOPPLER_NEED_DEVICE(device);
  Buffer a = device.create_buffer("a", 1024), b = device.create_buffer("b", 1024),
         out = device.create_buffer("o", 1024);
  Recording recording(device, "misaligned");
  const Error error = error_of([&] { record_add(recording, "layer7.add", BoundBuffer(a, 4, 16), b, out, 4); });
  EXPECT_EQ(error.code, ErrorCode::kDevice);
  EXPECT_NE(error.message().find("layer7.add"), std::string::npos) << error.message();
  device.wait();  // and the device goes on
}

TEST(Device, AFailedSubmitIsAnErrorThatNamesTheRecording) {
  DOPPLER_NEED_DEVICE(device);
  Buffer a = device.create_buffer("a", 16), b = device.create_buffer("b", 16);
  Recording recording(device, "token 12");
  recording.copy("too much", a, 0, b, 0, 32);
  const Error error = error_of([&] { device.submit(recording); });
  EXPECT_EQ(error.code, ErrorCode::kDevice);
  EXPECT_NE(error.message().find("token 12"), std::string::npos) << error.message();
  device.wait();
}

TEST(Device, ABufferThatAKernelWritesCannotBeBoundTwice) {
  DOPPLER_NEED_DEVICE(device);
  Buffer both = device.create_buffer("both", 64), other = device.create_buffer("other", 64);
  Recording recording(device, "aliasing");
  const Error error = error_of([&] { record_add(recording, "layer7.attn_add", both, other, both, 16); });
  EXPECT_EQ(error.code, ErrorCode::kInternal);
  EXPECT_NE(error.where.find("layer7.attn_add"), std::string::npos) << error.where;
}

TEST(Device, AfterLossEveryCallFailsAndANewDeviceCanBeOpened) {
  DOPPLER_NEED_DEVICE(device);
  {
    Device doomed;
    Buffer buffer = doomed.create_buffer("x", 64);
    doomed.lose("pulled out");
    const Error error = error_of([&] { read<float>(doomed, buffer, 4); });
    EXPECT_EQ(error.code, ErrorCode::kDevice);
    EXPECT_NE(error.what.find("pulled out"), std::string::npos) << error.what;
    EXPECT_EQ(error_of([&] { doomed.create_buffer("y", 64); }).code, ErrorCode::kDevice);
  }
  Device again;
  Buffer buffer = again.create_buffer("x", 64);
  EXPECT_EQ(read<float>(again, buffer, 4), std::vector<float>(4, 0.0f));
}

TEST(Recording, ReplaysAndRewritesItsParameters) {
  DOPPLER_NEED_DEVICE(device);
  Buffer a = device.create_buffer("a", 64), b = device.create_buffer("b", 64), out = device.create_buffer("out", 64);
  write<float>(device, a, ramp(16, 0));
  write<float>(device, b, ramp(16, 100));
  Recording recording(device, "replay");
  const Variant variant = choose_add(device.capabilities());
  const size_t add =
      recording.dispatch<wgsl::Add>("sum", variant, {.count = 3, .scale = 1}, {.a = a, .b = b, .out = out}, {});
  recording.copy("back", out, 0, a, 0, 64);
  device.submit(recording);
  recording.set_params<wgsl::Add>(add, {.count = 2, .scale = 1});
  device.submit(recording, 2);
  const std::vector<float> got = read<float>(device, out, 4);
  EXPECT_EQ(got, (std::vector<float>{300, 304, 104, 0}));
}

TEST(Recording, KeepsWhatItUsesAlive) {
  DOPPLER_NEED_DEVICE(device);
  Buffer out = device.create_buffer("out", 64);
  Recording recording(device, "keeps");
  {
    Buffer a = device.create_buffer("a", 64), b = device.create_buffer("b", 64);
    write<float>(device, a, ramp(16, 1));
    record_add(recording, "sum", a, b, out, 16);
  }
  device.submit(recording);
  EXPECT_EQ(read<float>(device, out, 16), ramp(16, 1));
}

TEST(Recording, HoldsMoreParametersThanOneChunk) {
  DOPPLER_NEED_DEVICE(device);
  constexpr size_t kCount = 300;
  Buffer a = device.create_buffer("a", kCount * 256), b = device.create_buffer("b", kCount * 256);
  Buffer out = device.create_buffer("out", kCount * 256);
  write<float>(device, a, ramp(kCount * 64, 0));
  Recording recording(device, "many");
  for (size_t i = 0; i < kCount; ++i) {
    auto part = [&](const Buffer& whole) { return BoundBuffer(whole, i * 256, 256); };
    record_add(recording, "part", part(a), part(b), part(out), 1 + i % 64);
  }
  device.submit(recording);
  const std::vector<float> got = read<float>(device, out, kCount * 64);
  for (size_t i = 0; i < got.size(); ++i) {
    const float want = i % 64 < 1 + (i / 64) % 64 ? static_cast<float>(i) : 0.0f;
    ASSERT_EQ(got[i], want) << i;
  }
}

TEST(Recording, ReadbackBuffersDeliverInOrder) {
  DOPPLER_NEED_DEVICE(device);
  Buffer x = device.create_buffer("x", 16);
  Buffer first = device.create_buffer("first", 16, BufferUse::kReadback);
  Buffer second = device.create_buffer("second", 16, BufferUse::kReadback);
  auto send = [&](float value, const Buffer& to) {
    const std::vector<float> values(4, value);
    write<float>(device, x, values);
    Recording recording(device, "send");
    recording.copy("out", x, 0, to, 0, 16);
    device.submit(recording);
    device.begin_read(to);
  };
  send(1, first);
  send(2, second);
  const auto last_of = [&](const Buffer& buffer) {
    float got[4] = {};
    device.end_read(buffer, std::as_writable_bytes(std::span(got)));
    return got[3];
  };
  EXPECT_EQ(last_of(second), 2);
  EXPECT_EQ(last_of(first), 1);
  // Who looks may fail; the buffer is in order afterwards.
  send(3, first);
  const Error error{ErrorCode::kUsage, "seen enough", "", "", "", ""};
  EXPECT_THROW(device.end_read(first, 16, [&](std::span<const std::byte>) { fail(error); }), Failure);
  send(4, first);
  EXPECT_EQ(last_of(first), 4);
}

TEST(Recording, MeasuresTimeWithTimestamps) {
  DOPPLER_NEED_DEVICE(device);
  if (!device.capabilities().timestamps) GTEST_SKIP() << "no timestamp queries";
  const size_t n = 1 << 16;
  Buffer a = device.create_buffer("a", n * 4), b = device.create_buffer("b", n * 4),
         out = device.create_buffer("o", n * 4);
  Recording recording(device, "timed");
  record_add(recording, "one", a, b, out, n);
  record_add(recording, "two", a, b, out, n);
  EXPECT_GT(device.time_ns(recording, 3), 0);
  const std::vector<StepTime> steps = device.profile(recording);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].step, "one");
  EXPECT_EQ(steps[1].step, "two");
  EXPECT_GE(steps[1].begin_ns, steps[0].begin_ns);
  EXPECT_GE(steps[0].end_ns, steps[0].begin_ns);
}

TEST(LinearGrid, CoversEveryCountWithinTheLimit) {
  Limits limits = minimal_capabilities().limits;
  limits.workgroups_per_dimension = 100;
  for (uint64_t n : {1, 2, 99, 100, 101, 199, 200, 5000, 9999, 10000}) {
    const Grid grid = linear_grid(n, limits);
    EXPECT_LE(grid.x, 100u);
    EXPECT_LE(grid.y, 100u);
    EXPECT_GE(uint64_t{grid.x} * grid.y, n);
    EXPECT_LT(uint64_t{grid.x} * grid.y, n + grid.y);
  }
  EXPECT_EQ(error_of([&] { linear_grid(10001, limits); }).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace doppler::gpu
