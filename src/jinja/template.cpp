#include "jinja/template.h"

#include "base/error.h"
#include "jinja/evaluator.h"
#include "jinja/parser.h"
#include "jinja/text.h"

namespace doppler::jinja {
namespace {

// JSON from the caller as template values. `where` is the variable it belongs to.
Value from_json(Runtime& rt, const Json& json, const std::string& where) {
  const Runtime::DepthGuard guard(rt);
  const auto refuse = [&](const char* what) {
    fail({.code = ErrorCode::kUsage,
          .what = what,
          .where = "the variable '" + where + "' of a template",
          .got = brief(json)});
  };
  switch (json.kind()) {
    case Json::Kind::kNull: return Value::none();
    case Json::Kind::kBoolean: return Value::boolean(json.get<bool>());
    case Json::Kind::kInteger: return Value::integer(json.get<int64_t>());
    case Json::Kind::kUnsigned: refuse("a whole number is beyond 64 bits"); break;
    case Json::Kind::kReal: return Value::real(json.get<double>());
    case Json::Kind::kString: {
      const std::string& text = json.text();
      if (find_invalid_utf8(text) != text.size()) refuse("a string is not valid UTF-8");
      return rt.string(text);
    }
    case Json::Kind::kArray: {
      ListBuilder items(rt);
      for (const Json& item : json) items.add(from_json(rt, item, where));
      return items.finish();
    }
    case Json::Kind::kObject: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, item] : json.items()) {
        if (find_invalid_utf8(key) != key.size()) refuse("a key is not valid UTF-8");
        Value name = rt.string(key);
        items.emplace_back(std::move(name), from_json(rt, item, where));
      }
      return rt.dict(std::move(items));
    }
  }
  return Value();
}

}  // namespace

Template Template::parse(std::string_view source, const std::string& name) {
  Template result;
  result.program_ = std::make_shared<const Program>(jinja::parse(source, name));
  return result;
}

std::string Template::render(const Json& variables, const RenderOptions& options) const {
  Runtime rt(program_->name, options.limits, options.clock);
  if (!variables.is_object()) {
    fail({.code = ErrorCode::kUsage,
          .what = "the variables of a template must be an object",
          .where = program_->name,
          .got = brief(variables)});
  }
  Evaluator::Context context;
  for (const auto& [name, value] : variables.items()) context.emplace_back(name, from_json(rt, value, name));
  return Evaluator(*program_, rt, std::move(context)).render();
}

}  // namespace doppler::jinja
