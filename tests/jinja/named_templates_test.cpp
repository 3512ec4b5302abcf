#include <gtest/gtest.h>

#include "jinja/chat_template.h"

namespace doppler {
namespace {

const Json kMessages = Json::array({{{"role", "system"}, {"content", "Be brief."}},
                                    {{"role", "user"}, {"content", "Hi"}},
                                    {{"role", "assistant"}, {"content", "Yo"}},
                                    {{"role", "user"}, {"content", "Bye"}}});

std::string rendered(const char* type, const Json& variables = Json::object()) {
  return ChatTemplate::from_name(type).render(kMessages, nullptr, true, variables);
}

TEST(NamedTemplates, WriteTheirModelsTurns) {
  EXPECT_EQ(rendered("gemma"),
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nYo<end_of_turn>\n"
            "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n");
  EXPECT_EQ(rendered("llama3"),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nYo<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const std::string turns =
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n"
      "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(rendered("chatml"), turns);
  EXPECT_EQ(rendered("qwen"), turns + "<think>\n\n</think>\n\n");
  EXPECT_EQ(rendered("qwen", {{"enable_thinking", true}}), turns + "<think>\n");
  EXPECT_EQ(rendered("gpt-oss"),
            "<|start|>system<|message|>Be brief.<|end|><|start|>user<|message|>Hi<|end|>"
            "<|start|>assistant<|channel|>final<|message|>Yo<|end|><|start|>user<|message|>Bye<|end|>"
            "<|start|>assistant<|channel|>final<|message|>");
}

TEST(NamedTemplates, AnUnknownNameGivesNone) { EXPECT_FALSE(ChatTemplate::from_name("semaphore").present()); }

}  // namespace
}  // namespace doppler
