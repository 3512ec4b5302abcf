// Arguments of filters, tests and methods as C++ values; a wrong type is an error that names the argument.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "jinja/operators.h"
#include "jinja/runtime.h"

namespace doppler::jinja {

inline const std::string& need_text(const Runtime& rt, const Value& value, std::string_view what) {
  if (value.is_undefined()) rt.use_of(value);
  if (!value.is_string()) rt.error(std::string(what) + " must be a string", "", std::string(type_name(value)));
  return value.text();
}

inline int64_t need_whole(const Runtime& rt, const Value& value, std::string_view what) {
  if (value.is_undefined()) rt.use_of(value);
  if (!value.is_whole()) rt.error(std::string(what) + " must be a whole number", "", std::string(type_name(value)));
  return value.whole();
}

inline int64_t whole_or(const Runtime& rt, const Value& value, int64_t otherwise, std::string_view what) {
  return value.is_missing() || value.is_none() ? otherwise : need_whole(rt, value, what);
}

inline bool truth_or(const Value& value, bool otherwise) { return value.is_missing() ? otherwise : truth(value); }

}  // namespace doppler::jinja
