// The debugger, the judge of text and the options from files, as a person calls them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "support/program.h"

namespace doppler {
namespace {

const std::string kSky = "debug models/tiny --prompt 'The color of the sky is' --backend cpu ";

TEST(Debug, PrintsLayersLikeliestTokensAndWatchedOnes) {
  const Outcome outcome = call(kSky + "--layers 0,7 --watch ' blue' --nan-check --probe 'stage=logits,dims=476'");
  EXPECT_EQ(outcome.code, 0);
  for (const char* words : {"layer 0 at position 6", "layer7.out", "max-abs", "' blue'", "watched ' blue'", "place 1",
                            "Every value is finite", "logits[6, 476] = "}) {
    EXPECT_NE(outcome.out.find(words), std::string::npos) << words << "\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find("layer3"), std::string::npos);
}

TEST(Debug, AsksAboutTheSkyWhereNobodySaysWhat) {
  expect_outcome("debug models/tiny --backend cpu --layers 0 --watch ' blue'", 0, "place 1");
}

TEST(Debug, ComparesWithAnotherBackendAsJson) {
  const Outcome outcome = call(kSky + "--compare ref --json");
  EXPECT_EQ(outcome.code, 0);
  const Json json = parse_json(outcome.out, "output");
  EXPECT_TRUE(json["first_bad"].is_null());
  EXPECT_GT(json["stages"].size(), 100u);
  EXPECT_EQ(json["top"][0]["text"], " blue");
}

// A copy of a checkpoint whose matrix has the largest weights there are in its first row (a conversion takes no
// infinite ones), so that sums over it overflow; or another weight.
void spoil(const std::filesystem::path& from, const std::filesystem::path& to, const std::string& tensor,
           uint16_t bf16 = 0x7f7f) {
  std::filesystem::copy(from, to);
  std::fstream file(to / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  uint64_t length = 0;
  file.read(reinterpret_cast<char*>(&length), 8);
  std::string text(length, ' ');
  file.read(text.data(), static_cast<std::streamsize>(length));
  const Json header = parse_json(text, "header");
  ASSERT_TRUE(header.contains(tensor)) << text;
  ASSERT_EQ(header[tensor]["dtype"], "BF16");
  const std::vector<uint16_t> row(header[tensor]["shape"][1].get<size_t>(), bf16);
  file.seekp(static_cast<std::streamoff>(8 + length + header[tensor]["data_offsets"][0].get<uint64_t>()));
  file.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(2 * row.size()));
}

TEST(Debug, StopsAtTheFirstValueThatIsNotFinite) {
  const testing::Scratch scratch;
  const std::string model = (scratch / "model").string();
  spoil(DOPPLER_TEST_DATA "/models/gemma3-a", scratch / "spoilt", "model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(call("convert " + (scratch / "spoilt").string() + " " + model + " --quant f32 --no-tokenizer").code, 0);
  const std::string run = "debug " + model + " --backend cpu --prompt-ids 2,5,9 --nan-check ";
  const Outcome outcome = call(run);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("layer1.up_proj at position 0, column 0 is"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.out.find("layer1.ffn_out"), std::string::npos) << "what came later was not run";
  const Outcome json = call(run + "--json");
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(parse_json(json.out, "output")["not_finite"]["stage"], "layer1.up_proj");
  EXPECT_EQ(call(run + "--layers 0").code, 1) << "the logits are looked at as well";
}

TEST(Debug, ADumpIsAReferenceAndAnotherModelIsOutOfBounds) {
  const testing::Scratch scratch;
  const std::string dump = (scratch / "dump").string(), model = (scratch / "model").string();
  EXPECT_EQ(call("convert tests/data/models/gemma3-a " + model + " --quant f32 --no-tokenizer").code, 0);
  const std::string run = "debug " + model + " --backend cpu ";
  EXPECT_EQ(call(run + "--prompt-ids 2,5,9,14 --dump " + dump).code, 0);
  EXPECT_EQ(call(run + "--compare " + dump).code, 0);
  // What an independent implementation computed, with the prompt it knows.
  expect_outcome(run + "--compare tests/data/models/gemma3-a/reference.safetensors", 0, "within bounds");
  const Outcome other = call(run + "--compare tests/data/models/gemma3-b/reference.safetensors --json");
  EXPECT_EQ(other.code, 1);
  const Json json = parse_json(other.out, "output");
  EXPECT_EQ(json["first_bad"], "embed");
  EXPECT_TRUE(json["cause"].is_string());
  const Json& stages = json["stages"];
  EXPECT_FALSE(stages[stages.size() - 1]["ok"].get<bool>());
}

TEST(Debug, ABundleIsHeldAgainstThisMachine) {
  const testing::Scratch scratch;
  const std::string good = (scratch / "good").string(), bad = (scratch / "bad").string(),
                    bundle = (scratch / "bundle.safetensors").string();
  spoil(DOPPLER_TEST_DATA "/models/gemma3-a", scratch / "spoilt", "model.layers.1.mlp.up_proj.weight", 0);
  const std::string f32 = " --quant f32 --no-tokenizer";
  EXPECT_EQ(call("convert tests/data/models/gemma3-a " + good + f32).code, 0);
  EXPECT_EQ(call("convert " + (scratch / "spoilt").string() + " " + bad + f32).code, 0);
  const std::string ids = " --backend cpu --prompt-ids 2,5,9,14 --bundle ";
  const std::string open = "debug " + good + " --backend ref --compare " + bundle;
  EXPECT_EQ(call("debug " + good + ids + bundle).code, 0);
  const Outcome same = call(open);
  EXPECT_EQ(same.code, 0);
  EXPECT_NE(same.out.find("A bundle of good F32, cpu on"), std::string::npos) << same.out;
  EXPECT_EQ(same.out.find("another than"), std::string::npos) << same.out;
  EXPECT_EQ(call("debug " + bad + ids + bundle).code, 0);
  expect_outcome(open, 1, "Its artefact is another than");
  const Json json = parse_json(call(open + " --json").out, "output");
  EXPECT_EQ(json["first_bad"], "layer1.up_proj");
  EXPECT_EQ(json["bundle"]["backend"], "cpu");
  const Json& stages = json["stages"];
  EXPECT_EQ(stages[stages.size() - 1]["worst"]["got"], 0) << "the bundle's side is what is in question";
  testing::spill(bundle, testing::slurp(bundle).substr(0, 500));
  expect_outcome(open, 4, bundle);
}

TEST(Debug, KernelsAreChosenByHandAndTriedOneAfterAnother) {
  const Outcome tried = call(kSky + "--threads 1 --compare variants --json");
  EXPECT_EQ(tried.code, 0) << tried.err;
  const Json json = parse_json(tried.out, "output");
  EXPECT_GE(json["variants"].size(), 8u) << "what is chosen, and seven kinds in one instruction set at least";
  for (const Json& v : json["variants"]) {
    EXPECT_TRUE(v["first_bad"].is_null()) << v;
    EXPECT_GT(v["stages"].get<int>(), 100) << v;
  }
  const Outcome some = call(kSky + "--threads 1 --compare variants --kernel norm=portable");
  EXPECT_EQ(some.code, 0) << some.err;
  EXPECT_NE(some.out.find("norm=portable"), std::string::npos) << some.out;
  EXPECT_EQ(some.out.find("rope="), std::string::npos) << some.out;
  // A bound that nothing meets: the step and its kernel are named.
  const Outcome strict = call(kSky + "--threads 1 --compare variants --kernel all=portable --bound 1e-9");
  EXPECT_EQ(strict.code, 1);
  EXPECT_NE(strict.out.find("all=portable differs, first at "), std::string::npos) << strict.out;
  EXPECT_NE(strict.out.find("kernel   portable"), std::string::npos) << strict.out;
}

TEST(Debug, AKernelThatIsNotThereIsRefusedWithTheList) {
  const std::string run = "run --raw Hi --max-tokens 1 --backend cpu --kernel ";
  expect_outcome(run + "attention=sse9", 2, "portable");
  expect_outcome(run + "attnetion=portable", 2, "matmul, attention");
  expect_outcome(run + "portable", 2, "KIND=VARIANT");
  expect_outcome("run --raw Hi --max-tokens 1 --backend ref --kernel all=portable", 2, "ref");
  expect_outcome("bench inference --runs 1 --backend cpu --kernel matmul=no", 2, "matmul");
  expect_outcome("test inference --backend cpu --kernel matmul=no", 2, "matmul");
  EXPECT_EQ(call("run --raw 'The color of the sky is' --max-tokens 2 --backend cpu --kernel all=portable").out,
            " blue.\n");
}

TEST(Debug, TellsWhatNoHealthyModelDoes) {
  const testing::Scratch scratch;
  const std::string model = (scratch / "model").string();
  spoil(DOPPLER_TEST_DATA "/models/gemma3-a", scratch / "spoilt", "model.layers.1.self_attn.v_proj.weight", 0);
  EXPECT_EQ(call("convert " + (scratch / "spoilt").string() + " " + model + " --quant f32 --no-tokenizer").code, 0);
  // One row of zeros is no dead head; the record of the model that ships is shown with it, and nothing is wrong there.
  EXPECT_EQ(call("debug " + model + " --backend cpu --prompt-ids 2,5,9").out.find("dead"), std::string::npos);
  const Outcome tiny = call(kSky);
  EXPECT_NE(tiny.out.find("Healthy runs of tiny"), std::string::npos) << tiny.out;
  EXPECT_EQ(tiny.out.find("Anomalies"), std::string::npos) << tiny.out;
  EXPECT_EQ(parse_json(call(kSky + "--json").out, "output")["anomalies"].size(), 0u);
}

// A grammar has the model say the same over and over.
TEST(Watchdog, WarnsOrStopsAtAnAnswerThatRepeatsItself) {
  const testing::Scratch scratch;
  testing::spill(scratch / "q.gbnf", "root ::= \"q\"{300}\n");
  const std::string run =
      "run --raw Hi --backend cpu --max-tokens 100 --grammar " + (scratch / "q.gbnf").string() + " --watchdog ";
  const Outcome warned = call(run + "warn");
  EXPECT_EQ(warned.code, 0);
  EXPECT_NE(warned.err.find("watchdog: "), std::string::npos) << warned.err;
  const Outcome stopped = call(run + "stop");
  EXPECT_EQ(stopped.code, 4);
  EXPECT_NE(stopped.err.find("the watchdog stopped the answer"), std::string::npos) << stopped.err;
  EXPECT_EQ(call(run + "off").err.find("watchdog"), std::string::npos);
  EXPECT_EQ(call("run --raw 'The color of the sky is' --max-tokens 4 --backend cpu --watchdog stop").code, 0);
}

TEST(Debug, RefusesWhatItCannotDo) {
  expect_outcome(kSky + "--layers 0,9", 2, "no such layer");
  expect_outcome(kSky + "--probe nonsense", 2, "probe");
  expect_outcome(kSky + "--compare /nowhere.safetensors", 3, "/nowhere.safetensors");
  expect_outcome(kSky + "--trace nonsense", 2, "subject");
  expect_outcome(kSky + "--html /tmp/x.html --head 9:0", 2, "no such head");
}

// A real browser draws the page: what it measures of its parts comes back in the document.
TEST(Debug, ThePageStandsInABrowser) {
  if (!std::filesystem::exists("/usr/bin/chromium")) GTEST_SKIP() << "there is no chromium here";
  const testing::Scratch scratch;
  const std::string page = (scratch / "page.html").string(), shot = (scratch / "shot.png").string();
  ASSERT_EQ(call(kSky + "--compare ref --head 3:1 --html " + page).code, 0);
  const std::string html = testing::slurp(page);
  EXPECT_EQ(html.find("http://"), html.find("http://www.w3.org"));
  EXPECT_EQ(html.find("<script"), std::string::npos);
  // A copy with a script that looks at every chart and says what it sees.
  const std::string probe =
      "<script>onload=()=>{const seen=[...document.querySelectorAll('svg.chart')].map(s=>{const b=s.getBBox(),"
      "v=s.viewBox.baseVal;return [Math.round(b.width),Math.round(b.height),v.width,v.height,"
      "b.x>=-1&&b.y>=-1&&b.x+b.width<=v.width+1&&b.y+b.height<=v.height+1].join(':')});"
      "document.title='SEEN '+seen.join(' ')+' wide '+(document.documentElement.scrollWidth<=innerWidth)}</script>";
  testing::spill(scratch / "probe.html", html + probe);
  const std::string command = "chromium --headless --no-sandbox --disable-gpu --window-size=1000,1900 ";
  const auto browse = [&](const std::string& rest) {
    FILE* pipe = ::popen((command + rest + " 2>/dev/null").c_str(), "r");
    std::string out;
    std::array<char, 4096> buffer;
    for (size_t n; pipe && (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
    if (pipe) ::pclose(pipe);
    return out;
  };
  const std::string dom = browse("--dump-dom '" + (scratch / "probe.html").string() + "'");
  const size_t seen = dom.find("SEEN ");
  ASSERT_NE(seen, std::string::npos) << dom.substr(0, 400);
  const std::string title = dom.substr(seen, dom.find('<', seen) - seen);
  size_t charts = 0;
  for (size_t at = 0; (at = title.find(":true", at)) != std::string::npos; ++at) ++charts;
  EXPECT_EQ(charts, 4u) << title;  // errors, residual stream, attention, probabilities: each within its frame
  EXPECT_EQ(title.find(":false"), std::string::npos) << title;
  EXPECT_NE(title.find("wide true"), std::string::npos) << title;
  browse("--screenshot='" + shot + "' '" + page + "'");
  EXPECT_GT(testing::slurp(shot).size(), 20000u);
}

TEST(Perplexity, IsPrintedWithTheAgreementOfTwoModels) {
  const testing::Scratch scratch;
  testing::spill(scratch / "ids.json", "[2, 513, 665, 442, 365, 992, 418, 1189]");
  const Outcome outcome = call("perplexity models/tiny --backend cpu --json --window 7 --ids " +
                               (scratch / "ids.json").string() + " --against models/tiny");
  EXPECT_EQ(outcome.code, 0);
  const Json json = parse_json(outcome.out, "output");
  EXPECT_EQ(json["tokens"], 7);
  EXPECT_GT(json["perplexity"].get<double>(), 1);
  EXPECT_NEAR(json["against"]["kl"].get<double>(), 0, 1e-6);
  EXPECT_EQ(json["against"]["top1_agreement"], 1.0);
  testing::spill(scratch / "bad.txt", "2, 5, x");
  expect_outcome("perplexity models/tiny --ids " + (scratch / "bad.txt").string(), 4, "no token id");
  expect_outcome("perplexity models/tiny", 2, "a text or its tokens");
}

TEST(Config, KeysAreOptionsAndWhatIsGivenWins) {
  const testing::Scratch scratch;
  testing::spill(scratch / "c.json", R"({"max_tokens": 2, "raw": true, "backend": "cpu", "stop": ["zzz"]})");
  const std::string file = " --config " + (scratch / "c.json").string();
  EXPECT_EQ(call("run 'The color of the sky is'" + file).out, " blue.\n");
  EXPECT_EQ(call("run 'The color of the sky is'" + file + " --max-tokens 1").out, " blue\n");
  EXPECT_EQ(call("run 'The color of the sky is'" + file + " --config '{\"max_tokens\": 1}'").out, " blue\n");
  expect_outcome("run hello --config '{\"max_tokenz\": 1}'", 2, "max_tokenz");
  expect_outcome("run hello --config /nowhere.json", 3, "/nowhere.json");
  expect_outcome("run hello --config '{\"preset\": \"none\"}'", 2, "preset");
  const Outcome shown = call("config --show run" + file + " --config debug");
  EXPECT_EQ(shown.code, 0);
  for (const char* words : {"max_tokens", "c.json", "preset debug", "temperature", "default"}) {
    EXPECT_NE(shown.out.find(words), std::string::npos) << words << "\n" << shown.out;
  }
}

TEST(Trace, TellsOnlyOfTheSubjectsAskedFor) {
  const std::string run = "run --raw 'The color of the sky is' --max-tokens 2 --backend cpu ";
  const Outcome outcome = call(run + "--trace all,-attn,-ffn,-buffers");
  for (const char* words : {"[loader]", "[kernels]", "[kv]", "[sample]", "[perf]", "[embed]", "[logits]"}) {
    EXPECT_NE(outcome.err.find(words), std::string::npos) << words << "\n" << outcome.err;
  }
  for (const char* words : {"[attn]", "[ffn]", "[buffers]"})
    EXPECT_EQ(outcome.err.find(words), std::string::npos) << words;
  EXPECT_NE(call(run + "--trace attn").err.find("layer0.q_rope"), std::string::npos);
  const Outcome silent = call(run + "--log silent");
  EXPECT_EQ(silent.out, " blue.\n");
  EXPECT_EQ(silent.err, "");
}

}  // namespace
}  // namespace doppler
