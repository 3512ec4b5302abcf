// What was said, apart from any terminal: turns, commands, files, and room in the context.
#include "cli/conversation.h"

#include <cstdlib>

#include "base/cache_folder.h"
#include "support/scratch.h"

namespace doppler {
namespace {

Conversation turns(int count, std::string system = "") {
  Conversation conversation;
  conversation.system = std::move(system);
  for (int i = 0; i < count; ++i) {
    conversation.ask("question " + std::to_string(i));
    conversation.answer("answer " + std::to_string(i));
  }
  return conversation;
}

TEST(Conversation, AnAnswerAndAQuestionCanBeTakenBack) {
  Conversation conversation = turns(1);
  EXPECT_FALSE(conversation.awaits_answer());
  EXPECT_FALSE(conversation.take_back_question());
  EXPECT_EQ(conversation.take_back_answer(), "answer 0");
  EXPECT_TRUE(conversation.awaits_answer());
  EXPECT_FALSE(conversation.take_back_answer());
  EXPECT_EQ(conversation.take_back_question(), "question 0");
  EXPECT_TRUE(conversation.messages().empty());
  EXPECT_FALSE(conversation.take_back_question());
}

TEST(Conversation, DropsTheOldestTurnsAndKeepsTheSystemPrompt) {
  Conversation conversation = turns(3, "be brief");
  conversation.drop_oldest(0);
  EXPECT_EQ(conversation.messages().size(), 7u);
  conversation.drop_oldest(2);
  const std::vector<Message> rest = {{"system", "be brief"}, {"user", "question 2"}, {"assistant", "answer 2"}};
  EXPECT_EQ(conversation.messages(), rest);
  conversation.drop_oldest(5);
  EXPECT_EQ(conversation.messages(), std::vector<Message>({{"system", "be brief"}}));
}

TEST(Conversation, AGreetingGoesWithTheFirstTurn) {
  Conversation conversation;
  conversation.answer("hello");
  conversation.ask("a");
  conversation.answer("b");
  conversation.ask("c");
  EXPECT_EQ(conversation.turns(), 2u);
  conversation.drop_oldest(1);
  EXPECT_EQ(conversation.messages(), std::vector<Message>({{"user", "c"}}));
}

// For every number of turns and every limit: as few as possible go, and the last stays.
TEST(Conversation, DropsNoMoreTurnsThanItMust) {
  for (int count = 0; count < 9; ++count) {
    const Conversation conversation = turns(count);
    for (size_t limit = 0; limit < 10; ++limit) {
      int asked = 0;
      const auto dropped = turns_to_drop(conversation, [&](const Conversation& rest) {
        ++asked;
        return rest.turns() <= limit;
      });
      const size_t all = conversation.turns();
      if (all > 0 && limit == 0) {
        EXPECT_FALSE(dropped) << count;
      } else {
        EXPECT_EQ(dropped, all - std::min(limit, all)) << count << " turns, " << limit << " fit";
      }
      EXPECT_LE(asked, 5);  // 1 + log2(9)
    }
  }
}

TEST(Conversation, IsSavedAndLoadedWhole) {
  const Scratch scratch;
  Conversation conversation = turns(2, "sei nett – 親切");
  conversation.ask("\"\"\"quoted\"\"\"\nand\\broken");
  conversation.save(scratch / "talk.json");
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"talk.json"});
  EXPECT_EQ(Conversation::load(scratch / "talk.json").messages(), conversation.messages());
  spill(scratch / "array.json", R"([{"role": "user", "content": "hi"}])");
  EXPECT_EQ(Conversation::load(scratch / "array.json").messages(), std::vector<Message>({{"user", "hi"}}));
}

TEST(Conversation, ASaveThatFailsLeavesNothingBehind) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "talk.json/full");
  EXPECT_NE(sentence([&] { turns(1).save(scratch / "talk.json"); }).find("talk.json"), std::string::npos);
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"talk.json"});
}

TEST(Conversation, AFileThatIsNoneIsRefusedWithItsPlace) {
  const Scratch scratch;
  const auto load = [&](std::string_view text) {
    spill(scratch / "bad.json", text);
    return sentence([&] { Conversation::load(scratch / "bad.json"); });
  };
  const auto has = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  EXPECT_TRUE(has(load("{"), "bad.json"));
  EXPECT_TRUE(has(load("{}"), "messages"));
  EXPECT_TRUE(has(load("[3]"), "messages[0]"));
  EXPECT_TRUE(has(load(R"([{"role": "user"}])"), "content"));
  EXPECT_TRUE(has(load(R"([{"role": "user", "content": 5}])"), "content"));
  EXPECT_TRUE(has(load(R"([{"role": "tool", "content": ""}])"), "got tool"));
  EXPECT_TRUE(has(load(R"([{"role": "user", "content": ""}, {"role": "system", "content": ""}])"), "messages[1]"));
  EXPECT_TRUE(has(sentence([&] { Conversation::load(scratch / "absent"); }), "absent"));
  EXPECT_TRUE(has(sentence([&] { Conversation::load("/dev/zero"); }), "/dev/zero"));
}

