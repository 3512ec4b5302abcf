// The `attribute` argument of filters: "function.name" or "0.text" or a number.
#pragma once

#include <vector>

#include "jinja/runtime.h"

namespace doppler::jinja {

class AttributePath {
 public:
  // kMissing or None: the item itself.
  AttributePath(Runtime& rt, const Value& attribute);
  // `otherwise` takes the place of anything undefined on the way, unless it is kMissing or None.
  Value of(Runtime& rt, Value item, const Value& otherwise = Value()) const;

 private:
  std::vector<Value> keys_;
};

// Strings in lower case, the rest as it is: how filters compare unless told otherwise.
Value ignore_case(Runtime& rt, const Value& value);

}  // namespace doppler::jinja
