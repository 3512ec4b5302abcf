// Where numbers stopped being numbers. Logits that hold NaN or an infinity end an answer; which step made them is found
// by running the same tokens once more with every step watched.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "model/executor.h"

namespace doppler {

// What to say of a text whose last logits are not finite: the model, the first step whose output is not, and the tensor
// that brought it if a weight did (kFormat; else kDevice on a GPU and kInternal elsewhere). The first `prompt` tokens
// ran as a prompt, the others one by one. Needs as many pages as the text did; what no sequence holds is forgotten, so
// that nobody finds again what was computed. No tap is set afterwards. Without `adapters` the text ran with those of a
// sequence for which nobody says.
Error explain_not_finite(Executor& executor, std::span<const int32_t> text, size_t prompt,
                         const std::optional<AdapterUses>& adapters = std::nullopt);

}  // namespace doppler
