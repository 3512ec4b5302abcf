// One file over a net that does what nets do: every fault ends in the right bytes or in a sentence.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include "hub/local_hub.h"

namespace doppler {
namespace {

using ::testing::HasSubstr;

constexpr size_t kSize = 1'000'003;  // sixteen pieces, the last of them short

class DownloadTest : public ::testing::Test {
 protected:
  DownloadTest() { hub.add("m-Q4_K_M.gguf", bytes); }
  void expect_whole() {
    const fs::path path = hub.pull();
    EXPECT_EQ(slurp(path), bytes);
    EXPECT_FALSE(fs::exists(incomplete()));
  }
  fs::path blob() const {
    return hub.cache() / "blobs" / sha256_hex(std::as_bytes(std::span(bytes.data(), bytes.size())));
  }
  fs::path incomplete() const { return blob().string() + ".incomplete"; }

  LocalHub hub;
  std::string bytes = noise(kSize);
};

TEST_F(DownloadTest, LiesAsHuggingFaceKeepsIt) {
  const fs::path path = hub.pull();
  EXPECT_EQ(slurp(path), bytes);
  ASSERT_TRUE(fs::is_symlink(path));
  EXPECT_EQ(fs::read_symlink(path).string(), "../../blobs/" + blob().filename().string());
  EXPECT_EQ(slurp(hub.cache() / "refs/main"), path.parent_path().filename().string());
  EXPECT_EQ(path.parent_path().parent_path(), hub.cache() / "snapshots");
}

TEST_F(DownloadTest, TakesSeveralConnectionsAndAsksTheHubOnlyAtFirst) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "slow"}, {"rate", 2'000'000}});
  expect_whole();
  EXPECT_EQ(hub.sent_by_cdn(), kSize);
  size_t hub_requests = 0, cdn_requests = 0;
  for (const Json& line : hub.log()) (line["at"] == "hub" ? hub_requests : cdn_requests) += 1;
  EXPECT_EQ(cdn_requests, 16u);
  EXPECT_LE(hub_requests, 1u + 4u + 4u);  // the list, then the redirects of the connections' first pieces
}

TEST_F(DownloadTest, TheTokenStaysWithTheHub) {
  hub.behave({{"token", "hf_secret"}});
  PullOptions options = hub.options();
  options.settings.token = "hf_secret";
  EXPECT_EQ(slurp(resolve_model("hf:org/repo", ModelUse::kSource, options)), bytes);
  bool cdn = false;
  for (const Json& line : hub.log()) {
    const std::string token = line["token"].text();
    EXPECT_EQ(token, line["at"] == "hub" ? "Bearer hf_secret" : "") << "a redirect leads to another host";
    cdn |= line["at"] == "cdn";
  }
  EXPECT_TRUE(cdn);
}

TEST_F(DownloadTest, GoesOnAfterCutConnections) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "cut"}, {"after", 30'000}, {"times", 12}});
  expect_whole();
  EXPECT_EQ(hub.sent_by_cdn(), kSize) << "bytes that had arrived were fetched again";
}

