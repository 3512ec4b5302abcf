// `doppler doctor`: what it says of this machine, and of machines that are broken.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "base/json.h"
#include "cli/doctor.h"
#include "support/program.h"

namespace doppler {
namespace {

std::string texts(const Json& findings) {
  std::string all;
  for (const Json& finding : findings)
    all += finding["level"].get<std::string>() + ": " + finding["text"].get<std::string>() + "\n";
  return all;
}

TEST(Doctor, TellsTheMachineAndWhyThereIsNoGpuLibrary) {
  const Outcome outcome = call("doctor --json", "", "export DOPPLER_DAWN=/nowhere/libdawn.so");
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const Json json = parse_json(outcome.out, "doctor");
  EXPECT_TRUE(json["healthy"].get<bool>());
  for (const char* key : {"version", "system", "cpu", "memory", "webgpu", "selfTests", "models", "findings"})
    EXPECT_TRUE(json.contains(key)) << key;
  EXPECT_GE(json["cpu"]["cores"].get<int>(), 1);
  EXPECT_EQ(json["cpu"]["availableKernels"][0], "portable");
  EXPECT_GT(json["memory"]["readBytesPerSecond"].get<double>(), 1e8);
  EXPECT_EQ(json["webgpu"]["library"], "");
  EXPECT_NE(json["webgpu"]["libraryWhy"].get<std::string>().find("/nowhere/libdawn.so"), std::string::npos);
  EXPECT_NE(
      texts(json["findings"]).find("note: no WebGPU library could be loaded, so the CPU runs everything: /nowhere"),
      std::string::npos)
      << texts(json["findings"]);
  // Every set of kernels that this CPU can run, and the model on the CPU.
  ASSERT_EQ(json["selfTests"].size(), json["cpu"]["availableKernels"].size() + 1);
  for (const Json& test : json["selfTests"]) {
    EXPECT_GT(test["checks"].get<int>(), 0) << test.dump();
    EXPECT_EQ(test["failed"], 0) << test.dump();
    EXPECT_LE(test["worstOfBound"].get<double>(), 1) << test.dump();
  }
  EXPECT_GT(json["models"].size(), 10u);
  for (const Json& model : json["models"]) {
    EXPECT_EQ(model["fits"].get<bool>(), model["weightBytes"].get<double>() + model["cacheBytes"].get<double>() <=
                                             json["memory"]["bytes"].get<double>());
    EXPECT_GT(model["mostTokensPerSecond"].get<double>(), 0);
  }
}

TEST(Doctor, ChecksTheKernelsOfASoftwareGpu) {
  const std::string driver = "/usr/lib/chromium/vk_swiftshader_icd.json";
  if (!fs::exists(driver)) GTEST_SKIP() << "there is no SwiftShader here";
  const Outcome outcome = call("doctor --json", "", "export VK_ICD_FILENAMES=" + driver);
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  const Json json = parse_json(outcome.out, "doctor");
  EXPECT_NE(json["webgpu"]["library"].get<std::string>(), "");
  ASSERT_EQ(json["webgpu"]["adapters"].size(), 1u);
  EXPECT_GT(json["webgpu"]["adapters"][0]["limits"]["maxBufferSize"].get<uint64_t>(), 0u);
  EXPECT_GT(json["webgpu"]["copyBytesPerSecond"].get<double>(), 1e6);
  bool seen = false;
  for (const Json& test : json["selfTests"]) {
    if (!test["what"].get<std::string>().starts_with("GPU kernels")) continue;
    seen = true;
    EXPECT_GE(test["checks"].get<int>(), 50) << "one of every operation and type at least";
    EXPECT_EQ(test["failed"], 0) << test.dump();
  }
  EXPECT_TRUE(seen);
}

// An installation whose model is not the one that its hashes say.
TEST(Doctor, AFaultHasAnExitCodeOfItsOwn) {
  const testing::Scratch scratch;
  fs::create_directories(scratch / "bin");
  fs::create_directories(scratch / "models");
  fs::copy(DOPPLER_BINARY_DIR "/doppler", scratch / "bin/doppler");
  fs::copy(DOPPLER_SOURCE_DIR "/models/tiny", scratch / "models/tiny", fs::copy_options::recursive);
  testing::flip_bit(scratch / "models/tiny/shard_00000.bin", 5000);
  const std::string before = "export DOPPLER_DAWN=/nowhere XDG_CACHE_HOME='" + (scratch / "cache").string() + "'";
  const Outcome outcome = testing::call_as((scratch / "bin/doppler").string(), "doctor", "", before);
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  for (const char* words :
       {"FAIL  the model that ships with Doppler", "shard_00000.bin", "Not healthy.", "fault the model"})
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << "\n" << outcome.out;
}

doctor::Examination sound() {
  doctor::Examination e;
  e.cpu = {"a CPU", 8, {"portable", "avx2"}, "avx2", {}};
  e.memory = uint64_t{16} << 30;
  e.available = uint64_t{12} << 30;
  e.library = "/lib/libdawn.so";
  gpu::AdapterInfo adapter;
  adapter.name = "a GPU";
  adapter.capabilities.subgroups = adapter.capabilities.f16 = adapter.capabilities.int8_dot = true;
  e.adapters = {adapter};
  e.tests = {{.what = "CPU kernels, avx2", .checks = 10, .all = 10}};
  return e;
}

// What is found where `change` is all that is wrong.
std::vector<doctor::Finding> found(const std::function<void(doctor::Examination&)>& change) {
  doctor::Examination e = sound();
  change(e);
  return doctor::findings(e);
}

void expect_one(const std::vector<doctor::Finding>& list, doctor::Level level, const std::string& words) {
  ASSERT_EQ(list.size(), 1u) << words;
  EXPECT_EQ(list[0].level, level);
  EXPECT_NE((list[0].text + " " + list[0].todo).find(words), std::string::npos) << list[0].text;
  EXPECT_EQ(doctor::healthy(list), level != doctor::Level::kFault);
}

TEST(DoctorFindings, NothingIsSaidOfASoundMachine) {
  EXPECT_TRUE(found([](auto&) {}).empty());
}

TEST(DoctorFindings, EveryCauseIsNamedWithWhatToDo) {
  using doctor::Examination;
  using doctor::Level;
  expect_one(found([](Examination& e) {
               e.tests[0].failed = 3;
               e.tests[0].failures = {"matmul of Q4_K weights"};
             }),
             Level::kFault, "CPU kernels, avx2: 3 of 10 checks failed; the first: matmul of Q4_K weights");
  expect_one(found([](Examination& e) { e.cpu.used = "portable"; }), Level::kSlow, "Unset DOPPLER_CPU");
  expect_one(found([](Examination& e) { e.cpu.used = "portable", e.cpu.sets = {"portable"}; }), Level::kSlow,
             "no AVX2");
  expect_one(found([](Examination& e) { e.governor = "powersave"; }), Level::kSlow, "cpupower");
  expect_one(found([](Examination& e) { e.load = 5; }), Level::kSlow, "5.0 of 8 cores busy");
  expect_one(found([](Examination& e) { e.large_pages = "never"; }), Level::kSlow, "transparent_hugepage");
  expect_one(found([](Examination& e) { e.available = uint64_t{3} << 30; }), Level::kSlow, "3.0 of 16.0 GiB");
  expect_one(found([](Examination& e) { e.gpu_built = false; }), Level::kNote, "DOPPLER_GPU=ON");
  expect_one(found([](Examination& e) { e.library.clear(), e.library_why = "it is gone", e.adapters.clear(); }),
             Level::kNote, "it is gone");
  expect_one(found([](Examination& e) {
               e.adapters.clear(), e.missing_gpu = "the NVIDIA GPU 10de:2204 is left out: no driver";
             }),
             Level::kSlow, "10de:2204");
  expect_one(found([](Examination& e) { e.adapters.clear(), e.missing_gpu = "no GPU was found"; }), Level::kNote,
             "no GPU was found");
  expect_one(found([](Examination& e) { e.device_why = "the driver refuses"; }), Level::kFault, "the driver refuses");
  expect_one(found([](Examination& e) { e.adapters[0].capabilities.software = true; }), Level::kNote,
             "made of software");
  expect_one(found([](Examination& e) { e.adapters[0].capabilities.int8_dot = false; }), Level::kSlow,
             "packed int8 dot products");
  expect_one(found([](Examination& e) { e.adapters[0].capabilities.f16 = false; }), Level::kSlow, "f16 in shaders");
  expect_one(found([](Examination& e) { e.adapters[0].capabilities.subgroups = false; }), Level::kSlow, "subgroups");
}

}  // namespace
}  // namespace doppler
