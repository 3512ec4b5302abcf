#include "jinja/chat_template.h"

#include "base/error.h"
#include "base/files.h"

namespace doppler {
namespace {

namespace fs = std::filesystem;

std::optional<Json> read_if_there(const fs::path& path) {
  if (!file_exists(path)) return std::nullopt;
  return parse_json(read_text_file(path), path.string());
}

// A token is written as its text or as {"content": text, ...}.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (const Json* content = find(value, "content"); content && content->is_string()) return content->get<std::string>();
  return std::nullopt;
}

// bos_token, eos_token and every other *_token of a configuration; additional_special_tokens as a list.
void collect_tokens(const Json& config, Json& out) {
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) {
      const std::optional<std::string> text = token_text(value);
      if (text && !out.contains(key)) out[key] = *text;
    } else if (key == "additional_special_tokens" && value.is_array() && !out.contains(key)) {
      Json tokens = Json::array();
      for (const Json& token : value) {
        if (const std::optional<std::string> text = token_text(token)) tokens.push_back(*text);
      }
      out[key] = std::move(tokens);
    }
  }
}

}  // namespace

struct ChatTemplate::Sources {
  std::optional<std::string> default_template, tool_use_template;

  static Sources read(const Json& value, const std::string& where);
};

// What stands under "chat_template": one template, or a list of {"name", "template"}.
ChatTemplate::Sources ChatTemplate::Sources::read(const Json& value, const std::string& where) {
  Sources sources;
  if (value.is_string()) {
    sources.default_template = value.get<std::string>();
    return sources;
  }
  if (!value.is_array()) {
    fail({.code = ErrorCode::kFormat,
          .what = "a chat template is neither text nor a list",
          .where = where,
          .expected = "a string or an array",
          .got = brief(value)});
  }
  for (const Json& entry : value) {
    const std::string name = require_string(entry, "name", where);
    if (name == "default") sources.default_template = require_string(entry, "template", where);
    if (name == "tool_use") sources.tool_use_template = require_string(entry, "template", where);
  }
  if (!sources.default_template && !sources.tool_use_template) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "none of the chat templates is one we know by name",
          .where = where,
          .expected = "\"default\" or \"tool_use\""});
  }
  return sources;
}

void ChatTemplate::parse(const Sources& sources, const std::string& name) {
  source_ = sources.default_template.value_or("") + sources.tool_use_template.value_or("");
  if (sources.default_template) default_ = jinja::Template::parse(*sources.default_template, name);
  if (sources.tool_use_template) tool_use_ = jinja::Template::parse(*sources.tool_use_template, name + " for tools");
  if (!default_) default_ = tool_use_;
}

ChatTemplate ChatTemplate::from_config(const Json& tokenizer_config, const std::string& where) {
  ChatTemplate result;
  result.where_ = where;
  collect_tokens(tokenizer_config, result.special_tokens_);
  if (const Json* value = find(tokenizer_config, "chat_template"))
    result.parse(Sources::read(*value, where + ": chat_template"), "chat template");
  return result;
}

ChatTemplate ChatTemplate::load(const fs::path& folder) {
  ChatTemplate result;
  result.where_ = folder.string();
  const fs::path config_path = folder / "tokenizer_config.json";
  const std::optional<Json> config = read_if_there(config_path);
  if (config) collect_tokens(*config, result.special_tokens_);
  if (const std::optional<Json> map = read_if_there(folder / "special_tokens_map.json")) {
    collect_tokens(*map, result.special_tokens_);
  }

  Sources sources;
  fs::path from = folder / "chat_template.jinja";
  if (file_exists(from)) {
    sources.default_template = read_text_file(from);
  } else if (const Json* value = config ? find(*config, "chat_template") : nullptr) {
    from = config_path;
    sources = Sources::read(*value, from.string() + ": chat_template");
  } else {
    from = folder / "chat_template.json";
    const std::optional<Json> file = read_if_there(from);
    const Json* inner = file ? find(*file, "chat_template") : nullptr;
    if (file && !inner)
      fail({.code = ErrorCode::kFormat,
            .what = "a key is missing",
            .where = from.string(),
            .expected = "'chat_template'"});
    if (inner) sources = Sources::read(*inner, from.string() + ": chat_template");
  }
  result.parse(sources, from.filename().string() + " (chat template)");
  return result;
}

ChatTemplate ChatTemplate::from_source(std::string source, Json special_tokens) {
  ChatTemplate result;
  result.where_ = "a chat template given as text";
  if (!special_tokens.is_null() && !special_tokens.is_object()) {
    fail({.code = ErrorCode::kUsage,
          .what = "the special tokens of a chat template must be an object",
          .got = brief(special_tokens)});
  }
  collect_tokens(special_tokens, result.special_tokens_);
  result.default_ = jinja::Template::parse(source, "chat template");
  result.source_ = std::move(source);
  return result;
}

std::string ChatTemplate::render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                 const Json& extra_variables) const {
  if (!default_) {
    fail({.code = ErrorCode::kUnsupported,
          .what = "the model has no chat template",
          .where = where_,
          .todo = "Give it a plain prompt, or put a chat_template.jinja into its folder"});
  }
  if (!messages.is_array()) {
    fail(
        {.code = ErrorCode::kUsage, .what = "the messages of a conversation must be an array", .got = brief(messages)});
  }
  if (!tools.is_null() && !tools.is_array()) {
    fail({.code = ErrorCode::kUsage, .what = "the tools of a conversation must be an array", .got = brief(tools)});
  }
  Json variables = special_tokens_;
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["documents"] = nullptr;
  variables["add_generation_prompt"] = add_generation_prompt;
  if (!extra_variables.is_null() && !extra_variables.is_object()) {
    fail({.code = ErrorCode::kUsage,
          .what = "the variables of a chat template must be an object",
          .got = brief(extra_variables)});
  }
  if (extra_variables.is_object()) {
    for (const auto& [name, value] : extra_variables.items()) {
      if (name == "messages" || name == "tools" || name == "add_generation_prompt") {
        fail({.code = ErrorCode::kUsage,
              .what = "a variable of the chat template is given twice",
              .where = "'" + name + "'"});
      }
      variables[name] = value;
    }
  }
  jinja::RenderOptions options;
  options.clock = clock_;
  const bool use_tools = tool_use_ && !tools.is_null();
  return (use_tools ? *tool_use_ : *default_).render(variables, options);
}

}  // namespace doppler
