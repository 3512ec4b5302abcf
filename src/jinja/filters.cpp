#include "jinja/filters.h"

namespace doppler::jinja {
namespace {

const Filter* find_filter(std::string_view name) {
  for (const auto find :
       {find_text_filter, find_number_filter, find_sequence_filter, find_selection_filter, find_order_filter}) {
    if (const Filter* filter = find(name)) return filter;
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value call_filter(Runtime& rt, std::string_view name, const Value& value, const Arguments& arguments) {
  rt.step();
  const Filter* filter = find_filter(name);
  if (!filter) rt.error("there is no filter called '" + std::string(name) + "'");
  if (!filter->call) rt.unsupported("the filter '" + std::string(name) + "'");
  return filter->call(rt, value, arguments);
}

}  // namespace doppler::jinja
