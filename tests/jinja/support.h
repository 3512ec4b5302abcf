// Rendering a template in a test, and catching what it fails with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/json.h"
#include "jinja/template.h"

namespace doppler::testing {

inline std::string render(const std::string& source, const Json& variables = Json::object(),
                          const jinja::RenderOptions& options = {}) {
  return jinja::Template::parse(source, "test").render(variables, options);
}

// What rendering (or parsing) fails with; an error with an empty `what` when it does not fail.
inline Error failure_of(const std::string& source, const Json& variables = Json::object(),
                        const jinja::RenderOptions& options = {}) {
  try {
    render(source, variables, options);
  } catch (const Failure& failure) {
    return failure.error;
  }
  return {};
}

}  // namespace doppler::testing