TEST(ChatInput, ALineIsAMessageOrACommand) {
  EXPECT_FALSE(parse_chat_input("hello / there").command);
  EXPECT_EQ(parse_chat_input("hello / there").text, "hello / there");
  EXPECT_EQ(parse_chat_input("/help").command, CommandKind::kHelp);
  const ChatInput save = parse_chat_input("/save  a file.json ");
  EXPECT_EQ(save.command, CommandKind::kSave);
  EXPECT_EQ(save.text, "a file.json");
  EXPECT_EQ(parse_chat_input("/system").text, "");
  EXPECT_EQ(parse_chat_input("/system You are kind.").text, "You are kind.");
  for (const CommandDescription& command : chat_commands()) {
    EXPECT_EQ(parse_chat_input(std::string(command.name) + (command.needs_argument ? " x" : "")).command, command.kind);
    EXPECT_NE(chat_help().find(command.help), std::string::npos);
  }
}

TEST(ChatInput, AnUnknownCommandNamesTheNearest) {
  const auto said = [](std::string_view typed) { return sentence([&] { parse_chat_input(typed); }); };
  EXPECT_EQ(said("/clea"), "there is no command /clea. Did you mean /clear?");
  EXPECT_EQ(said("/stast"), "there is no command /stast. Did you mean /stats?");
  EXPECT_EQ(said("/re"), "there is no command /re. Did you mean /regen?");
  EXPECT_EQ(said("/quit"), "there is no command /quit. Did you mean /exit?");
  EXPECT_EQ(said("/frobnicate"), "there is no command /frobnicate. /help lists the commands");
  EXPECT_EQ(said("/etc/hosts is what?"), "there is no command /etc/hosts. Put the text between \"\"\" to send it");
  EXPECT_EQ(said("/save"), "/save needs a FILE");
  EXPECT_EQ(said("/clear all"), "/clear takes nothing: got all");
}

TEST(ChatInput, SeveralLinesStandBetweenQuotes) {
  EXPECT_TRUE(is_open_block("\"\"\""));
  EXPECT_TRUE(is_open_block("\"\"\"a\nb"));
  EXPECT_TRUE(is_open_block("/system \"\"\"a"));
  EXPECT_FALSE(is_open_block("\"\"\"a\"\"\""));
  EXPECT_FALSE(is_open_block("\"\"\"a\nb\"\"\""));
  EXPECT_FALSE(is_open_block("\"\"\"\na\n\"\"\" "));
  EXPECT_FALSE(is_open_block("what does \"\"\" mean"));
  EXPECT_FALSE(is_open_block("/system be kind\n"));
  EXPECT_EQ(parse_chat_input("\"\"\"\na\n\n  b\n\"\"\"").text, "a\n\n  b");
  EXPECT_EQ(parse_chat_input("\"\"\"/etc/hosts\"\"\"").text, "/etc/hosts");
  EXPECT_EQ(parse_chat_input("/system \"\"\"a\nb\"\"\"").text, "a\nb");
}

TEST(ChatInput, TabCompletesCommandsAndFiles) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(complete_chat_input("/s").candidates, (Names{"/save ", "/stats", "/system "}));
  EXPECT_EQ(complete_chat_input("/").candidates.size(), chat_commands().size());
  EXPECT_TRUE(complete_chat_input("s").candidates.empty());
  EXPECT_TRUE(complete_chat_input("/system s").candidates.empty());
  const Scratch scratch;
  for (const char* name : {"talk.json", "task.txt", "other", ".talk"}) spill(scratch / name, "");
  std::filesystem::create_directory(scratch / "tall");
  const std::string folder = scratch.path().string() + "/", typed = "/load " + folder + "ta";
  const Completions found = complete_chat_input(typed);
  EXPECT_EQ(found.candidates, (Names{"talk.json", "tall/", "task.txt"}));
  EXPECT_EQ(found.from, typed.size() - 2);
  EXPECT_EQ(complete_chat_input("/load " + folder).candidates, (Names{"other", "talk.json", "tall/", "task.txt"}));
  EXPECT_EQ(complete_chat_input("/load " + folder + ".").candidates, Names{".talk"});
  EXPECT_TRUE(complete_chat_input("/load /nowhere/x").candidates.empty());
}

TEST(ChatInput, TheHomeFolderIsATilde) {
  const std::string home = std::getenv("HOME") ? std::getenv("HOME") : "";
  if (home.empty()) GTEST_SKIP() << "there is no home";
  EXPECT_EQ(expand_home("~/a/b"), std::filesystem::path(home) / "a/b");
  EXPECT_EQ(expand_home("~other/a"), "~other/a");
  EXPECT_EQ(expand_home("a/~/b"), "a/~/b");
}

}  // namespace
}  // namespace doppler
