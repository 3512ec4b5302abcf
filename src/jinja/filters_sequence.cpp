// Filters on whole sequences.
#include <algorithm>
#include <memory>

#include "jinja/access.h"
#include "jinja/attribute_path.h"
#include "jinja/convert.h"
#include "jinja/filters.h"
#include "jinja/print.h"

namespace doppler::jinja {
namespace {

Value count(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "length", {}, 0);
  return Value::integer(length(rt, value));
}

Value first(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "first", {}, 0);
  Value item;
  return Cursor(rt, value).next(item) ? item : rt.undefined("there is no first item: the sequence is empty");
}

Value last(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "last", {}, 0);
  if (value.is_string() || value.is_sequence()) {  // without reversing it all
    const Value item = get_item(rt, value, Value::integer(-1));
    return item.is_undefined() && !truth(value) ? rt.undefined("there is no last item: the sequence is empty") : item;
  }
  const std::optional<Value> reversed = try_reversed(rt, value);
  if (!reversed) rt.error(a_type(value) + " has no last item; add |list before |last");
  return reversed->items().empty() ? rt.undefined("there is no last item: the sequence is empty")
                                   : reversed->items().front();
}

Value list(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "list", {}, 0);
  return to_list(rt, value);
}

Value join(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "join", {"d", "attribute"}, 0);
  const std::string separator = args[0].is_missing() ? "" : to_text(rt, args[0]);
  const AttributePath path(rt, args[1]);
  TextBuilder out(rt);
  Cursor cursor(rt, value);
  bool is_first = true;
  for (Value item; cursor.next(item);) {
    if (!is_first) out.add(separator);
    is_first = false;
    print(rt, path.of(rt, item), out);
  }
  return out.finish();
}

// An iterator over a list that is ready.
Value walk(Runtime& rt, std::string_view type, const Value& items) {
  return rt.iterator(type, [cursor = Cursor(rt, items)](Value& out) mutable { return cursor.next(out); });
}

Value reverse(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "reverse", {}, 0);
  if (value.is_string()) return get_slice(rt, value, Value(), Value(), Value::integer(-1));
  if (const std::optional<Value> reversed = try_reversed(rt, value)) {
    return walk(rt, value.is(Kind::kList) ? "list_reverseiterator" : "reversed", *reversed);
  }
  const Value all = to_list(rt, value);
  return *try_reversed(rt, all);
}

Value items(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "items", {}, 0);
  if (value.is_undefined()) return walk(rt, "generator", rt.list({}));
  if (!value.is(Kind::kDict)) rt.error("items needs a dict", "", std::string(type_name(value)));
  ListBuilder pairs(rt);
  for (const auto& [key, item] : value.as<DictObject>().items) pairs.add(rt.tuple({key, item}));
  return walk(rt, "generator", pairs.finish());
}

Value batch(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = need_whole(rt, args[0], "the size of a batch");
  ListBuilder rows(rt);
  auto row = std::make_unique<ListBuilder>(rt);
  Cursor cursor(rt, value);
  for (Value item; cursor.next(item);) {
    if (static_cast<int64_t>(row->items().size()) == size) {
      rows.add(row->finish());
      row = std::make_unique<ListBuilder>(rt);
    }
    row->add(std::move(item));
  }
  if (!row->items().empty()) {
    const bool fills = !args[1].is_missing() && !args[1].is_none();
    while (fills && static_cast<int64_t>(row->items().size()) < size) row->add(args[1]);
    rows.add(row->finish());
  }
  return walk(rt, "generator", rows.finish());
}

Value slice(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "slice", {"slices", "fill_with"}, 1);
  const int64_t slices = need_whole(rt, args[0], "the number of slices");
  if (slices == 0) rt.error("division by zero");
  const Value all = to_list(rt, value);
  const auto n = static_cast<int64_t>(all.items().size());
  const bool fills = !args[1].is_missing() && !args[1].is_none();
  ListBuilder rows(rt);
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const bool longer = i < n % slices;
    ListBuilder row(rt);
    const int64_t end = begin + n / slices + longer;
    for (; begin < end; ++begin) row.add(all.items()[static_cast<size_t>(begin)]);
    if (fills && !longer) row.add(args[1]);
    rows.add(row.finish());
  }
  return walk(rt, "generator", rows.finish());
}

Value fallback(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "default", {"default_value", "boolean"}, 0);
  if (!value.is_undefined() && !(truth_or(args[1], false) && !truth(value))) return value;
  return args[0].is_missing() ? rt.string("") : args[0];
}

Value attr(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Value name = bind(rt, arguments, "attr", {"name"}, 1)[0];
  return get_only_attribute(rt, value, need_text(rt, name, "the name of an attribute"));
}

constexpr Filter kFilters[] = {
    {"attr", attr},    {"batch", batch},     {"count", count},    {"d", fallback},      {"default", fallback},
    {"first", first},  {"groupby", nullptr}, {"items", items},    {"join", join},       {"last", last},
    {"length", count}, {"list", list},       {"random", nullptr}, {"reverse", reverse}, {"slice", slice},
};

}  // namespace

const Filter* find_sequence_filter(std::string_view name) { return find_among(kFilters, name); }

}  // namespace doppler::jinja
