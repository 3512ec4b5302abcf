// Grammars that hold an answer: JSON schemas, any JSON object, and GBNF, compiled for a vocabulary.
//
//   const auto trie = TokenTrie::make(tokenizer);  // once for a tokenizer
//   options.grammar = grammar_from_json_schema(R"({"type": "integer"})", "schema.json", trie);
//
// Compiling is a pure function that may run on any thread, in time and memory bounded by the text's; what it does not
// support is an error that names it. What comes out is immutable and may be shared.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "grammar/token_constraint.h"
#include "grammar/token_trie.h"

namespace doppler {

// GBNF, the grammar language of llama.cpp; the text is what the rule `root` matches. `where` names it in errors.
std::shared_ptr<const TokenGrammar> grammar_from_gbnf(std::string_view text, const std::string& where,
                                                      std::shared_ptr<const TokenTrie> trie);

// A JSON schema (docs/grammar.md lists the keywords): every text is valid for it, but not every valid text is allowed.
std::shared_ptr<const TokenGrammar> grammar_from_json_schema(std::string_view text, const std::string& where,
                                                             std::shared_ptr<const TokenTrie> trie);

// Any JSON object.
std::shared_ptr<const TokenGrammar> grammar_of_json_object(std::shared_ptr<const TokenTrie> trie);

}  // namespace doppler
