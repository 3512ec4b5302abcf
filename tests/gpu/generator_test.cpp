// The build-time generator, run on small files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace {

namespace fs = std::filesystem;

struct Generated {
  int status;
  std::string header, source, errors;
};

std::string slurp(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

class Generator : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("gen_kernels_" + std::to_string(getpid()));
    fs::create_directories(folder_ / "lib");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void snippet(const std::string& name, const std::string& text) { std::ofstream(folder_ / "lib" / name) << text; }

  Generated run(const std::string& wgsl) {
    std::ofstream(folder_ / "some_op.wgsl") << wgsl;
    const std::string command = std::string(DOPPLER_GEN_KERNELS) + " " + (folder_ / "some_op.wgsl").string() + " " +
                                folder_.string() + " 2> " + (folder_ / "errors").string();
    const int status = std::system(command.c_str());
    return {status, slurp(folder_ / "some_op.h"), slurp(folder_ / "some_op.cpp"), slurp(folder_ / "errors")};
  }

  fs::path folder_;
};

constexpr const char* kBindings =
    "@group(0) @binding(0) var<uniform> params: Params;\n"
    "@group(0) @binding(2) var<storage, read_write> out: array<f32>;\n"
    "@group(0) @binding(1) var<storage, read> x: array<f32>;\n";

TEST_F(Generator, MirrorsParamsInUniformLayout) {
  const Generated g =
      run(std::string("struct Params {\n  a: u32, // a comment, with: colons\n  b: vec4<f32>,\n  c: f32,\n"
                      "  /* d: u32, */ e: vec2<i32>\n}\n") +
          kBindings);
  ASSERT_EQ(g.status, 0) << g.errors;
  EXPECT_NE(g.header.find("struct SomeOp {"), std::string::npos);
  for (const char* line :
       {"offsetof(SomeOp::Params, a) == 0", "offsetof(SomeOp::Params, b) == 16", "offsetof(SomeOp::Params, c) == 32",
        "offsetof(SomeOp::Params, e) == 40", "sizeof(SomeOp::Params) == 48", "std::array<float, 4> b"}) {
    EXPECT_NE(g.header.find(line), std::string::npos) << line << "\n" << g.header;
  }
  EXPECT_EQ(g.header.find(" d "), std::string::npos);
}

TEST_F(Generator, ListsBuffersByBindingNumber) {
  const Generated g = run(std::string("struct Params { n: u32 }\n") + kBindings);
  ASSERT_EQ(g.status, 0) << g.errors;
  EXPECT_NE(g.header.find("return {x, out};"), std::string::npos) << g.header;
  EXPECT_NE(g.source.find("{\"params\", 0, BindingType::kUniform, 4}"), std::string::npos) << g.source;
  EXPECT_NE(g.source.find("{\"x\", 1, BindingType::kReadStorage, 0}"), std::string::npos);
  EXPECT_NE(g.source.find("{\"out\", 2, BindingType::kStorage, 0}"), std::string::npos);
}

TEST_F(Generator, EmbedsSnippetsAndLiftsDirectives) {
  snippet("one.wgsl", "fn one() {}\n");
  snippet("several.wgsl",
          "// Words about the file.\n\n// snippet: pick = a\nenable subgroups;\nfn pick() {}\noverride size: u32 = 1;\n"
          "// snippet: pick = b\nfn pick() {}\n");
  const Generated g = run(std::string("// use: one\n// use: pick = a | b\nstruct Params { n: u32 }\n") + kBindings);
  ASSERT_EQ(g.status, 0) << g.errors;
  EXPECT_NE(g.source.find("R\"wgsl(enable subgroups;\n)wgsl\""), std::string::npos) << g.source;
  EXPECT_NE(g.source.find("R\"wgsl(\n\nfn pick(){}\noverride size:u32=1;\n"), std::string::npos) << g.source;
  EXPECT_NE(g.source.find("{\"size\", nullptr}"), std::string::npos);
  EXPECT_NE(g.source.find("{\"pick\", kSomeOpPickChoices}"), std::string::npos);
  EXPECT_NE(g.source.find("lib/several.wgsl\", 3};"), std::string::npos) << g.source;
}

