#include "jinja/globals.h"

#include <ctime>

#include "jinja/access.h"
#include "jinja/convert.h"
#include "jinja/print.h"

namespace doppler::jinja {
namespace {

Value range(Runtime& rt, const Value&, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "range", {"/start", "/stop", "/step"}, 1);
  const bool one = args[1].is_missing();
  const int64_t first = need_whole(rt, args[0], "an end of range()");
  const int64_t start = one ? 0 : first, stop = one ? first : need_whole(rt, args[1], "an end of range()");
  const int64_t step = args[2].is_missing() ? 1 : need_whole(rt, args[2], "the step of range()");
  if (step == 0) rt.error("the step of range() cannot be zero");
  // In unsigned numbers, where the distance between any two 64-bit numbers fits.
  const uint64_t up = static_cast<uint64_t>(stop) - static_cast<uint64_t>(start);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  uint64_t count = 0;
  if (step > 0 && start < stop) count = (up - 1) / stride + 1;
  if (step < 0 && start > stop) count = (0 - up - 1) / stride + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) {
    rt.error("a range is too long", "at most " + std::to_string(kMaxRange) + " numbers", std::to_string(count));
  }
  RangeObject* object = rt.heap.make<RangeObject>(0);
  object->start = start;
  object->stop = stop;
  object->step = step;
  object->length = static_cast<int64_t>(count);
  return Value(Kind::kRange, object);
}

// What dict() and namespace() build from: a dict or pairs, then named values.
std::vector<std::pair<Value, Value>> collect(Runtime& rt, std::string_view function, const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> items;
  if (arguments.positional.size() > 1) rt.error(std::string(function) + "() takes one argument and named ones");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::kDict)) {
      items = source.as<DictObject>().items;
    } else {
      Cursor cursor(rt, source);
      for (Value item; cursor.next(item);) {
        const Value pair = to_list(rt, item);
        if (pair.items().size() != 2) rt.error(std::string(function) + "() needs pairs of a key and a value");
        put(rt, items, pair.items()[0], pair.items()[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) put(rt, items, rt.string(name), value);
  return items;
}

Value dict(Runtime& rt, const Value&, const Arguments& arguments) { return rt.dict(collect(rt, "dict", arguments)); }

Value make_namespace(Runtime& rt, const Value&, const Arguments& arguments) {
  const std::vector<std::pair<Value, Value>> items = collect(rt, "namespace", arguments);
  size_t bytes = 0;
  for (const auto& [key, value] : items)
    bytes += sizeof(key) + sizeof(value) + (key.is_string() ? key.text().size() : 0);
  NamespaceObject* space = rt.heap.make<NamespaceObject>(bytes);
  Value result(Kind::kNamespace, space);
  for (const auto& [key, value] : items) {
    if (!key.is_string()) rt.unsupported("a namespace with " + a_type(key) + " as a name");
    space->attributes.emplace_back(key.text(), value);
  }
  return result;
}

Value raise_exception(Runtime& rt, const Value&, const Arguments& arguments) {
  const Value message = bind(rt, arguments, "raise_exception", {"message"}, 1)[0];
  fail({ErrorCode::kUsage, to_text(rt, message), rt.place.text(), "", "",
        "The model's chat template refuses this conversation"});
}

Value strftime_now(Runtime& rt, const Value&, const Arguments& arguments) {
  const Value format = bind(rt, arguments, "strftime_now", {"format"}, 1)[0];
  const std::string& text = need_text(rt, format, "the format of strftime_now()");
  return rt.string(rt.clock ? rt.clock(text) : local_time(text));
}

Value unsupported(Runtime& rt, const Value&, const Arguments&) { rt.unsupported("this function"); }

struct Global {
  std::string_view name;
  FunctionObject::Call call;
};
constexpr Global kGlobals[] = {
    {"range", range},
    {"dict", dict},
    {"namespace", make_namespace},
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"lipsum", unsupported},
    {"cycler", unsupported},
    {"joiner", unsupported},
};

std::string time_text(const std::string& format, const std::tm& time) {
  if (format.empty()) return "";
  constexpr size_t kLongest = 1 << 16;
  const std::string marked = format + "#";  // so that an empty result can be told from a full buffer
  for (std::string out(256, '\0'); out.size() <= kLongest; out.resize(out.size() * 4)) {
    const size_t n = std::strftime(out.data(), out.size(), marked.c_str(), &time);
    if (n > 0) return out.substr(0, n - 1);
  }
  fail({ErrorCode::kFormat, "the format of strftime_now() gives too long a text", "", "", "", ""});
}

}  // namespace

Value global_function(Runtime& rt, std::string_view name) {
  for (const Global& global : kGlobals) {
    if (global.name == name) return make_function(rt, global.name, global.call);
  }
  return Value();
}

std::string local_time(const std::string& format) {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time_text(format, time);
}

std::string utc_time(const std::string& format, int64_t seconds) {
  const auto when = static_cast<std::time_t>(seconds);
  std::tm time{};
  gmtime_r(&when, &time);
  return time_text(format, time);
}

}  // namespace doppler::jinja
