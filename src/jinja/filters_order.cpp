// Filters that compare the items of a sequence, or add them up.
#include "jinja/access.h"
#include "jinja/attribute_path.h"
#include "jinja/convert.h"
#include "jinja/filters.h"
#include "jinja/sort.h"

namespace doppler::jinja {
namespace {

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

// "a,b.c": several attributes, compared one after the other.
std::vector<AttributePath> paths_of(Runtime& rt, const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is_string()) {
    paths.emplace_back(rt, attribute);
    return paths;
  }
  std::string_view rest = attribute.text();
  for (;;) {
    rt.step();
    const size_t comma = std::min(rest.find(','), rest.size());
    paths.emplace_back(rt, rt.string(std::string(rest.substr(0, comma))));
    if (comma == rest.size()) return paths;
    rest.remove_prefix(comma + 1);
  }
}

Value sort(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "sort", {"reverse", "case_sensitive", "attribute"}, 0);
  const bool exact = truth_or(args[1], false);
  const std::vector<AttributePath> paths = paths_of(rt, args[2]);
  const Value all = to_list(rt, value);
  std::vector<Keyed> items;
  for (const Value& item : all.items()) {
    ListBuilder keys(rt);
    for (const AttributePath& path : paths) {
      const Value key = path.of(rt, item);
      keys.add(exact ? key : ignore_case(rt, key));
    }
    items.push_back({keys.finish(), item});
  }
  return sorted(rt, std::move(items), truth_or(args[0], false));
}

Value dictsort(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, "dictsort", {"case_sensitive", "by", "reverse"}, 0);
  if (value.is_undefined()) rt.use_of(value);
  if (!value.is(Kind::kDict)) rt.error("dictsort needs a dict", "", std::string(type_name(value)));
  const std::string by = args[1].is_missing() ? "key" : need_text(rt, args[1], "what dictsort sorts by");
  if (by != "key" && by != "value") rt.error("dictsort sorts by 'key' or by 'value'", "", by);
  const bool exact = truth_or(args[0], false);
  std::vector<Keyed> items;
  for (const auto& [key, item] : value.as<DictObject>().items) {
    const Value& looked_at = by == "key" ? key : item;
    items.push_back({exact ? looked_at : ignore_case(rt, looked_at), rt.tuple({key, item})});
  }
  return sorted(rt, std::move(items), truth_or(args[2], false));
}

template <bool kMax>
Value extreme(Runtime& rt, const Value& value, const Arguments& arguments) {
  const auto args = bind(rt, arguments, kMax ? "max" : "min", {"case_sensitive", "attribute"}, 0);
  const bool exact = truth_or(args[0], false);
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

constexpr Filter kFilters[] = {
    {"dictsort", dictsort}, {"max", extreme<true>}, {"min", extreme<false>}, {"sort", sort}, {"sum", sum},
};

}  // namespace

const Filter* find_order_filter(std::string_view name) { return find_among(kFilters, name); }

}  // namespace doppler::jinja
