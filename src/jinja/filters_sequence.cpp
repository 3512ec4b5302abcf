// Filters on sequences. Those that pick or change items one by one are lazy, like jinja2's: nothing happens until the
// result is walked over, and it can be walked over once.
#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "jinja/builtins.h"
#include "jinja/lexer.h"
#include "jinja/operations.h"
#include "jinja/text.h"
#include "jinja/value.h"

namespace doppler::jinja {
namespace {

// The `attribute` argument of filters: "function.name" or "0.text" or a number.
class AttributePath {
 public:
  // kMissing or None: the item itself.
  AttributePath(Runtime& rt, const Value& attribute);
  // `otherwise` takes the place of anything undefined on the way, unless it is kMissing or None.
  Value of(Runtime& rt, Value item, const Value& otherwise = Value()) const;

 private:
  std::vector<Value> keys_;
};

AttributePath::AttributePath(Runtime& rt, const Value& attribute) {
  if (attribute.is_missing() || attribute.is_none()) return;
  if (!attribute.is_string()) {
    keys_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.text();
  for (;;) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    bool too_large = false;
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos &&
        parse_integer(part, index, too_large) && !too_large) {
      keys_.push_back(Value::integer(index));
    } else {
      keys_.push_back(rt.string(std::string(part)));
    }
    if (dot == rest.size()) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributePath::of(Runtime& rt, Value item, const Value& otherwise) const {
  for (const Value& key : keys_) {
    item = get_item(rt, item, key);
    if (item.is_undefined() && !otherwise.is_missing() && !otherwise.is_none()) item = otherwise;
  }
  return item;
}

// Strings in lower case, the rest as it is: how filters compare unless told otherwise.
Value ignore_case(Runtime& rt, const Value& value) {
  if (!value.is_string()) return value;
  rt.count_characters(value.text().size());
  return rt.string(text::lower(value.text()));
}

// An iterator over value's items that begins when it is first asked. `accept` may change the item or refuse it.
template <class Accept>
Value lazy(Runtime& rt, Value value, Accept accept) {
  std::optional<Cursor> cursor;
  return rt.iterator("generator", [&rt, value = std::move(value), cursor, accept, over = false](Value& out) mutable {
    if (!cursor && !over) {
      over = !is_truthy(value);
      if (!over) cursor.emplace(rt, value);
    }
    while (!over) {
      Value item;
      if (!cursor->next(item)) {
        over = true;
      } else if (accept(item)) {
        out = std::move(item);
        return true;
      }
    }
    return false;
  });
}

Value map(Runtime& rt, const Value& value, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    Value attribute, otherwise;
    for (const auto& [name, given] : arguments.named) {
      if (name == "attribute") {
        attribute = given;
      } else if (name == "default") {
        otherwise = given;
      } else {
        rt.error("map has no argument called '" + name + "'");
      }
    }
    if (attribute.is_missing()) rt.error("map needs a filter or an attribute");
    return lazy(rt, value, [&rt, path = AttributePath(rt, attribute), otherwise](Value& item) {
      item = path.of(rt, item, otherwise);
      return true;
    });
  }
  const Value name = arguments.positional[0];
  need_string(rt, name, "the filter of map");
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  return lazy(rt, value, [&rt, name, rest](Value& item) {
    item = call_filter(rt, name.text(), item, rest);
    return true;
  });
}

template <bool kByAttribute, bool kKeep>
Value select(Runtime& rt, const Value& value, const Arguments& arguments) {
  Arguments rest = arguments;
  Value attribute;
  if (kByAttribute) {
    if (rest.positional.empty()) rt.error("selectattr and rejectattr need an attribute");
    attribute = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
  }
  Value test;
  if (!rest.positional.empty()) {
    test = rest.positional.front();
    need_string(rt, test, "the test");
    rest.positional.erase(rest.positional.begin());
  }
  return lazy(rt, value, [&rt, path = AttributePath(rt, attribute), test, rest](Value& item) {
    const Value examined = kByAttribute ? path.of(rt, item) : item;
    const bool passes = test.is_missing() ? is_truthy(examined) : call_test(rt, test.text(), examined, rest);
    return passes == kKeep;
  });
}

Value unique(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "unique", {"case_sensitive", "attribute"}, 0);
  const bool exact = truthy_or(args[0], false);
  auto seen = std::make_shared<ListBuilder>(rt);
  auto cursor = std::make_shared<Cursor>(rt, value);
  return rt.iterator("generator", [&rt, path = AttributePath(rt, args[1]), exact, seen, cursor](Value& out) {
    for (Value item; cursor->next(item);) {
      const Value found = path.of(rt, item);
      const Value key = exact ? found : ignore_case(rt, found);
      if (!is_hashable(rt, key)) rt.error(described_type(key) + " cannot be told apart by unique");
      const std::vector<Value>& keys = seen->items();
      if (std::any_of(keys.begin(), keys.end(), [&](const Value& other) { return equal(rt, other, key); })) continue;
      seen->add(key);
      out = std::move(item);
      return true;
    }
    return false;
  });
}

// A value with what it is sorted by.
struct Keyed {
  Value key, value;
};

Value sorted(Runtime& rt, std::vector<Keyed> items, bool reverse) {
  // A descending sort keeps equal items in their order too.
  stable_sort(items, [&](const Keyed& a, const Keyed& b) {
    return reverse ? ordered(rt, "<", b.key, a.key) : ordered(rt, "<", a.key, b.key);
  });
  ListBuilder out(rt);
  for (Keyed& item : items) out.add(std::move(item.value));
  return out.finish();
}

Value sort(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "sort", {"reverse", "case_sensitive", "attribute"}, 0);
  const bool exact = truthy_or(args[1], false);
  if (args[2].is_string() && args[2].text().find(',') != std::string::npos) {
    rt.unsupported("sorting by several attributes");
  }
  const AttributePath path(rt, args[2]);
  const Value all = to_list(rt, value);
  std::vector<Keyed> items;
  for (const Value& item : all.items()) {
    // A list of one, as in jinja2: equal items need no order then, so that None and undefined ones can be sorted.
    const Value key = path.of(rt, item);
    items.push_back({rt.list({exact ? key : ignore_case(rt, key)}), item});
  }
  return sorted(rt, std::move(items), truthy_or(args[0], false));
}

