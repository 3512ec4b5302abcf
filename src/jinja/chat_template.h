// A model's chat template: conversations to prompts, as Hugging Face's apply_chat_template does it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "jinja/template.h"

namespace doppler {

class ChatTemplate {
 public:
  // Looks in chat_template.jinja, then tokenizer_config.json, then chat_template.json of a model's folder. A list of
  // named templates gives "default" and "tool_use"; the latter is taken when tools are passed. A folder without any
  // is not an error here: present() says so. A template we cannot read is.
  static ChatTemplate load(const std::filesystem::path& folder);

  // From what a tokenizer_config.json holds; `where` names it.
  static ChatTemplate from_config(const Json& tokenizer_config, const std::string& where);

  // `special_tokens`: {"bos_token": "<s>", ...}; the template sees each as a variable.
  static ChatTemplate from_source(std::string source, Json special_tokens);

  // One that a manifest names by its kind; not present() where the kind is unknown.
  static ChatTemplate from_name(std::string_view type);

  bool present() const { return default_.has_value(); }
  const std::string& source() const { return source_; }  // of all its templates, one after another

  // `messages` is an array of {"role": ..., "content": ...}; `tools` an array of JSON schemas or null. Members of
  // `extra_variables` are passed on: documents, enable_thinking, reasoning_effort, ... Fails with the template's own
  // words where it refuses the conversation.
  std::string render(const Json& messages, const Json& tools, bool add_generation_prompt,
                     const Json& extra_variables = {}) const;

  const Json& special_tokens() const { return special_tokens_; }

  // strftime_now() asks this instead of the local clock.
  void set_clock(jinja::Clock clock) { clock_ = std::move(clock); }

 private:
  struct Sources;
  void parse(const Sources& sources, const std::string& name);

  std::optional<jinja::Template> default_, tool_use_;
  Json special_tokens_ = Json::object();
  jinja::Clock clock_;
  std::string source_;
  std::string where_;  // the folder, for messages
};

}  // namespace doppler
