// Tokens to tree, and every name of the tree to a variable. parse() of ast.h does both.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/ast.h"
#include "jinja/lexer.h"
#include "jinja/limits.h"

namespace doppler::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& name) : tokens_(std::move(tokens)), location_{name, 1, {}, {}} {}

  Body parse_template();

 private:
  using Words = std::initializer_list<std::string_view>;

  // Statements (parser.cpp)
  Body parse_body(Words ends);
  Body parse_block_body(Words ends);
  StmtPtr parse_statement();
  StmtPtr parse_for();
  StmtPtr parse_if();
  StmtPtr parse_set();
  StmtPtr parse_macro();
  StmtPtr parse_call();
  StmtPtr parse_with();
  StmtPtr parse_loop_control();
  StmtPtr parse_simple_block(StmtKind kind, std::string_view end);
  void parse_signature(MacroDefinition& macro);
  ExprPtr parse_target(bool may_be_attribute, std::string_view end = {});

  // Expressions (parser_expressions.cpp)
  ExprPtr parse_tuple(bool with_condition = true, bool in_brackets = false, std::string_view end = {});
  ExprPtr parse_expression() { return parse_condition(); }
  ExprPtr parse_condition();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary(bool may_be_attribute = false);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscript_part(ExprPtr& start, ExprPtr& stop, ExprPtr& step, bool& is_slice);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_filter(ExprPtr node);
  ExprPtr parse_filter_chain(bool starts_with_name);
  ExprPtr parse_test(ExprPtr node);
  void parse_arguments(Expr& node);
  std::string parse_dotted_name();

  // Tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Token& take();  // stays at the last, which is kEnd
  bool at_word(std::string_view word) const { return current().kind == TokenKind::kName && current().text == word; }
  bool at_operator(std::string_view op) const { return current().kind == TokenKind::kOperator && current().text == op; }
  bool skip_word(std::string_view word);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  void expect_word(std::string_view word);
  std::string expect_name();
  void expect(TokenKind kind, std::string_view wanted);
  [[noreturn]] void error(std::string what, std::string expected = "", std::string got = "");
  [[noreturn]] void unexpected(std::string wanted);

  // Nodes
  ExprPtr make_node(ExprKind kind, int line) const;
  ExprPtr combine(ExprKind kind, int line, ExprPtr a, ExprPtr b = nullptr, ExprPtr c = nullptr);
  void add_child(Expr& parent, ExprPtr child);
  void check_depth(Expr& parent, const ExprPtr& child);

  // Held while a bracket, a block or an expression within another is read.
  class NestingGuard {
   public:
    explicit NestingGuard(Parser& parser);
    ~NestingGuard() { --parser_.nesting_; }
    NestingGuard(const NestingGuard&) = delete;
    NestingGuard& operator=(const NestingGuard&) = delete;

   private:
    Parser& parser_;
  };

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  Location location_;
  int nesting_ = 0;
  int loops_ = 0;  // for loops around this place, up to the next macro
};

// Fills in every VariableRef and Frame of the program (scope.cpp). Fails on an unknown filter or test, as jinja2 does,
// unless it stands under a condition: then it is an error only if it is reached.
void bind_frames(Program& program);

}  // namespace doppler::jinja
