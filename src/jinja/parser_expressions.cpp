// Expressions, with jinja2's precedence: condition, or, and, not, comparison, + -, ~, * / // %, **, unary, and then
// what is written behind a value: .name [key] (call) |filter and is test.
#include "jinja/limits.h"
#include "jinja/parser.h"

namespace doppler::jinja {

ExprPtr Parser::make_node(ExprKind kind, int line) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

void Parser::check_depth(Expr& parent, const ExprPtr& child) {
  if (!child) return;
  if (child->depth >= parent.depth) parent.depth = child->depth + 1;
  // A tree that is too deep would overrun the stack of whoever walks it.
  if (parent.depth > kMaxNesting) {
    error("an expression is nested too deeply", "at most " + std::to_string(kMaxNesting) + " levels");
  }
}

void Parser::add_child(Expr& parent, ExprPtr child) {
  check_depth(parent, child);
  parent.parts.push_back(std::move(child));
}

ExprPtr Parser::combine(ExprKind kind, int line, ExprPtr a, ExprPtr b, ExprPtr c) {
  ExprPtr expr = make_node(kind, line);
  const bool three = c || kind == ExprKind::kCondition;
  add_child(*expr, std::move(a));
  if (b || three) add_child(*expr, std::move(b));
  if (three) add_child(*expr, std::move(c));
  return expr;
}

// `a, b` makes a tuple without any brackets. `end` is a word that ends it, as `in` ends the targets of a for.
ExprPtr Parser::parse_tuple(bool with_condition, bool in_brackets, std::string_view end) {
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    const TokenKind kind = current().kind;
    if (kind == TokenKind::kVariableEnd || kind == TokenKind::kBlockEnd || at_operator(")")) break;
    if (!end.empty() && at_word(end)) break;
    items.push_back(with_condition ? parse_condition() : parse_or());
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (!is_tuple && !in_brackets) unexpected("an expression");
  ExprPtr tuple = make_node(ExprKind::kTuple, line);
  for (ExprPtr& item : items) add_child(*tuple, std::move(item));
  return tuple;
}

ExprPtr Parser::parse_condition() {
  const NestingGuard guard(*this);
  const int line = current().line;
  ExprPtr value = parse_or();
  while (skip_word("if")) {
    ExprPtr test = parse_or();
    ExprPtr otherwise = skip_word("else") ? parse_condition() : nullptr;
    value = combine(ExprKind::kCondition, line, std::move(test), std::move(value), std::move(otherwise));
  }
  return value;
}

ExprPtr Parser::parse_or() {
  const int line = current().line;
  ExprPtr left = parse_and();
  while (skip_word("or")) left = combine(ExprKind::kOr, line, std::move(left), parse_and());
  return left;
}

ExprPtr Parser::parse_and() {
  const int line = current().line;
  ExprPtr left = parse_not();
  while (skip_word("and")) left = combine(ExprKind::kAnd, line, std::move(left), parse_not());
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_word("not")) return parse_compare();
  const NestingGuard guard(*this);
  const int line = take().line;
  return combine(ExprKind::kNot, line, parse_not());
}

ExprPtr Parser::parse_compare() {
  ExprPtr first = parse_sum();
  ExprPtr chain;
  for (;;) {
    std::string op;
    const int line = current().line;
    for (const std::string_view candidate : {"==", "!=", "<", "<=", ">", ">="}) {
      if (at_operator(candidate)) op = candidate;
    }
    if (!op.empty() || at_word("in")) {
      if (op.empty()) op = "in";
      take();
    } else if (at_word("not") && peek().kind == TokenKind::kName && peek().text == "in") {
      op = "not in";
      take();
      take();
    } else {
      break;
    }
    if (!chain) {
      chain = make_node(ExprKind::kCompare, line);
      add_child(*chain, std::move(first));
    }
    chain->operators.push_back(std::move(op));
    add_child(*chain, parse_sum());
  }
  return chain ? std::move(chain) : std::move(first);
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_operator("+") || at_operator("-")) {
    const Token& op = take();
    left = combine(ExprKind::kBinary, op.line, std::move(left), parse_concat());
    left->text = op.text;
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!at_operator("~")) return first;
  ExprPtr chain = combine(ExprKind::kConcat, line, std::move(first));
  while (skip_operator("~")) add_child(*chain, parse_product());
  return chain;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (at_operator("*") || at_operator("/") || at_operator("//") || at_operator("%")) {
    const Token& op = take();
    left = combine(ExprKind::kBinary, op.line, std::move(left), parse_power());
    left->text = op.text;
  }
  return left;
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (at_operator("**")) {
    const Token& op = take();
    left = combine(ExprKind::kBinary, op.line, std::move(left), parse_unary());
    left->text = op.text;
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filters) {
  ExprPtr value;
  if (at_operator("-") || at_operator("+")) {
    const NestingGuard guard(*this);
    const Token& op = take();
    value = combine(op.text == "-" ? ExprKind::kNegate : ExprKind::kPlus, op.line, parse_unary(false));
  } else {
    value = parse_primary();
  }
  value = parse_postfix(std::move(value));
  return with_filters ? parse_filters_and_tests(std::move(value)) : std::move(value);
}

