// Filters that pick or change the items of a sequence one by one. Like jinja2's they are lazy: nothing happens until
// the result is walked over, and it can be walked over once.
#include <algorithm>
#include <memory>
#include <optional>

#include "jinja/access.h"
#include "jinja/attribute_path.h"
#include "jinja/convert.h"
#include "jinja/filters.h"
#include "jinja/literals.h"
#include "jinja/predicates.h"
#include "jinja/text.h"

namespace doppler::jinja {

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
        parse_integer(part, 10, index, too_large) && !too_large) {
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

Value ignore_case(Runtime& rt, const Value& value) {
  if (!value.is_string()) return value;
  rt.characters(value.text().size());
  return rt.string(text::lower(value.text()));
}

namespace {

// An iterator over value's items that begins when it is first asked. `accept` may change the item or refuse it.
template <class Accept>
Value lazily(Runtime& rt, Value value, Accept accept) {
  std::optional<Cursor> cursor;
  return rt.iterator("generator", [&rt, value = std::move(value), cursor, accept, over = false](Value& out) mutable {
    if (!cursor && !over) {
      over = !truth(value);
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
    return lazily(rt, value, [&rt, path = AttributePath(rt, attribute), otherwise](Value& item) {
      item = path.of(rt, item, otherwise);
      return true;
    });
  }
  const Value name = arguments.positional[0];
  need_text(rt, name, "the filter of map");
  Arguments rest{{arguments.positional.begin() + 1, arguments.positional.end()}, arguments.named};
  return lazily(rt, value, [&rt, name, rest](Value& item) {
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
    need_text(rt, test, "the test");
    rest.positional.erase(rest.positional.begin());
  }
  return lazily(rt, value, [&rt, path = AttributePath(rt, attribute), test, rest](Value& item) {
    const Value looked_at = kByAttribute ? path.of(rt, item) : item;
    const bool passes = test.is_missing() ? truth(looked_at) : call_test(rt, test.text(), looked_at, rest);
    return passes == kKeep;
  });
}

Value unique(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "unique", {"case_sensitive", "attribute"}, 0);
  const bool exact = truth_or(args[0], false);
  auto seen = std::make_shared<ListBuilder>(rt);
  auto cursor = std::make_shared<Cursor>(rt, value);
  return rt.iterator("generator", [&rt, path = AttributePath(rt, args[1]), exact, seen, cursor](Value& out) {
    for (Value item; cursor->next(item);) {
      const Value found = path.of(rt, item);
      const Value key = exact ? found : ignore_case(rt, found);
      if (!is_hashable(rt, key)) rt.error(a_type(key) + " cannot be told apart by unique");
      const std::vector<Value>& keys = seen->items();
      if (std::any_of(keys.begin(), keys.end(), [&](const Value& other) { return equal(rt, other, key); })) continue;
      seen->add(key);
      out = std::move(item);
      return true;
    }
    return false;
  });
}

constexpr Filter kFilters[] = {
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"unique", unique},
};

}  // namespace

const Filter* find_selection_filter(std::string_view name) { return find_among(kFilters, name); }

}  // namespace doppler::jinja