TEST_F(DownloadTest, GoesOnWithWhatAnEarlierTryLeft) {
  fs::create_directories(hub.cache() / "blobs");
  testing::spill(incomplete(), bytes.substr(0, 777'777));
  expect_whole();
  EXPECT_EQ(hub.sent_by_cdn(), kSize - 777'777);
}

TEST_F(DownloadTest, ABeginningThatIsWrongIsFetchedAnewOnce) {
  fs::create_directories(hub.cache() / "blobs");
  testing::spill(incomplete(), noise(500'000, 9));
  expect_whole();
}

TEST_F(DownloadTest, ABeginningLongerThanTheFileIsNone) {
  fs::create_directories(hub.cache() / "blobs");
  testing::spill(incomplete(), noise(kSize + 5, 9));
  expect_whole();
}

TEST_F(DownloadTest, DoesNotFollowALinkInTheWay) {
  fs::create_directories(hub.cache() / "blobs");
  testing::spill(hub.scratch() / "precious", "precious");
  fs::create_symlink(hub.scratch() / "precious", incomplete());
  EXPECT_THAT(hub.refusal(), HasSubstr("the file cannot be created"));
  EXPECT_EQ(slurp(hub.scratch() / "precious"), "precious");
}

TEST_F(DownloadTest, WaitsWhereTheServerIsBusy) {
  for (const int status : {429, 500, 502, 503, 504}) {
    fs::remove_all(hub.cache());
    hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "status"}, {"status", status}, {"times", 3}});
    expect_whole();
  }
}

TEST_F(DownloadTest, WaitsAsLongAsTheServerAsks) {
  hub.rule({{"match", "gguf"},
            {"at", "cdn"},
            {"do", "status"},
            {"status", 429},
            {"headers", {{"Retry-After", "1"}}},
            {"times", 1}});
  const auto start = std::chrono::steady_clock::now();
  expect_whole();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST_F(DownloadTest, ServersThatAskForTooMuchPatienceAreNamed) {
  hub.rule({{"match", "gguf"}, {"do", "status"}, {"status", 503}, {"headers", {{"Retry-After", "3600"}}}});
  EXPECT_THAT(hub.refusal(), HasSubstr("HTTP 503, to be asked again in 3600 s"));
}

TEST_F(DownloadTest, GivesUpAfterSomeTimeAndGoesOnLater) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "status"}, {"status", 503}});
  const std::string said = hub.refusal();
  EXPECT_THAT(said, HasSubstr("the download does not get on"));
  EXPECT_THAT(said, HasSubstr("HTTP 503"));
  EXPECT_FALSE(fs::exists(blob()));
  hub.behave_well();
  expect_whole();
}

TEST_F(DownloadTest, AStalledServerIsAskedAgain) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "stall"}, {"after", 1}, {"times", 2}});
  const auto start = std::chrono::steady_clock::now();
  expect_whole();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));  // stall_seconds
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST_F(DownloadTest, InterruptedItKeepsWhatArrived) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "slow"}, {"rate", 100'000}});
  PullOptions options = hub.options();
  uint64_t arrived = 0;
  options.progress = [&](const std::string&, const std::string&, uint64_t done, uint64_t) { arrived = done; };
  options.cancelled = [&] { return arrived > 50'000; };
  EXPECT_THAT(testing::sentence([&] { resolve_model("hf:org/repo", ModelUse::kSource, options); }),
              HasSubstr("The same command goes on where it stopped"));
  const std::string begun = slurp(incomplete());
  EXPECT_GT(begun.size(), 0u);
  EXPECT_EQ(begun, bytes.substr(0, begun.size()));
  hub.behave_well();
  expect_whole();
}

TEST_F(DownloadTest, AServerWithoutRangesSendsAll) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "no_ranges"}});
  fs::create_directories(hub.cache() / "blobs");
  testing::spill(incomplete(), bytes.substr(0, 400'000));
  expect_whole();
}

TEST_F(DownloadTest, FewerBytesThanSaidAreAskedForAgain) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "short"}, {"less", 1000}, {"times", 5}});
  expect_whole();
}

TEST_F(DownloadTest, AnotherLengthThanAnnouncedIsRefused) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "other"}, {"size", 999'999}});
  EXPECT_THAT(hub.refusal(), HasSubstr("another length than was announced"));
  EXPECT_FALSE(fs::exists(blob()));
}

TEST_F(DownloadTest, OtherBytesThanAnnouncedAreThrownAway) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "corrupt"}, {"byte", 700'000}});
  const std::string said = hub.refusal();
  EXPECT_THAT(said, HasSubstr("is not the file that was announced"));
  EXPECT_THAT(said, HasSubstr("SHA-256 " + blob().filename().string()));
  EXPECT_FALSE(fs::exists(blob()));
  EXPECT_FALSE(fs::exists(incomplete()));
}

