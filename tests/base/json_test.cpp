#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace doppler {
namespace {

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "";
}

TEST(Json, KeepsTheOrderOfKeys) { EXPECT_EQ(parse_json(R"({"b":1,"a":2})", "x").dump(), R"({"b":1,"a":2})"); }

TEST(Json, SaysWhereTheFaultIs) {
  const std::string message = message_of([] { parse_json("{\n \"a\": nope}", "m.json"); });
  EXPECT_NE(message.find("m.json"), std::string::npos) << message;
  EXPECT_NE(message.find("line 2"), std::string::npos) << message;
}

TEST(Json, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,", "{\"a\" 1}", "\"\\x\"", "nul", "1 2", "\xff"}) {
    EXPECT_NE(message_of([&] { parse_json(text, "m"); }), "") << text;
  }
}

TEST(Json, DeepNestingIsRefusedNotFollowed) {
  const std::string deep(100000, '[');
  EXPECT_NE(message_of([&] { parse_json(deep, "m"); }).find("nested"), std::string::npos);
  const std::string fine = std::string(200, '[') + std::string(200, ']');
  EXPECT_EQ(message_of([&] { parse_json(fine, "m"); }), "");
}

TEST(Json, GettersNamePlaceAndType) {
  const Json object = parse_json(R"({"n": 3, "s": "x", "f": 1.5, "z": null, "b": true, "big": 1e300})", "m");
  EXPECT_EQ(require_int(object, "n", "m"), 3);
  EXPECT_EQ(number_or(object, "f", 0, "m"), 1.5);
  EXPECT_EQ(int_or(object, "z", 7, "m"), 7);
  EXPECT_EQ(string_or(object, "none", "d", "m"), "d");
  EXPECT_TRUE(bool_or(object, "b", false, "m"));
  EXPECT_EQ(message_of([&] { require_int(object, "s", "m"); }),
            "a JSON value has the wrong type (m: s): expected a whole number, got \"x\"");
  EXPECT_EQ(message_of([&] { require_string(object, "q", "m"); }), "a key is missing (m): expected 'q'");
  EXPECT_NE(message_of([&] { require_int(object, "big", "m"); }), "");
  EXPECT_NE(message_of([&] { bool_or(object, "n", false, "m"); }), "");
  EXPECT_NE(message_of([&] { require(Json(3), "n", "m"); }), "");
}

}  // namespace
}  // namespace doppler
