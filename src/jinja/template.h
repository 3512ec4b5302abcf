// Templates in Jinja, as far as chat templates use it, run the way Hugging Face runs them: jinja2's immutable sandbox
// with trim_blocks, lstrip_blocks, loop controls, {% generation %}, and a tojson that writes plain JSON.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "jinja/limits.h"
#include "jinja/value.h"

namespace doppler::jinja {

struct Program;

struct RenderOptions {
  Limits limits;
  Clock clock;  // what strftime_now() answers; the local time where there is none
};

// A parsed template. Rendering does not change it: several threads may render at once.
class Template {
 public:
  // Fails with line and construct where this is not a template we can run. `name` is what messages call it.
  static Template parse(std::string_view source, const std::string& name);

  // `variables` is an object: what the template can refer to by name.
  std::string render(const Json& variables, const RenderOptions& options = {}) const;

 private:
  std::shared_ptr<const Program> program_;
};

}  // namespace doppler::jinja
