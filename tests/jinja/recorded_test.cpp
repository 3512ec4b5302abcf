// Templates of our own, and what jinja2 made of them: tests/data/templates, recorded by record.py there.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/files.h"
#include "jinja/support.h"

namespace doppler {
namespace {

jinja::RenderOptions fixed_clock() {
  jinja::RenderOptions options;
  options.clock = [](const std::string& format) { return "<" + format + ">"; };
  return options;
}

Json read_cases(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(DOPPLER_TEST_DATA) / "templates" / (name + ".json");
  Json file = parse_json(read_text_file(path), path.string());
  require_object(file, "variables", path.string());
  EXPECT_FALSE(require_array(file, "cases", path.string()).empty());
  return file;
}

class Recorded : public ::testing::TestWithParam<const char*> {};

TEST_P(Recorded, RendersWhatJinja2Renders) {
  const Json file = read_cases(GetParam());
  for (const Json& each : file["cases"]) {
    const std::string source = require_string(each, "template", GetParam());
    SCOPED_TRACE(source);
    std::string text;
    Error error;
    try {
      text = testing::render(source, file["variables"], fixed_clock());
    } catch (const Failure& failure) {
      error = failure.error;
    }
    if (const Json* expected = find(each, "text")) {
      EXPECT_EQ(error.what, "") << error.message();
      EXPECT_EQ(text, expected->get<std::string>());
      continue;
    }
    EXPECT_NE(error.what, "") << "jinja2 fails here: " << require_string(each, "error", "") << "; we render " << text;
    EXPECT_NE(error.where.find("test, line "), std::string::npos) << error.message();
    // What raise_exception() says is the template's own and comes through untouched.
    const std::string theirs = string_or(each, "error", "", "");
    const std::string raised = "TemplateError: ";
    if (theirs.starts_with(raised)) {
      EXPECT_EQ(error.what, theirs.substr(raised.size()));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jinja, Recorded,
                         ::testing::Values("expressions", "statements", "whitespace", "syntax", "chat",
                                           "random_expressions", "random_scopes"),
                         [](const auto& each) { return std::string(each.param); });

// What jinja2 renders and we have left out: it fails and says what it was that we do not have.
TEST(JinjaRefused, IsRefusedByNameAndPlace) {
  const Json file = read_cases("refused");
  for (const Json& each : file["cases"]) {
    const std::string source = require_string(each, "template", "refused");
    SCOPED_TRACE(source);
    const Error error = testing::failure_of(source, file["variables"], fixed_clock());
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << error.message();
    EXPECT_EQ(error.what, require_string(each, "refused", "refused") + " is not supported in templates");
    EXPECT_NE(error.where.find("test, line "), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace doppler
