// Who may ask, and as whom.
#include "serve/access.h"

#include <gtest/gtest.h>

#include <regex>

#include "base/files.h"
#include "serve/api.h"

namespace doppler::serve {
namespace {

HttpRequest head(const std::string& path, std::map<std::string, std::string> headers) {
  HttpRequest request;
  request.method = "POST";
  request.path = path;
  request.headers = std::move(headers);
  request.client = "10.0.0.7";
  return request;
}

int refused(const AccessOptions& options, const HttpRequest& request) {
  try {
    cors_headers(options, request);
    admit(options, request);
  } catch (const ApiError& error) {
    return error.status;
  }
  return 0;
}

TEST(Access, AClientIsItsKeyOrItsAddress) {
  const AccessOptions keys{.keys = {"first", "second"}};
  const Client bearer = admit(keys, head("/v1/models", {{"authorization", "Bearer second"}}));
  EXPECT_EQ(bearer.key, 2);
  EXPECT_EQ(admit(keys, head("/v1/models", {{"x-api-key", "second"}})).name, bearer.name);
  EXPECT_NE(admit(keys, head("/v1/models", {{"x-api-key", "first"}})).name, bearer.name);
  EXPECT_EQ(bearer.name.find("second"), std::string::npos);  // names end up in logs
  EXPECT_EQ(refused(keys, head("/v1/models", {{"x-api-key", "third"}})), 401);
  EXPECT_EQ(refused(keys, head("/v1/models", {})), 401);
  EXPECT_EQ(admit({}, head("/v1/models", {})).name, "10.0.0.7");
}

TEST(Access, ClientsShareWhatIsInTheCacheUnlessTheyAreKeptApart) {
  const auto salt = [](bool isolate, const char* key) {
    return admit({.keys = {"a", "b"}, .isolate = isolate}, head("/v1/models", {{"x-api-key", key}})).salt;
  };
  EXPECT_EQ(salt(false, "a"), salt(false, "b"));
  EXPECT_NE(salt(true, "a"), salt(true, "b"));
  EXPECT_EQ(salt(true, "a"), salt(true, "a"));
}

// A browser posts with the page's origin; nginx hands over the host that docs/server.md tells it to.
TEST(Access, TheChatPageWorksBehindTheProxyOfTheDocs) {
  const std::string docs = read_text_file(DOPPLER_SOURCE_DIR "/docs/server.md");
  std::smatch host, name, allowed;
  ASSERT_TRUE(std::regex_search(docs, host, std::regex("proxy_set_header Host ([^;]+);")));
  ASSERT_TRUE(std::regex_search(docs, name, std::regex("server_name ([^;]+);")));
  ASSERT_TRUE(std::regex_search(docs, allowed, std::regex("--allow-host ([a-z.]+)")));
  const std::string sent = host[1] == "$http_host" ? name[1].str() : host[1].str();
  const HttpRequest post = head("/v1/chat/completions", {{"host", sent}, {"origin", "https://" + name[1].str()}});
  EXPECT_EQ(refused({.allowed_hosts = {allowed[1]}}, post), 0);
}

}  // namespace
}  // namespace doppler::serve
