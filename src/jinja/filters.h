// Filters: {{ value | name(arguments) }}.
#pragma once

#include <string_view>

#include "jinja/runtime.h"

namespace doppler::jinja {

using FilterCall = Value (*)(Runtime& rt, const Value& value, const Arguments& arguments);
struct Filter {
  std::string_view name;
  FilterCall call;  // null: jinja2 has it and we do not
};

// Whether jinja2 has a filter of this name.
bool is_filter(std::string_view name);
// Fails when there is none.
Value call_filter(Runtime& rt, std::string_view name, const Value& value, const Arguments& arguments);

// The parts of the table, one a file; null where the name is another's.
const Filter* find_text_filter(std::string_view name);
const Filter* find_number_filter(std::string_view name);
const Filter* find_sequence_filter(std::string_view name);
const Filter* find_selection_filter(std::string_view name);
const Filter* find_order_filter(std::string_view name);

template <size_t N>
const Filter* find_among(const Filter (&filters)[N], std::string_view name) {
  for (const Filter& filter : filters) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace doppler::jinja
