// Chat templates as they lie in a model's folder, against what Hugging Face renders from them.
#include "jinja/chat_template.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "jinja/builtins.h"
#include "support/scratch.h"
#include "support/tokenizers.h"

namespace doppler {
namespace {

// The references were rendered on one day, whatever the format.
std::string reference_day(const std::string&) { return "2026-11-15"; }

const Json kHello = {{{"role", "user"}, {"content", "Hi"}}};

// Compares one recorded conversation: {"messages", "tools", "add_generation_prompt", "text" or "error"}.
void expect_recorded(const ChatTemplate& chat, const Json& recorded, const std::string& where) {
  const Json* tools = find(recorded, "tools");
  std::string text, error;
  try {
    text = chat.render(require_array(recorded, "messages", where), tools ? *tools : Json(),
                       bool_or(recorded, "add_generation_prompt", false, where));
  } catch (const Failure& failure) {
    error = failure.error.what;
  }
  if (const Json* expected = find(recorded, "text")) {
    EXPECT_EQ(error, "");
    EXPECT_EQ(text, expected->get<std::string>());
  } else {
    EXPECT_EQ("TemplateError: " + error, require_string(recorded, "error", where));
  }
}

class PublishedTokenizers : public ::testing::TestWithParam<std::string> {};

TEST_P(PublishedTokenizers, RenderTheRecordedChats) {
  DOPPLER_NEEDS_TOKENIZER(GetParam());
  ChatTemplate chat = ChatTemplate::load(testing::tokenizer_folder(GetParam()));
  chat.set_clock(reference_day);
  const fs::path path = fs::path(DOPPLER_TEST_DATA) / "tokens" / (GetParam() + ".json");
  const Json recorded = parse_json(read_text_file(path), path.string());
  const Json& chats = require_array(recorded, "chats", path.string());
  ASSERT_FALSE(chats.empty());
  for (size_t i = 0; i < chats.size(); ++i) {
    SCOPED_TRACE(GetParam() + ", chat " + std::to_string(i));
    expect_recorded(chat, chats[i], path.string());
  }
}

// gemma2's and gptoss' packages hold no template, so that no chats were recorded with them.
INSTANTIATE_TEST_SUITE_P(ChatTemplate, PublishedTokenizers, ::testing::Values("tiny", "gemma3", "llama3_2", "qwen3"),
                         [](const auto& each) { return each.param; });

// Published templates belong to their makers and are not part of this project; where a copy lies beside it they are
// tested. DOPPLER_REFERENCE names the folder that holds templates/.
fs::path published_templates() {
  const char* set = std::getenv("DOPPLER_REFERENCE");
  return (set ? fs::path(set) : fs::path(DOPPLER_SOURCE_DIR).parent_path() / "shared" / "reference") / "templates";
}

TEST(ChatTemplate, RendersEveryPublishedTemplateThatIsThere) {
  std::error_code status;
  if (!fs::is_directory(published_templates(), status)) {
    GTEST_SKIP() << "there are no published templates in " << published_templates()
                 << "; set DOPPLER_REFERENCE to the folder that holds templates/";
  }
  // What each model's tokenizer_config.json calls its first token.
  const Json begin = {
      {"gemma2", "<bos>"}, {"gemma3", "<bos>"}, {"llama3_1", "<|begin_of_text|>"}, {"llama3_2", "<|begin_of_text|>"}};
  int files = 0, chats = 0;
  for (const auto& entry : fs::directory_iterator(published_templates(), status)) {
    if (entry.path().extension() != ".jinja") continue;
    const std::string name = entry.path().stem().string();
    Json tokens = Json::object();
    if (const Json* bos = find(begin, name)) tokens["bos_token"] = *bos;
    ChatTemplate chat = ChatTemplate::from_source(read_text_file(entry.path()), tokens);
    chat.set_clock(reference_day);
    fs::path recorded_path = entry.path();
    recorded_path.replace_extension(".json");
    const Json recorded = parse_json(read_text_file(recorded_path), recorded_path.string());
    ++files;
    for (size_t i = 0; i < recorded.size(); ++i) {
      SCOPED_TRACE(name + ", chat " + std::to_string(i));
      expect_recorded(chat, recorded[i], recorded_path.string());
      ++chats;
    }
  }
  EXPECT_GT(files, 0);
  EXPECT_GT(chats, files);
  std::printf("%d published templates, %d conversations\n", files, chats);
}

class InAFolder : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { write_file_whole(folder_ / name, text); }
  void write_json(const std::string& name, const Json& json) { write(name, json.dump()); }
  Error failure() const {
    try {
      ChatTemplate::load(folder_);
    } catch (const Failure& failure) {
      return failure.error;
    }
    return {};
  }