TEST_F(Generator, LeavesOutSpacesButNotBetweenWordsOrOperators) {
  const Generated g =
      run(std::string("struct Params { n: u32 }\n") + kBindings +
          "fn f(p: ptr<function, f32>) -> f32 {\n  let v: vec2<f32> = g(a, - -b) / *p;\n  return -1.0;\n}\n");
  ASSERT_EQ(g.status, 0) << g.errors;
  EXPECT_NE(g.source.find("fn f(p:ptr<function,f32>)->f32{\nlet v:vec2<f32> =g(a,- -b)/ *p;\nreturn-1.0;\n}\n"),
            std::string::npos)
      << g.source;
}

TEST_F(Generator, SaysWhatIsWrongAndWhere) {
  const std::string params = "struct Params { n: u32 }\n";
  const std::pair<std::string, std::string> faults[] = {
      {"\nstruct Params {\n  n: mat4x4<f32>,\n}\n" + std::string(kBindings),
       "some_op.wgsl:3: error: Params.n: type mat4x4<f32>"},
      {"struct Params { n: vec3<f32> }\n" + std::string(kBindings), "vec3<f32> is not supported"},
      {params + "@group(1) @binding(0) var<uniform> params: Params;\n", "some_op.wgsl:2: error: a binding must read"},
      {params + "@group(0) @binding(0) var<storage, read> a: array<f32>;\n", "must come together"},
      {params + kBindings + "@group(0) @binding(2) var<storage, read> z: array<f32>;\n", "binding 2 is declared twice"},
      {"// use: missing\n" + params + kBindings, "some_op.wgsl:1: error: there is no snippet missing"},
      {"fn main() {}\n", "no bindings found"},
      {params + kBindings + "fn main() {}", "must end with a newline"},
  };
  for (const auto& [wgsl, message] : faults) {
    const Generated g = run(wgsl);
    EXPECT_NE(g.status, 0) << wgsl;
    EXPECT_NE(g.errors.find(message), std::string::npos) << g.errors << " for\n" << wgsl;
  }
}

TEST_F(Generator, AFileMayHoldSeveralKernelsAndSnippets) {
  snippet("types.wgsl", "// snippet: type = a\nfn a() {}\n// snippet: type = b\nfn b() {}\n");
  const Generated g = run(std::string("// Words about the file.\n// snippet: own\nfn own() {}\n// kernel: first_one\n"
                                      "// use: own\n// use: type = *\nstruct Params { n: u32 }\n") +
                          kBindings + "// kernel: other\nstruct Params { m: f32 }\n" + kBindings);
  ASSERT_EQ(g.status, 0) << g.errors;
  for (const char* line : {"struct FirstOne {", "struct Other {", "uint32_t n = {};", "float m = {};"}) {
    EXPECT_NE(g.header.find(line), std::string::npos) << line << "\n" << g.header;
  }
  for (const char* line : {"{\"own\", kFirstOneOwnChoices}", "{\"a\", kType_a}", "{\"b\", kType_b}",
                           "kOtherSource = {\"other\", kOtherMain, {}, kOtherBindings, 4}"}) {
    EXPECT_NE(g.source.find(line), std::string::npos) << line << "\n" << g.source;
  }
}

TEST_F(Generator, RefusesSectionsThatCannotBe) {
  const std::string kernel = std::string("// kernel: k\nstruct Params { n: u32 }\n") + kBindings;
  EXPECT_NE(run("fn lost() {}\n" + kernel).errors.find("some_op.wgsl:1: error: there is code before the first section"),
            std::string::npos);
  EXPECT_NE(run("// snippet: twice\n// snippet: twice\n" + kernel).errors.find(":2: error: a second snippet twice"),
            std::string::npos);
  EXPECT_NE(run("// snippet: only\n").errors.find("there is no kernel"), std::string::npos);
}

TEST_F(Generator, ASnippetMayNotDeclareBindings) {
  snippet("bad.wgsl", "@group(0) @binding(5) var<storage, read> b: array<f32>;\n");
  const Generated g = run(std::string("// use: bad\nstruct Params { n: u32 }\n") + kBindings);
  EXPECT_NE(g.status, 0);
  EXPECT_NE(g.errors.find("may not declare bindings"), std::string::npos) << g.errors;
}

}  // namespace
