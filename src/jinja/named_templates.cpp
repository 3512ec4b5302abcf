// Chat templates that a manifest names (inference.chatTemplate.type) instead of carrying them. They begin a text with
// the model's own token, spelled out, since such artefacts have no tokenizer_config.json to name it.
#include "jinja/chat_template.h"

namespace doppler {
namespace {

constexpr std::string_view kTurns = R"({{ '<bos>' }}{% set system = messages[0]['role'] == 'system' %}
{%- for m in (messages[1:] if system else messages) %}
{{- '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\n' }}
{{- messages[0]['content'] + '\n\n' if system and loop.first else '' }}
{{- m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}
{{- '<start_of_turn>model\n' if add_generation_prompt else '' }})";

constexpr std::string_view kHeaders = R"({{ '<|begin_of_text|>' }}{% for m in messages %}
{{- '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + m['content'] | trim + '<|eot_id|>' }}{% endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt else '' }})";

constexpr std::string_view kChatMl = R"({% for m in messages %}
{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt else '' }})";

// ChatML with an answer that has its thoughts behind it, unless they are asked for.
constexpr std::string_view kThinking = R"({% for m in messages %}
{{- '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}
{{- '' if enable_thinking is defined and enable_thinking else '\n</think>\n\n' }}{% endif %})";

constexpr std::string_view kChannels = R"({% for m in messages %}
{{- '<|start|>' + m['role'] + ('<|channel|>final' if m['role'] == 'assistant' else '') }}
{{- '<|message|>' + m['content'] + '<|end|>' }}{% endfor %}
{{- '<|start|>assistant<|channel|>final<|message|>' if add_generation_prompt else '' }})";

struct Named {
  std::string_view type, source;
};
constexpr Named kNamed[] = {
    {"gemma", kTurns},       // chatTemplate.type
    {"llama3", kHeaders},    // chatTemplate.type
    {"chatml", kChatMl},     // chatTemplate.type
    {"qwen", kThinking},     // chatTemplate.type
    {"gpt-oss", kChannels},  // chatTemplate.type
};

}  // namespace

ChatTemplate ChatTemplate::from_name(std::string_view type) {
  for (const Named& named : kNamed) {
    if (named.type == type) return from_source(std::string(named.source), Json::object());
  }
  return {};
}

}  // namespace doppler