ExprPtr Parser::parse_primary(bool may_be_attribute) {
  const Token& token = current();
  const int line = token.line;
  ExprPtr expr;
  switch (token.kind) {
    case TokenKind::kName: {
      const std::string& word = take().text;
      if (word == "true" || word == "True" || word == "false" || word == "False") {
        expr = make_node(ExprKind::kBool, line);
        expr->integer = word == "true" || word == "True";
      } else if (word == "none" || word == "None") {
        expr = make_node(ExprKind::kNone, line);
      } else {
        const bool attribute = may_be_attribute && skip_operator(".");
        expr = make_node(attribute ? ExprKind::kAttributeTarget : ExprKind::kName, line);
        expr->text = word;
        if (attribute) expr->attribute = expect_name();
      }
      return expr;
    }
    case TokenKind::kString:
      expr = make_node(ExprKind::kString, line);
      while (current().kind == TokenKind::kString) expr->text += take().text;  // neighbours are one string
      return expr;
    case TokenKind::kInteger:
      expr = make_node(ExprKind::kInt, line);
      expr->integer = take().integer;
      return expr;
    case TokenKind::kFloat:
      expr = make_node(ExprKind::kFloat, line);
      expr->real = take().real;
      return expr;
    default: break;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  if (!skip_operator("(")) unexpected("an expression");
  const NestingGuard guard(*this);
  expr = parse_tuple(true, /*in_brackets=*/true);
  expect_operator(")");
  return expr;
}

ExprPtr Parser::parse_list() {
  const NestingGuard guard(*this);
  ExprPtr list = make_node(ExprKind::kList, take().line);
  while (!at_operator("]")) {
    add_child(*list, parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return list;
}

ExprPtr Parser::parse_dict() {
  const NestingGuard guard(*this);
  ExprPtr dict = make_node(ExprKind::kDict, take().line);
  while (!at_operator("}")) {
    add_child(*dict, parse_expression());
    expect_operator(":");
    add_child(*dict, parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return dict;
}

ExprPtr Parser::parse_postfix(ExprPtr value) {
  for (;;) {
    if (at_operator(".") || at_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (at_operator("(")) {
      value = combine(ExprKind::kCall, current().line, std::move(value));
      parse_arguments(*value);
    } else {
      return value;
    }
  }
}

ExprPtr Parser::parse_subscript(ExprPtr value) {
  const int line = current().line;
  if (skip_operator(".")) {
    if (current().kind == TokenKind::kInteger) {
      ExprPtr key = make_node(ExprKind::kInt, line);
      key->integer = take().integer;
      return combine(ExprKind::kItem, line, std::move(value), std::move(key));
    }
    if (current().kind != TokenKind::kName) unexpected("a name or a number after '.'");
    ExprPtr attribute = combine(ExprKind::kAttribute, line, std::move(value));
    attribute->text = take().text;
    return attribute;
  }
  const NestingGuard guard(*this);
  expect_operator("[");
  if (at_operator("]")) unexpected("a key between the brackets");
  ExprPtr start, stop, step;
  bool is_slice = false;
  ExprPtr key = parse_subscript_part(start, stop, step, is_slice);
  if (at_operator(",")) error("several keys in one pair of brackets are not supported");
  expect_operator("]");
  if (!is_slice) return combine(ExprKind::kItem, line, std::move(value), std::move(key));
  ExprPtr slice = combine(ExprKind::kSlice, line, std::move(value));
  add_child(*slice, std::move(start));
  add_child(*slice, std::move(stop));
  add_child(*slice, std::move(step));
  return slice;
}

ExprPtr Parser::parse_subscript_part(ExprPtr& start, ExprPtr& stop, ExprPtr& step, bool& is_slice) {
  const auto at_end = [&] { return at_operator("]") || at_operator(","); };
  if (!at_operator(":")) start = parse_expression();
  is_slice = skip_operator(":");
  if (!is_slice) return std::move(start);
  if (!at_operator(":") && !at_end()) stop = parse_expression();
  if (skip_operator(":") && !at_end()) step = parse_expression();
  return nullptr;
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr value) {
  for (;;) {
    if (at_operator("|")) {
      take();
      value = parse_filter(std::move(value));
    } else if (at_word("is")) {
      value = parse_test(std::move(value));
    } else if (at_operator("(")) {
      value = combine(ExprKind::kCall, current().line, std::move(value));
      parse_arguments(*value);
    } else {
      return value;
    }
  }
}

std::string Parser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_operator(".")) name += "." + expect_name();
  return name;
}

ExprPtr Parser::parse_filter(ExprPtr value) {
  ExprPtr filter = make_node(ExprKind::kFilter, current().line);
  add_child(*filter, std::move(value));
  filter->text = parse_dotted_name();
  if (at_operator("(")) parse_arguments(*filter);
  return filter;
}

// Filters without a value in front: those of {% filter a|b %} and {% set x | a %}. Null where there are none.
ExprPtr Parser::parse_filter_chain(bool starts_with_name) {
  ExprPtr chain;
  while (starts_with_name || skip_operator("|")) {
    chain = parse_filter(std::move(chain));
    starts_with_name = false;
  }
  return chain;
}

ExprPtr Parser::parse_test(ExprPtr value) {
  const int line = take().line;
  const bool negated = skip_word("not");
  ExprPtr test = combine(ExprKind::kTest, line, std::move(value));
  test->text = parse_dotted_name();
  const TokenKind kind = current().kind;
  if (at_operator("(")) {
    parse_arguments(*test);
  } else if ((kind == TokenKind::kName || kind == TokenKind::kString || kind == TokenKind::kInteger ||
              kind == TokenKind::kFloat || at_operator("[") || at_operator("{")) &&
             !at_word("else") && !at_word("or") && !at_word("and")) {
    if (at_word("is")) error("tests cannot be chained with 'is'");
    ExprPtr argument = parse_postfix(parse_primary());
    check_depth(*test, argument);
    test->call.positional.push_back(std::move(argument));
  }
  return negated ? combine(ExprKind::kNot, line, std::move(test)) : std::move(test);
}

void Parser::parse_arguments(Expr& expr) {
  const NestingGuard guard(*this);
  expect_operator("(");
  CallArguments& call = expr.call;
  const auto require = [&](bool condition) {
    if (!condition) error("the arguments of a call are in the wrong order");
  };
  while (!at_operator(")")) {
    if (skip_operator("**")) {
      require(!call.dict);
      call.dict = parse_expression();
      check_depth(expr, call.dict);
    } else if (skip_operator("*")) {
      require(!call.list && !call.dict);
      call.list = parse_expression();
      check_depth(expr, call.list);
    } else if (current().kind == TokenKind::kName && peek().kind == TokenKind::kOperator && peek().text == "=") {
      require(!call.dict);
      if (call.named.size() >= kMaxNamedArguments) error("a call has too many named arguments");
      std::string name = take().text;
      take();
      for (const auto& [other, unused] : call.named) {
        if (other == name) error("an argument is given twice: '" + name + "'");
      }
      call.named.emplace_back(std::move(name), parse_expression());
      check_depth(expr, call.named.back().second);
    } else {
      require(!call.list && !call.dict && call.named.empty());
      call.positional.push_back(parse_expression());
      check_depth(expr, call.positional.back());
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
}

}  // namespace doppler::jinja
