// What holds an answer, from its first token to its last: thoughts are free, in the marks that the model's chat
// template has for them, and what follows is the text that was asked for, or calls of tools as the template writes
// them.
#pragma once

#include <memory>
#include <string_view>

#include "serve/answer_parser.h"
#include "serve/api.h"

namespace doppler::serve {

// Null where the answer is free. `prompt` is the text before the answer. What a schema asks that is not supported is an
// ApiError that names it.
std::shared_ptr<const TokenGrammar> answer_grammar(const Ask& ask, const AnswerFormat& format, std::string_view prompt,
                                                   std::shared_ptr<const TokenTrie> trie);

}  // namespace doppler::serve
