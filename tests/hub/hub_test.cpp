// Names, choices and answers of the hub; what the caches hold; checkpoints that become artefacts.
#include <gmock/gmock.h>

#include "format/rdrr.h"
#include "hub/local_hub.h"

namespace doppler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kEndpoint = "https://hub.example";

ModelName parsed(const std::string& text) { return parse_model_name(text, kEndpoint); }

TEST(ModelNames, HaveARevisionAndAFile) {
  const ModelName name = parsed("hf:org/re-po_1.5@refs/pr/1:sub/m.gguf");
  EXPECT_EQ(name.kind, ModelName::Kind::kHub);
  EXPECT_EQ(name.repo, "org/re-po_1.5");
  EXPECT_EQ(name.revision, "refs/pr/1");
  EXPECT_EQ(name.wanted, "sub/m.gguf");
  EXPECT_EQ(parsed("hf:org/repo").revision, "main");
  EXPECT_EQ(parsed("models/tiny").kind, ModelName::Kind::kPath);
}

TEST(ModelNames, AddressesOfTheHubAreNames) {
  for (const char* head : {"https://hub.example/", "https://huggingface.co/", "https://hf.co/"}) {
    EXPECT_EQ(parsed(std::string(head) + "org/repo").id(), "hf:org/repo");
    EXPECT_EQ(parsed(std::string(head) + "org/repo/tree/v1").id(), "hf:org/repo@v1");
    EXPECT_EQ(parsed(std::string(head) + "org/repo/resolve/main/a/m.gguf?download=true").id(), "hf:org/repo:a/m.gguf");
    EXPECT_EQ(parsed(std::string(head) + "org/repo/blob/v2/m.gguf").id(), "hf:org/repo@v2:m.gguf");
  }
  EXPECT_EQ(parsed("https://elsewhere.example/m.gguf").kind, ModelName::Kind::kWeb);
}

TEST(ModelNames, OnesThatCannotBeAreRefused) {
  for (const char* text : {"hf:", "hf:a/b/c", "hf:a/../b", "hf:a--b/c", "hf:a/b@", "hf:a/b@../x", "hf:a/b:../m.gguf",
                           "hf:a/b:", "hf:/b", "hf:a/b c", "hf:a/b:/etc/m.gguf"}) {
    EXPECT_THAT(sentence([&] { parsed(text); }), HasSubstr("hf:org/repo[@revision]")) << text;
  }
}

std::vector<std::string> chosen(const std::vector<std::string>& names, const std::string& wanted = "") {
  std::vector<HubFile> files;
  for (const std::string& name : names) files.push_back({name, 1, std::string(64, 'a')});
  std::vector<std::string> out;
  for (const HubFile& file : choose_files(files, parsed("hf:o/r" + (wanted.empty() ? "" : ":" + wanted))).files)
    out.push_back(file.name);
  return out;
}

TEST(Choice, TakesTheMiddleQuantisationThenTheFineOneThenTheFirst) {
  EXPECT_THAT(chosen({"m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q2_K.gguf"}), ElementsAre("m-Q4_K_M.gguf"));
  EXPECT_THAT(chosen({"m-q8_0.gguf", "m-f16.gguf"}), ElementsAre("m-q8_0.gguf"));
  EXPECT_THAT(chosen({"m-Q2_K.gguf", "m-IQ4_K_M.gguf"}), ElementsAre("m-IQ4_K_M.gguf"));
  EXPECT_THAT(chosen({"mmproj-Q4_K_M.gguf", "imatrix.gguf", "z.gguf"}), ElementsAre("z.gguf"));
}

TEST(Choice, TakesTheNamedFileOrQuantisation) {
  const std::vector<std::string> names = {"m-IQ2_XS.gguf", "m-Q4_K_M.gguf", "q2/m.Q2_K.gguf"};
  EXPECT_THAT(chosen(names, "q2/m.Q2_K.gguf"), ElementsAre("q2/m.Q2_K.gguf"));
  EXPECT_THAT(chosen(names, "q2_k"), ElementsAre("q2/m.Q2_K.gguf"));
  const std::string said = sentence([&] { chosen(names, "Q2_XS"); });
  EXPECT_THAT(said, HasSubstr("m-IQ2_XS.gguf, m-Q4_K_M.gguf, q2/m.Q2_K.gguf"));
}

