// Added tokens in running text, compared with the definition in plain words, and what finding them takes.
#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "tokenizer/pipeline.h"

namespace doppler {
namespace {

struct Found {
  size_t begin, end;
  int32_t id;
  bool operator==(const Found&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Found& found) {
  return out << found.begin << "-" << found.end << ":" << found.id;
}

std::vector<Found> split(const std::vector<AddedToken>& tokens, const std::string& text) {
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token.content, token);
  finder.build();
  std::vector<Found> parts;
  finder.split(text, [&](AddedTokenFinder::Part part) { parts.push_back({part.begin, part.end, part.id}); });
  return parts;
}

// At each place the longest token that begins there, the first of equals; texts are of letters and spaces.
std::vector<Found> plain(const std::vector<AddedToken>& tokens, const std::string& text) {
  std::vector<Found> parts;
  const auto letter = [&](size_t i) { return i < text.size() && text[i] != ' '; };
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* best = nullptr;
    for (const AddedToken& token : tokens) {
      const bool longer = !best || token.content.size() > best->content.size();
      if (longer && text.compare(at, token.content.size(), token.content) == 0) best = &token;
    }
    if (!best) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + best->content.size();
    at = end;
    if (best->single_word && (letter(begin - 1) || letter(end))) continue;
    while (best->lstrip && begin > 0 && !letter(begin - 1)) --begin;
    if (best->lstrip) begin = std::max(begin, done);
    while (best->rstrip && end < text.size() && !letter(end)) ++end;
    if (done < begin) parts.push_back({done, begin, -1});
    if (begin < end) parts.push_back({begin, end, best->id});
    done = end;
  }
  if (done != text.size()) parts.push_back({done, text.size(), -1});
  return parts;
}

std::string random_text(std::mt19937& random, size_t length) {
  std::string text;
  while (text.size() < length) text += "ab  aab"[random() % 7];
  return text;
}

TEST(AddedTokens, AreFoundAsTheDefinitionSays) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<AddedToken> tokens;
    for (int32_t id = 0; id < static_cast<int32_t>(1 + random() % 6); ++id) {
      const auto flag = [&] { return random() % 4 == 0; };
      tokens.push_back({random_text(random, 1 + random() % 5), id, flag(), flag(), flag()});
    }
    const std::string text = random_text(random, random() % 60);
    ASSERT_EQ(split(tokens, text), plain(tokens, text)) << "'" << text << "'";
  }
}

TEST(AddedTokens, LieAcrossAnyPlaceOfALongText) {
  std::mt19937 random(8);
  const std::vector<AddedToken> tokens = {{"aab", 1}, {std::string(70'000, 'a'), 2}, {"b a", 3}, {"bab", 4}};
  for (const size_t before : {65'534, 65'535, 65'536, 69'999, 70'000, 139'999}) {
    std::string text = random_text(random, before) + "bab";
    if (before % 2) text += std::string(140'005, 'a');
    text += random_text(random, 1000);
    ASSERT_EQ(split(tokens, text), plain(tokens, text)) << before;
  }
}

TEST(AddedTokens, TakeTimeInProportionToTheText) {
  const std::string as(200'000, 'a'), spaces(200'000, ' ');
  const std::clock_t begin = std::clock();
  // Looking for the long one at every place anew would be 10^10 steps, and so would be white space in both directions.
  EXPECT_EQ(split({{"a", 0}, {std::string(50'000, 'a') + "b", 1}}, as).size(), as.size());
  EXPECT_EQ(split({{" ", 0, false, true, false}}, spaces).size(), spaces.size());
  EXPECT_EQ(split({{" ", 0, false, false, true}}, spaces).size(), spaces.size());
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 2);
}

}  // namespace
}  // namespace doppler
