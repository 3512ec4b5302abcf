// A grammar put together from parts: JSON and GBNF among texts, special tokens, and stretches in which anything goes.
//
//   GrammarBuilder b("an answer", trie);
//   const auto grammar = b.finish(b.e().sequence({b.until("</think>"), b.json_object()}));
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "grammar/expression.h"
#include "grammar/token_constraint.h"
#include "grammar/token_trie.h"

namespace doppler {

class GrammarBuilder {
 public:
  GrammarBuilder(std::string where, std::shared_ptr<const TokenTrie> trie)
      : e_(std::move(where)), trie_(std::move(trie)) {}

  Expressions& e() { return e_; }
  // The mark as text, or the special token that it is.
  Expression mark(std::string_view mark) { return e_.text(trie_->bytes_of_mark(mark)); }
  // Any text up to the first such mark (ASCII), and the mark.
  Expression until(std::string_view mark);
  Expression json_schema(std::string_view text, const std::string& where);
  Expression json_object();
  Expression gbnf(std::string_view text);

  // Once. Fails where no text can match.
  std::shared_ptr<const TokenGrammar> finish(Expression root);

 private:
  Expressions e_;
  std::shared_ptr<const TokenTrie> trie_;
};

// A value that is valid for the schema.
Expression read_json_schema(std::string_view text, const std::string& where, Expressions& expressions);

}  // namespace doppler