TEST(Choice, TakesAllPartsOfASplitFile) {
  EXPECT_THAT(chosen({"Q4_K_M/m-00002-of-00002.gguf", "Q4_K_M/m-00001-of-00002.gguf", "Q8_0/m-00001-of-00002.gguf"}),
              ElementsAre("Q4_K_M/m-00001-of-00002.gguf", "Q4_K_M/m-00002-of-00002.gguf"));
  EXPECT_THAT(sentence([] { chosen({"m-00001-of-00003.gguf", "m-00002-of-00003.gguf"}); }), HasSubstr("3 parts"));
}

TEST(Choice, TakesWhatACheckpointNeedsAndNoMore) {
  EXPECT_THAT(chosen({"README.md", "config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
                      "model-00002-of-00002.safetensors", "model.safetensors.index.json", "original/x.safetensors",
                      "pytorch_model.bin", "tokenizer.json"}),
              ElementsAre("config.json", "model.safetensors.index.json", "tokenizer.json",
                          "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  EXPECT_THAT(chosen({"config.json", "model.safetensors", "other.safetensors"}, "q8_0"),
              ElementsAre("config.json", "model.safetensors"));
  EXPECT_THAT(chosen({"1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors",
                      "2_Dense/pytorch_model.bin", "config.json", "config_sentence_transformers.json",
                      "model.safetensors", "modules.json", "onnx/model.safetensors", "openvino/config.json"},
                     "q8_0"),
              ElementsAre("config.json", "config_sentence_transformers.json", "modules.json", "1_Pooling/config.json",
                          "2_Dense/config.json", "2_Dense/model.safetensors", "model.safetensors"));
}

TEST(Choice, SaysWhatIsThereInstead) {
  EXPECT_THAT(sentence([] { chosen({"adapter_config.json", "adapter_model.safetensors"}); }), HasSubstr("adapter"));
  EXPECT_THAT(sentence([] { chosen({"config.json", "pytorch_model.bin"}); }), HasSubstr("pickles"));
  EXPECT_THAT(sentence([] { chosen({"README.md"}); }), HasSubstr("got README.md"));
}

class HubTest : public ::testing::Test {
 protected:
  LocalHub hub;
  void add_gguf() const { hub.add("m-Q4_K_M.gguf", noise(5000)); }
};

TEST_F(HubTest, AnswersAreSentences) {
  add_gguf();
  EXPECT_THAT(hub.refusal("hf:org/none"), HasSubstr("there is no such model, or it is private"));
  EXPECT_THAT(hub.refusal("hf:org/repo@v9"), HasSubstr("no such revision"));
  EXPECT_THAT(hub.refusal("hf:org/repo:none.gguf"), HasSubstr("one of m-Q4_K_M.gguf"));
  hub.behave({{"gated", true}});
  EXPECT_THAT(hub.refusal(), HasSubstr("Ask for access at " + hub.endpoint() + "/org/repo, then set HF_TOKEN"));
  hub.behave({{"token", "hf_right"}});
  PullOptions options = hub.options();
  options.settings.token = "hf_wrong";
  EXPECT_THAT(sentence([&] { resolve_model("hf:org/repo", ModelUse::kSource, options); }),
              HasSubstr("your token may not see it"));
  hub.rule({{"match", "/api/"}, {"do", "status"}, {"status", 429}});
  EXPECT_THAT(hub.refusal(), HasSubstr("the hub wants fewer requests"));
  hub.rule({{"match", "/api/"}, {"do", "status"}, {"status", 403}, {"headers", {{"X-Error-Message", "Disabled"}}}});
  EXPECT_THAT(hub.refusal(), HasSubstr("HTTP 403, Disabled"));
  hub.rule({{"match", "/api/"}, {"do", "status"}, {"status", 503}, {"times", 2}});
  EXPECT_TRUE(fs::exists(hub.pull()));
}

TEST_F(HubTest, NamesThatLeadOutOfTheCacheAreRefused) {
  add_gguf();
  for (const char* name : {"../../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "a\\b.gguf", ""}) {
    hub.behave({{"siblings", Json::array({{{"rfilename", name}, {"size", 1}, {"blobId", std::string(40, 'a')}}})}});
    EXPECT_THAT(hub.refusal(), HasSubstr("list of files cannot be what it says")) << name;
  }
  hub.behave({{"siblings", Json::array({{{"rfilename", "x.gguf"}, {"size", 1}, {"blobId", "../../../evil"}}})}});
  EXPECT_THAT(hub.refusal(), HasSubstr("list of files cannot be what it says"));
}

TEST_F(HubTest, WhatIsHereIsNotFetchedAgainAndIsThereWithoutANet) {
  add_gguf();
  const fs::path path = hub.pull();
  hub.forget_log();
  EXPECT_EQ(hub.pull(), path);
  EXPECT_EQ(hub.log().size(), 1u);  // the list
  PullOptions options = hub.options();
  options.settings.offline = true;
  hub.forget_log();
  EXPECT_EQ(resolve_model("hf:org/repo", ModelUse::kSource, options), path);
  EXPECT_EQ(hub.log().size(), 0u);
  EXPECT_THAT(sentence([&] { resolve_model("hf:org/other", ModelUse::kSource, options); }),
              HasSubstr("is not on this machine, and nothing may be fetched"));
  options.settings.offline = false;
  options.settings.endpoint = "http://127.0.0.1:1";  // nobody listens there
  EXPECT_EQ(resolve_model("hf:org/repo", ModelUse::kSource, options), path);
  EXPECT_THAT(hub.said, HasSubstr("using what is already here"));
  EXPECT_THAT(sentence([&] { resolve_model("hf:org/other", ModelUse::kSource, options); }),
              HasSubstr("Check the connection"));
}

TEST_F(HubTest, ANewRevisionSharesTheBlobsThatStayed) {
  add_gguf();
  const fs::path old = hub.pull();
  hub.add("other.txt", "changes the commit");
  hub.forget_log();
  const fs::path now = hub.pull();
  EXPECT_NE(now, old);
  EXPECT_EQ(fs::canonical(now), fs::canonical(old));
  EXPECT_EQ(hub.sent_by_cdn(), 0u);
  hub.forget_log();
  EXPECT_EQ(hub.pull("hf:org/repo@" + old.parent_path().filename().string() + ":m-Q4_K_M.gguf"), old);
  EXPECT_EQ(hub.log().size(), 0u) << "a file of a commit never changes";
}

TEST_F(HubTest, FilesFromElsewhereHaveACacheOfTheirOwn) {
  const std::string bytes = noise(300'000);
  hub.add("m.gguf", bytes);
  const std::string address = hub.cdn() + "/repos/org/repo/m.gguf?key=s3cr3t";
  hub.rule({{"match", "m.gguf"}, {"do", "cut"}, {"after", 20'000}, {"times", 3}});
  PullOptions options = hub.options();
  options.settings.token = "hf_secret";
  const fs::path path = resolve_model(address, ModelUse::kRun, options);
  EXPECT_EQ(slurp(path), bytes);
  for (const Json& line : hub.log()) EXPECT_EQ(line["token"], "") << "the hub's token went elsewhere";
  hub.forget_log();
  EXPECT_EQ(hub.pull(address), path);
  EXPECT_LE(hub.sent_by_cdn(), 1u << 16);  // what was on its way when its length was known
  hub.add("m.gguf", noise(300'000, 5));    // another version
  EXPECT_EQ(slurp(hub.pull(address)), noise(300'000, 5));
  const std::vector<CachedModel> models = cached_models(options.settings);
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, hub.cdn() + "/repos/org/repo/m.gguf") << "no keys in it";
  EXPECT_THAT(hub.refusal(hub.cdn() + "/page.html"), HasSubstr("must be that of a GGUF"));
  EXPECT_THAT(hub.refusal(hub.cdn() + "/none.gguf"), HasSubstr("HTTP 404"));
  remove_cached(options.settings, parse_model_name(address, hub.endpoint()), false, false);
  EXPECT_TRUE(cached_models(options.settings).empty());
}

TEST_F(HubTest, AnAddressIsAskedOnceForItsLength) {
  hub.add("m.gguf", noise(300'000));
  const std::string address = hub.cdn() + "/repos/org/repo/m.gguf";
  const fs::path path = hub.pull(address);
  const auto requests = [&] {
    hub.forget_log();
    EXPECT_EQ(hub.pull(address), path);
    return hub.log().size();
  };
  EXPECT_EQ(requests(), 1u);
  hub.rule({{"match", "m.gguf"}, {"do", "no_ranges"}});
  EXPECT_EQ(requests(), 1u) << "where the whole file comes the transfer is ended, and that is no fault";
  hub.rule({{"match", "m.gguf"}, {"do", "status"}, {"status", 503}, {"times", 2}});
  EXPECT_EQ(requests(), 3u) << "faults of the server pass";
}

TEST_F(HubTest, ListsAndRemoves) {
  add_gguf();
  hub.add("m-Q8_0.gguf", noise(9000));
  const HubSettings settings = hub.options().settings;
  const fs::path small = hub.pull(), large = hub.pull("hf:org/repo:Q8_0");
  testing::spill(hub.cache() / "blobs" / (std::string(64, 'b') + ".incomplete"), noise(100));
  std::vector<CachedModel> models = cached_models(settings);
  ASSERT_EQ(models.size(), 1u);
  EXPECT_EQ(models[0].name, "hf:org/repo");
  EXPECT_EQ(models[0].blobs, 14'000u);
  EXPECT_EQ(models[0].unfinished, 100u);
  EXPECT_THAT(models[0].contents, ElementsAre("m-Q4_K_M.gguf", "m-Q8_0.gguf"));
  EXPECT_THAT(models[0].revisions, ElementsAre(HasSubstr("main (")));
  const auto name = [&](const std::string& text) { return parse_model_name(text, hub.endpoint()); };
  EXPECT_EQ(remove_cached(settings, name("hf:org/repo:Q8_0"), false, /*dry_run=*/true), 9000u);
  EXPECT_TRUE(fs::exists(large));
  EXPECT_EQ(remove_cached(settings, name("hf:org/repo:Q8_0"), false, false), 9000u);
  EXPECT_FALSE(fs::exists(large));
  EXPECT_TRUE(fs::exists(small));
  hub.add("other.txt", "changes the commit");
  const fs::path newer = hub.pull();
  const std::string old = small.parent_path().filename().string();
  EXPECT_EQ(remove_cached(settings, name("hf:org/repo@" + old), true, false), 0u) << "the blob is in use";
  EXPECT_TRUE(fs::exists(newer));
  EXPECT_EQ(remove_cached(settings, name("hf:org/repo@main"), true, false), 5000u);
  EXPECT_THAT(sentence([&] { remove_cached(settings, name("hf:org/repo@main"), true, false); }),
              HasSubstr("nothing of this name"));
  remove_cached(settings, name("hf:org/repo"), false, false);
  EXPECT_TRUE(cached_models(settings).empty());
  EXPECT_FALSE(fs::exists(hub.cache()));
}

class CheckpointOnTheHub : public HubTest {
 protected:
  CheckpointOnTheHub() {
    for (const char* name : {"config.json", "model.safetensors"})
      hub.add(name, slurp(fs::path(DOPPLER_TEST_DATA "/models/gemma3-a") / name));
    hub.add("tokenizer.json", slurp(DOPPLER_SOURCE_DIR "/models/tiny/tokenizer.json"));
  }
  fs::path run(const std::string& name = "hf:org/repo") { return resolve_model(name, ModelUse::kRun, hub.options()); }
};

TEST_F(CheckpointOnTheHub, OneThatCannotBeReadIsRefusedBeforeItsWeightsAreFetched) {
  const std::string plain = slurp(fs::path(DOPPLER_TEST_DATA "/models/gemma3-a") / "config.json");
  for (const auto& [key, value, found] :
       {std::tuple("quantization", Json{{"group_size", 64}, {"bits", 4}}, "quantised for MLX"),
        {"quantization_config", Json{{"quant_method", "aqlm"}}, "got aqlm"}}) {
    Json config = parse_json(plain, "config.json");
    config[key] = value;
    hub.add("config.json", config.dump());
    hub.forget_log();
    EXPECT_THAT(sentence([&] { run(); }), HasSubstr(found));
    const std::vector<Json> requests = hub.log();
    EXPECT_FALSE(requests.empty());
    for (const Json& request : requests)
      EXPECT_EQ(request["path"].text().find("safetensors"), std::string::npos) << request["path"].text();
  }
  hub.add("config.json", plain);
  EXPECT_TRUE(fs::exists(run() / "manifest.json"));
}

TEST_F(CheckpointOnTheHub, IsConvertedOnceForARevisionAndARecipe) {
  const fs::path artefact = run();
  EXPECT_TRUE(RdrrReader::verify(artefact, true).empty());
  EXPECT_EQ(artefact.parent_path().parent_path(), hub.scratch() / "own/artefacts/org--repo");
  const auto written = fs::last_write_time(artefact / "manifest.json");
  EXPECT_EQ(run(), artefact);
  EXPECT_EQ(fs::last_write_time(artefact / "manifest.json"), written);
  const fs::path fine = run("hf:org/repo:q8_0");
  EXPECT_NE(fine, artefact);
  EXPECT_EQ(fine.filename(), "q8_0");
  const std::vector<CachedModel> models = cached_models(hub.options().settings);
  ASSERT_EQ(models.size(), 1u);
  EXPECT_THAT(models[0].contents, ElementsAre("safetensors", "artefact default", "artefact q8_0"));
  EXPECT_EQ(resolve_model("hf:org/repo", ModelUse::kSource, hub.options()).parent_path().filename(), "snapshots");
}

TEST_F(CheckpointOnTheHub, KilledAtAnyMomentItLeavesNothingThatOnlyLooksWhole) {
  const char* wish = std::getenv("DOPPLER_TEST_KILLS");
  const int kills = wish ? std::atoi(wish) : 12;
  uint32_t seed = 777;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      run();
      ::_exit(0);
    }
    seed = seed * 1664525 + 1013904223;
    ::usleep((seed >> 8) % 100'000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const auto& item : fs::recursive_directory_iterator(hub.scratch().path())) {
      if (item.path().filename() != "manifest.json" || item.path().string().find("/.") != std::string::npos) continue;
      ASSERT_TRUE(RdrrReader::verify(item.path().parent_path(), true).empty()) << "after kill " << i;
      fs::remove_all(item.path().parent_path());
      break;
    }
  }
  const fs::path artefact = run();
  EXPECT_TRUE(RdrrReader::verify(artefact, true).empty());
  for (const auto& item : fs::directory_iterator(artefact.parent_path()))
    EXPECT_FALSE(item.path().filename().string().ends_with(".partial")) << "left behind: " << item.path();
}

TEST(Settings, ComeFromTheEnvironment) {
  const testing::Scratch scratch;
  const std::map<std::string, std::string> variables = {{"HOME", scratch.path().string()},
                                                        {"XDG_CACHE_HOME", ""},
                                                        {"HF_HOME", ""},
                                                        {"HUGGINGFACE_HUB_CACHE", ""},
                                                        {"HF_HUB_CACHE", ""},
                                                        {"HF_TOKEN", ""},
                                                        {"HF_TOKEN_PATH", ""},
                                                        {"HF_ENDPOINT", ""},
                                                        {"HF_HUB_OFFLINE", ""},
                                                        {"DOPPLER_CACHE", ""}};
  std::map<std::string, std::string> before;
  for (const auto& [name, value] : variables) {
    if (const char* old = std::getenv(name.c_str())) before[name] = old;
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  HubSettings settings = settings_from_environment();
  EXPECT_EQ(settings.hub, scratch / ".cache/huggingface/hub");
  EXPECT_EQ(settings.own, scratch / ".cache/doppler");
  EXPECT_EQ(settings.endpoint, "https://huggingface.co");
  EXPECT_EQ(settings.token, "");
  EXPECT_FALSE(settings.offline);
  ::setenv("HF_HOME", "~/hf", 1);
  fs::create_directory(scratch / "hf");
  testing::spill(scratch / "hf/token", "hf_file\n");
  ::setenv("HF_ENDPOINT", "http://127.0.0.1:9/", 1);
  ::setenv("HF_HUB_OFFLINE", "yes", 1);
  settings = settings_from_environment();
  EXPECT_EQ(settings.hub, scratch / "hf/hub");
  EXPECT_EQ(settings.token, "hf_file");
  EXPECT_EQ(settings.endpoint, "http://127.0.0.1:9");
  EXPECT_TRUE(settings.offline);
  ::setenv("HF_TOKEN", "hf_variable", 1);
  ::setenv("HF_HUB_CACHE", "/elsewhere", 1);
  settings = settings_from_environment();
  EXPECT_EQ(settings.token, "hf_variable");
  EXPECT_EQ(settings.hub, "/elsewhere");
  for (const auto& [name, value] : variables) {
    if (before.contains(name))
      ::setenv(name.c_str(), before[name].c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
}

}  // namespace
}  // namespace doppler