Value dictsort(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "dictsort", {"case_sensitive", "by", "reverse"}, 0);
  if (value.is_undefined()) rt.fail_undefined(value);
  if (!value.is(Kind::kDict)) rt.error("dictsort needs a dict", "", std::string(type_name(value)));
  const std::string by = args[1].is_missing() ? "key" : need_string(rt, args[1], "what dictsort sorts by");
  if (by != "key" && by != "value") rt.error("dictsort sorts by 'key' or by 'value'", "", by);
  const bool exact = truthy_or(args[0], false);
  std::vector<Keyed> items;
  for (const auto& [key, item] : value.as<DictObject>().items) {
    const Value& examined = by == "key" ? key : item;
    items.push_back({exact ? examined : ignore_case(rt, examined), rt.tuple({key, item})});
  }
  return sorted(rt, std::move(items), truthy_or(args[2], false));
}

template <bool kMax>
Value min_or_max(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, kMax ? "max" : "min", {"case_sensitive", "attribute"}, 0);
  const bool exact = truthy_or(args[0], false);
  const AttributePath path(rt, args[1]);
  Value best, best_key;
  Cursor cursor(rt, value);
  for (Value item; cursor.next(item);) {
    const Value found = path.of(rt, item);
    const Value key = exact ? found : ignore_case(rt, found);
    if (!best.is_missing() && !ordered(rt, kMax ? ">" : "<", key, best_key)) continue;
    best = std::move(item);
    best_key = key;
  }
  return best.is_missing() ? rt.undefined("there is no largest or smallest item: the sequence is empty") : best;
}

Value sum(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "sum", {"attribute", "start"}, 0);
  const AttributePath path(rt, args[0]);
  Value total = args[1].is_missing() ? Value::integer(0) : args[1];
  if (total.is_string()) rt.error("strings cannot be summed; use join");
  Cursor cursor(rt, value);
  for (Value item; cursor.next(item);) total = binary(rt, "+", total, path.of(rt, item));
  return total;
}

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
    return item.is_undefined() && !is_truthy(value) ? rt.undefined("there is no last item: the sequence is empty")
                                                    : item;
  }
  const std::optional<Value> reversed = try_reversed(rt, value);
  if (!reversed) rt.error(described_type(value) + " has no last item; add |list before |last");
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
Value iterate(Runtime& rt, std::string_view type, const Value& items) {
  return rt.iterator(type, [cursor = Cursor(rt, items)](Value& out) mutable { return cursor.next(out); });
}

Value reverse(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "reverse", {}, 0);
  if (value.is_string()) return get_slice(rt, value, Value(), Value(), Value::integer(-1));
  if (const std::optional<Value> reversed = try_reversed(rt, value)) {
    return iterate(rt, value.is(Kind::kList) ? "list_reverseiterator" : "reversed", *reversed);
  }
  const Value all = to_list(rt, value);
  return *try_reversed(rt, all);
}

Value items(Runtime& rt, const Value& value, const Arguments& arguments) {
  bind(rt, arguments, "items", {}, 0);
  if (value.is_undefined()) return iterate(rt, "generator", rt.list({}));
  if (!value.is(Kind::kDict)) rt.error("items needs a dict", "", std::string(type_name(value)));
  ListBuilder pairs(rt);
  for (const auto& [key, item] : value.as<DictObject>().items) pairs.add(rt.tuple({key, item}));
  return iterate(rt, "generator", pairs.finish());
}

Value default_value(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "default", {"default_value", "boolean"}, 0);
  if (!value.is_undefined() && !(truthy_or(args[1], false) && !is_truthy(value))) return value;
  return args[0].is_missing() ? rt.string("") : args[0];
}

Value attr(Runtime& rt, const Value& value, const Arguments& arguments) {
  const Value name = bind(rt, arguments, "attr", {"name"}, 1)[0];
  return get_only_attribute(rt, value, need_string(rt, name, "the name of an attribute"));
}

constexpr Builtin kSequenceFilters[] = {
    {"attr", attr},
    {"batch", nullptr},
    {"count", count},
    {"d", default_value},
    {"default", default_value},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", nullptr},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", count},
    {"list", list},
    {"map", map},
    {"max", min_or_max<true>},
    {"min", min_or_max<false>},
    {"random", nullptr},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"reverse", reverse},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"slice", nullptr},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

std::span<const Builtin> sequence_filters() { return kSequenceFilters; }

}  // namespace doppler::jinja
