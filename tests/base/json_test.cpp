#include "base/json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>

#include "base/error.h"
#include "support/scratch.h"

namespace doppler {
namespace {

TEST(Json, KeepsTheOrderOfKeys) { EXPECT_EQ(parse_json(R"({"b":1,"a":2})", "x").dump(), R"({"b":1,"a":2})"); }

TEST(Json, OfAKeyGivenTwiceTheFirstPlaceAndTheLastValueAreKept) {
  EXPECT_EQ(parse_json(R"({"a":1,"b":{"c":0,"c":[1]},"a":{"d":2},"e":3,"a":4})", "x").dump(),
            R"({"a":4,"b":{"c":[1]},"e":3})");
}

TEST(Json, ListsOfPairsAreObjectsAndOtherListsArrays) {
  const std::vector<float> list = {0.5f, 2};
  const Json json = {{"name", "x"}, {"list", {1, "b", nullptr}}, {"inner", {{"k", true}}}, {"numbers", list}};
  EXPECT_EQ(json.dump(), R"({"name":"x","list":[1,"b",null],"inner":{"k":true},"numbers":[0.5,2.0]})");
  EXPECT_EQ(Json::array({{{"role", "user"}}}).dump(), R"([{"role":"user"}])");
  EXPECT_EQ((Json{{"a", 1}, {"b", 2, 3}}).dump(), R"([["a",1],["b",2,3]])");
}

TEST(Json, IndentsByLevelAndLeavesWhatIsEmptyOnOneLine) {
  const Json json = {{"a", {1, Json::object()}}, {"b", Json::array()}, {"c", {{"d", nullptr}}}};
  EXPECT_EQ(json.dump(2), "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": [],\n  \"c\": {\n    \"d\": null\n  }\n}");
}

TEST(Json, NumbersKeepTheirTypeAndTheShortestDigitsThatReadBack) {
  const std::string text =
      "[0,-1,9223372036854775807,-9223372036854775808,18446744073709551615,1.0,0.1,1e+300,-2.5e-08]";
  const Json list = parse_json(text, "x");
  EXPECT_EQ(list.dump(), text);
  EXPECT_EQ(list[4].kind(), Json::Kind::kUnsigned);
  EXPECT_EQ(list[4].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(list[4].get<double>(), 18446744073709551616.0);
  EXPECT_EQ(Json(UINT64_MAX), list[4]);
  EXPECT_NE(Json(-1), Json(UINT64_MAX));
  EXPECT_TRUE(list[0].is_number_unsigned() && list[4].is_number_unsigned() && !list[1].is_number_unsigned());
  EXPECT_TRUE(list[0].is_number_integer() && !list[5].is_number_integer() && list[5].is_number_float());
  EXPECT_EQ(list[5], 1);
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(parse_json("18446744073709551616", "x").dump(), "1.8446744073709552e+19");
}

TEST(Json, StringsAreEscapedAndBytesThatAreNoTextReplaced) {
  EXPECT_EQ(Json("a\"\\/\n\x01\xc3\xa9").dump(), "\"a\\\"\\\\/\\n\\u0001\xc3\xa9\"");
  EXPECT_EQ((Json{{"\xff", "\xc3"}}).dump(), "{\"\xef\xbf\xbd\":\"\xef\xbf\xbd\"}");
}

TEST(Json, ObjectsAreChangedByKey) {
  Json json;
  json["b"]["c"] = 1;
  json["a"] = "x";
  json.update({{"a", 2}, {"d", 3}});
  json["list"].push_back(4);
  EXPECT_EQ(json.dump(), R"({"b":{"c":1},"a":2,"d":3,"list":[4]})");
  json.erase("b");
  json.erase("nothing");
  std::string keys;
  for (const auto& [key, value] : json.items()) keys += key + "=" + value.dump() + " ";
  EXPECT_EQ(keys, "a=2 d=3 list=[4] ");
  EXPECT_EQ(json.value("a", 9), 2);
  EXPECT_EQ(json.value("z", 9), 9);
  EXPECT_TRUE(json.contains("d") && !json.contains("b"));
  const Json copy = json;
  json["list"][0] = 5;
  EXPECT_EQ(copy["list"][0], 4);
  EXPECT_NE(copy, json);
  EXPECT_NE((Json{{"a", 1}, {"b", 2}}), (Json{{"b", 2}, {"a", 1}}));
}

TEST(Json, WhatIsNotThereIsAnErrorThatSaysSo) {
  const Json json = {{"a", {1, 2}}};
  EXPECT_EQ(message_of([&] { json["b"].dump(); }), "a key is missing (JSON): expected 'b'");
  EXPECT_EQ(message_of([&] { json["a"][2].dump(); }),
            "a JSON array is too short: expected more than 2 elements, got [1,2]");
  EXPECT_EQ(message_of([&] { json["a"].get<std::string>(); }),
            "a JSON value has the wrong type: expected a string, got [1,2]");
  EXPECT_NE(message_of([&] { json["a"].items(); }), "");
  EXPECT_NE(message_of([&] { json.get<std::vector<int>>(); }), "");
  EXPECT_NE(message_of([&] { json["a"].get<bool>(); }), "");
  EXPECT_EQ(json["a"].get<std::vector<int>>(), (std::vector<int>{1, 2}));
}

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

// Searched one by one, these keys take some 15 billion comparisons: more than ten seconds.
TEST(Json, AHundredThousandKeysAreParsedFoundAndAddedInLittleTime) {
  constexpr int kKeys = 100'000;
  const auto name = [](int i) { return "model.layers." + std::to_string(i * 7919 % kKeys) + ".weight"; };
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) text += (i > 0 ? ",\"" : "\"") + name(i) + "\":" + std::to_string(i);
  const std::clock_t begin = std::clock();
  const Json parsed = parse_json(text + "}", "m");
  Json added = Json::object();
  for (int i = 0; i < kKeys; ++i) added[name(i)] = i;
  EXPECT_EQ(parsed, added);
  for (int i = 0; i < kKeys; ++i) {
    ASSERT_EQ(require_int(parsed, name(i), "m"), i);
    ASSERT_EQ(require_int(added, name(i), "m"), i);
  }
  EXPECT_FALSE(parsed.contains("model"));
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5.0) << "seconds of this process";
}

TEST(Json, ManyKeysAreFoundAfterAnyChange) {
  Json json = Json::object();
  for (int i = 0; i < 300; ++i) {
    json[std::to_string(i * 37 % 300)] = i;
    for (int j = 0; j < 300; j += 7) EXPECT_EQ(json.contains(std::to_string(j * 37 % 300)), j <= i) << i << " " << j;
  }
  for (int i = 0; i < 300; i += 3) json.erase(std::to_string(i));
  for (int i = 0; i < 300; ++i) EXPECT_EQ(json.contains(std::to_string(i)), i % 3 != 0) << i;
  const Json copy = json;
  json["1"] = "new";
  EXPECT_EQ(json["1"], "new");
  EXPECT_EQ(json.size(), copy.size());
  std::string twice = json.dump();
  twice.back() = ',';
  const Json last = parse_json(twice + copy.dump().substr(1), "m");
  EXPECT_EQ(last, copy) << "of keys given twice, the last values";
  for (const auto& item : copy.items()) EXPECT_EQ(last[item.key], item.value);
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