  const testing::Scratch scratch_;  // a name of its own: the tests of this file run side by side
  const fs::path folder_ = scratch_.path();
};

TEST_F(InAFolder, TheTemplateOfTheTokenizerConfigIsTaken) {
  write_json("tokenizer_config.json",
             Json{{"chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ unk_token }}"},
                  {"bos_token", "<s>"},
                  {"eos_token", {{"content", "</s>"}, {"lstrip", false}}},
                  {"unk_token", nullptr},
                  {"add_bos_token", true}});
  const ChatTemplate chat = ChatTemplate::load(folder_);
  EXPECT_TRUE(chat.present());
  EXPECT_EQ(chat.render(kHello, nullptr, false), "<s>Hi</s>");
}

TEST_F(InAFolder, AFileOfItsOwnComesFirst) {
  write_json("tokenizer_config.json", Json{{"chat_template", "config"}, {"bos_token", "<s>"}});
  write_json("chat_template.json", Json{{"chat_template", "json"}});
  EXPECT_EQ(ChatTemplate::load(folder_).render(kHello, nullptr, false), "config");
  write("chat_template.jinja", "jinja {{ bos_token }}");
  EXPECT_EQ(ChatTemplate::load(folder_).render(kHello, nullptr, false), "jinja <s>");
}

TEST_F(InAFolder, ChatTemplateJsonIsReadWhenThereIsNothingElse) {
  write_json("chat_template.json", Json{{"chat_template", "json {{ messages|length }}"}});
  EXPECT_EQ(ChatTemplate::load(folder_).render(kHello, nullptr, false), "json 1");
}

TEST_F(InAFolder, OfNamedTemplatesToolsChooseTheirOwn) {
  write_json("tokenizer_config.json", Json{{"chat_template",
                                            {{{"name", "default"}, {"template", "plain"}},
                                             {{"name", "tool_use"}, {"template", "tools {{ tools|length }}"}},
                                             {{"name", "rag"}, {"template", "{% not even a template"}}}}});
  const ChatTemplate chat = ChatTemplate::load(folder_);
  EXPECT_EQ(chat.render(kHello, nullptr, false), "plain");
  EXPECT_EQ(chat.render(kHello, Json::array(), false), "tools 0");
  EXPECT_EQ(chat.render(kHello, Json{{{"name", "f"}}}, false), "tools 1");
}

TEST_F(InAFolder, SpecialTokensMayStandInTheirOwnFile) {
  write_json("tokenizer_config.json", Json{{"chat_template", "{{ bos_token }}|{{ additional_special_tokens }}"}});
  write_json("special_tokens_map.json",
             Json{{"bos_token", {{"content", "<b>"}}}, {"additional_special_tokens", {"<x>", {{"content", "<y>"}}}}});
  EXPECT_EQ(ChatTemplate::load(folder_).render(kHello, nullptr, false), "<b>|['<x>', '<y>']");
}

TEST_F(InAFolder, AFolderWithoutATemplateSaysSoWhenAsked) {
  write_json("tokenizer_config.json", Json{{"bos_token", "<s>"}});
  const ChatTemplate chat = ChatTemplate::load(folder_);
  EXPECT_FALSE(chat.present());
  try {
    chat.render(kHello, nullptr, false);
    FAIL() << "rendered without a template";
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.error.what, "the model has no chat template");
    EXPECT_EQ(failure.error.where, folder_.string());
  }
}