TEST_F(DownloadTest, SmallFilesHaveTheirGitHashChecked) {
  hub.add("manifest.json", R"({"version": 1, "something": "else"})", "org/small");
  hub.rule({{"match", "manifest"}, {"do", "corrupt"}, {"byte", 3}});
  EXPECT_THAT(hub.refusal("hf:org/small"), HasSubstr("SHA-1"));
  hub.behave_well();
  EXPECT_EQ(slurp(hub.pull("hf:org/small") / "manifest.json"), R"({"version": 1, "something": "else"})");
}

TEST_F(DownloadTest, AnAddressThatRanOutIsAskedForAnew) {
  hub.rule({{"match", "Signature"}, {"at", "cdn"}, {"do", "status"}, {"status", 403}, {"skip", 7}, {"times", 3}});
  expect_whole();
  size_t refused = 0;
  for (const Json& line : hub.log()) refused += line["status"] == 403;
  EXPECT_EQ(refused, 3u);
}

TEST_F(DownloadTest, TwoAtOnceFetchItOnce) {
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "slow"}, {"rate", 2'000'000}});
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(slurp(hub.pull()) == bytes ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(hub.sent_by_cdn(), kSize);
}

TEST_F(DownloadTest, HonoursTheLockOfHuggingFacesPrograms) {
  const fs::path lock = hub.scratch() / "hub/.locks/models--org--repo" / (blob().filename().string() + ".lock");
  fs::create_directories(lock.parent_path());
  const int fd = ::open(lock.c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  PullOptions options = hub.options();
  options.cancelled = [&] { return !hub.said.empty(); };
  EXPECT_THAT(testing::sentence([&] { resolve_model("hf:org/repo", ModelUse::kSource, options); }),
              HasSubstr("waiting for another program"));
  ::close(fd);
  expect_whole();
}

TEST_F(DownloadTest, AFullDiskIsMetBeforeTheDownload) {
  hub.behave({{"siblings", Json::array({{{"rfilename", "huge-Q4_K_M.gguf"},
                                         {"size", 1ull << 60},
                                         {"lfs", {{"sha256", std::string(64, 'a')}, {"size", 1ull << 60}}}}})}});
  const std::string said = hub.refusal("hf:org/repo:huge-Q4_K_M.gguf");
  EXPECT_THAT(said, HasSubstr("the disk has too little room"));
  EXPECT_THAT(said, HasSubstr("1153 PB"));
  EXPECT_FALSE(fs::exists(hub.cache() / "blobs"));
}

// Killed at any moment: what has its name is whole, the next try gets there, and fetches nothing twice but what was in
// flight.
TEST_F(DownloadTest, KilledAtAnyMomentItLeavesNothingThatOnlyLooksWhole) {
  const char* wish = std::getenv("DOPPLER_TEST_KILLS");
  const int kills = wish ? std::atoi(wish) : 24;
  hub.rule({{"match", "gguf"}, {"at", "cdn"}, {"do", "slow"}, {"rate", 300'000}});
  uint32_t seed = 12345;
  uint64_t before = 0;
  int begun_anew = 0, interrupted = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      hub.pull();
      ::_exit(0);
    }
    seed = seed * 1664525 + 1013904223;
    ::usleep((seed >> 8) % 300'000);
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    if (fs::exists(blob())) {
      ASSERT_EQ(slurp(blob()), bytes) << "after kill " << i;
      ++begun_anew;
      fs::remove_all(hub.cache());
      before = 0;
    } else if (fs::exists(incomplete())) {
      const std::string begun = slurp(incomplete());
      ASSERT_EQ(begun, bytes.substr(0, begun.size())) << "after kill " << i;
      ASSERT_GE(begun.size(), before) << "bytes were lost by kill " << i;
      before = begun.size();
      ++interrupted;
    }
    for (const auto& item : fs::recursive_directory_iterator(hub.scratch().path())) {
      ASSERT_TRUE(!item.is_symlink() || fs::exists(item.path())) << item.path() << " leads nowhere after kill " << i;
    }
  }
  EXPECT_GT(interrupted, begun_anew) << "most kills must meet a download under way";
  hub.behave_well();
  hub.forget_log();
  expect_whole();
  EXPECT_EQ(hub.sent_by_cdn(), kSize - before);
}

}  // namespace
}  // namespace doppler
