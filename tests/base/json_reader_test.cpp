#include "base/json_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/json.h"

namespace doppler {
namespace {

TEST(JsonReader, ReadsWhatIsThere) {
  JsonReader in(" {\"a\": [1, -20,\n3], \"b\\n\\u00e9\\ud83d\\ude00\" : {\"x\":null,\"y\":true} , \"c\":\"\"}\n",
                "test");
  std::string_view key;
  in.begin_object();
  ASSERT_TRUE(in.next_key(key));
  EXPECT_EQ(key, "a");
  in.begin_array();
  std::vector<int64_t> numbers;
  while (in.next_element()) numbers.push_back(in.integer());
  EXPECT_EQ(numbers, (std::vector<int64_t>{1, -20, 3}));
  ASSERT_TRUE(in.next_key(key));
  EXPECT_EQ(key, "b\né😀");
  EXPECT_EQ(in.raw(), "{\"x\":null,\"y\":true}");
  ASSERT_TRUE(in.next_key(key));
  EXPECT_EQ(in.string(), "");
  EXPECT_FALSE(in.next_key(key));
  in.finish();
}

TEST(JsonReader, NamesLineAndColumnOfAFault) {
  JsonReader in("[\n  1,\n  x]", "file.json");
  in.begin_array();
  in.next_element();
  in.integer();
  in.next_element();
  try {
    in.integer();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("file.json: line 3, column 3"), std::string::npos) << failure.what();
  }
}

TEST(JsonReader, RefusesMalformedText) {
  for (const char* text : {"\"", "\"\\", "\"\\q\"", "\"\\u12\"", "\"\\ud800\"", "\"\\ud800\\u0041\"", "\"\\udc00\"",
                           "\"a\nb\"", "\xFF", "x", ""}) {
    EXPECT_THROW(JsonReader(text, "test").string(), Failure) << text;
  }
  for (const char* text : {"", "-", "1.5", "1e3", "9999999999999999999", "\"1\"", "true"}) {
    EXPECT_THROW(JsonReader(text, "test").integer(), Failure) << text;
  }
  for (const char* text : {"[", "]", "{\"a\":", "", ",", "[1,2", "\"abc"}) {
    EXPECT_THROW(JsonReader(text, "test").raw(), Failure) << text;
  }
  const std::string deep(100'000, '[');
  EXPECT_THROW(JsonReader(deep, "test").raw(), Failure);
}

// Whatever a document reader makes of a string, this reader makes of it too.
TEST(JsonReader, ReadsStringsAsTheDocumentReaderDoes) {
  std::mt19937 random(5);
  const char* const parts[] = {"a", "\\n", "\\\\", "\\\"", "\\/", "\\u0041", "\\u2581", "\\uD83D\\uDE00",
                               "é", "😀",   "\\t",  " "};
  for (int i = 0; i < 2000; ++i) {
    std::string text = "\"";
    for (unsigned n = random() % 12; n > 0; --n) text += parts[random() % 12];
    text += "\"";
    EXPECT_EQ(JsonReader(text, "test").string(), parse_json(text, "test").get<std::string>()) << text;
  }
}

}  // namespace
}  // namespace doppler