TEST_F(InAFolder, WhatCannotBeReadIsAnError) {
  write_json("tokenizer_config.json", Json{{"chat_template", 5}});
  EXPECT_EQ(failure().what, "a chat template is neither text nor a list");
  write_json("tokenizer_config.json", Json{{"chat_template", {{{"name", "rag"}, {"template", "x"}}}}});
  EXPECT_EQ(failure().code, ErrorCode::kUnsupported);
  write_json("tokenizer_config.json", Json{{"chat_template", {{{"name", "default"}}}}});
  EXPECT_EQ(failure().what, "a key is missing");
  write_json("tokenizer_config.json", Json{{"chat_template", "a\n{{ b"}});
  EXPECT_EQ(failure().where, "tokenizer_config.json (chat template), line 2: {{");
  write("tokenizer_config.json", "{");
  EXPECT_EQ(failure().what, "this is not valid JSON");
}

TEST(ChatTemplate, PassesExtraVariablesOn) {
  const ChatTemplate chat = ChatTemplate::from_source(
      "{{ documents }} {{ tools }} {{ add_generation_prompt }} {{ enable_thinking is defined }}", nullptr);
  EXPECT_EQ(chat.render(kHello, nullptr, true), "None None True False");
  EXPECT_EQ(chat.render(kHello, nullptr, false, {{"documents", {1}}, {"enable_thinking", false}}),
            "[1] None False True");
}

TEST(ChatTemplate, KeepsTheOrderOfKeys) {
  const Json tools = parse_json(R"([{"z": 1, "a": {"y": 2, "b": [3.50, "ü", 1e2]}}])", "test");
  EXPECT_EQ(ChatTemplate::from_source("{{ tools[0]|tojson }}", nullptr).render(kHello, tools, false),
            R"({"z": 1, "a": {"y": 2, "b": [3.5, "ü", 100.0]}})");
}

TEST(ChatTemplate, RefusesWhatIsNoConversation) {
  const ChatTemplate chat = ChatTemplate::from_source("x", nullptr);
  const auto code = [&](const Json& messages, const Json& tools, const Json& extra) {
    try {
      chat.render(messages, tools, false, extra);
    } catch (const Failure& failure) {
      return failure.error.code;
    }
    return ErrorCode::kInternal;
  };
  EXPECT_EQ(code("Hi", nullptr, nullptr), ErrorCode::kUsage);
  EXPECT_EQ(code(kHello, "tool", nullptr), ErrorCode::kUsage);
  EXPECT_EQ(code(kHello, nullptr, "extra"), ErrorCode::kUsage);
  EXPECT_EQ(code(kHello, nullptr, {{"messages", 1}}), ErrorCode::kUsage);
}

TEST(ChatTemplate, TheClockIsTheLocalOneUnlessSet) {
  ChatTemplate chat = ChatTemplate::from_source("{{ strftime_now('%Y-%m-%d') }}", nullptr);
  const std::string before = jinja::local_time("%Y-%m-%d");
  const std::string today = chat.render(kHello, nullptr, false);
  EXPECT_TRUE(today == before || today == jinja::local_time("%Y-%m-%d")) << today;
  chat.set_clock([](const std::string& format) { return jinja::utc_time(format, 1721952000); });
  EXPECT_EQ(chat.render(kHello, nullptr, false), "2024-07-26");
  EXPECT_EQ(jinja::utc_time("%d %b %Y", 1721952000), "26 Jul 2024");
  EXPECT_EQ(jinja::utc_time("", 0), "");
}

TEST(ChatTemplate, SeveralThreadsMayRenderAtOnce) {
  const ChatTemplate chat = ChatTemplate::from_source(
      "{% set ns = namespace(n=0) %}{% for i in range(200) %}{% set ns.n = ns.n + messages[0].content|length %}"
      "{% endfor %}{{ ns.n }}",
      nullptr);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int i = 1; i <= 4; ++i) {
    threads.emplace_back([&, i] {
      const Json messages = {{{"role", "user"}, {"content", std::string(static_cast<size_t>(i), 'x')}}};
      for (int n = 0; n < 50; ++n) wrong += chat.render(messages, nullptr, false) != std::to_string(200 * i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace doppler
