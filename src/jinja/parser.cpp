#include "jinja/parser.h"

#include "jinja/limits.h"

namespace doppler::jinja {

Program parse(std::string_view source, const std::string& name) {
  Program program;
  program.name = name;
  program.body = Parser(tokenize(source, name), name).parse_template();
  bind_frames(program);
  return program;
}

Parser::NestingGuard::NestingGuard(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    parser_.error("the template is nested too deeply", "at most " + std::to_string(kMaxNesting) + " levels");
  }
}

void Parser::error(std::string what, std::string expected, std::string got) {
  location_.line = current().line;
  fail_at(location_, ErrorCode::kFormat, std::move(what), std::move(expected), std::move(got));
}

void Parser::unexpected(std::string wanted) {
  error("the template has a syntax error", std::move(wanted), describe(current()));
}

const Token& Parser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip_word(std::string_view word) {
  if (!at_word(word)) return false;
  take();
  return true;
}

bool Parser::skip_operator(std::string_view op) {
  if (!at_operator(op)) return false;
  take();
  return true;
}

void Parser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) unexpected("'" + std::string(op) + "'");
}

void Parser::expect_word(std::string_view word) {
  if (!skip_word(word)) unexpected("'" + std::string(word) + "'");
}

std::string Parser::expect_name() {
  if (current().kind != TokenKind::kName) unexpected("a name");
  return take().text;
}

void Parser::expect(TokenKind kind, std::string_view wanted) {
  if (current().kind != kind) unexpected(std::string(wanted));
  take();
}

Body Parser::parse_template() {
  Body body = parse_body({});
  if (current().kind != TokenKind::kEnd) unexpected("the end of the template");
  return body;
}

// Text and tags up to a block that begins with one of `ends`, whose word is then the current token.
Body Parser::parse_body(Words ends) {
  Body body;
  const auto output = [&](int line) -> Stmt& {
    if (body.empty() || body.back()->kind != StmtKind::kOutput) {
      body.push_back(std::make_unique<Stmt>());
      body.back()->line = line;
    }
    return *body.back();
  };
  for (;;) {
    const Token& token = current();
    if (token.kind == TokenKind::kData) {
      ExprPtr text = make_node(ExprKind::kString, token.line);
      text->text = take().text;
      const int line = text->line;
      output(line).parts.push_back(std::move(text));
    } else if (token.kind == TokenKind::kVariableBegin) {
      const int line = take().line;
      output(line).parts.push_back(parse_tuple());
      expect(TokenKind::kVariableEnd, "'}}'");
    } else if (token.kind == TokenKind::kBlockBegin) {
      take();
      for (const std::string_view end : ends) {
        if (at_word(end)) return body;
      }
      body.push_back(parse_statement());
      expect(TokenKind::kBlockEnd, "'%}'");
    } else {
      return body;
    }
  }
}

// The rest of a tag, then its body up to one of `ends`.
Body Parser::parse_block_body(Words ends) {
  const NestingGuard guard(*this);
  skip_operator(":");
  expect(TokenKind::kBlockEnd, "'%}'");
  Body body = parse_body(ends);
  if (current().kind == TokenKind::kEnd) {
    std::string wanted;
    for (const std::string_view end : ends)
      wanted += (wanted.empty() ? "" : " or ") + ("{% " + std::string(end) + " %}");
    unexpected(wanted);
  }
  return body;
}

StmtPtr Parser::parse_statement() {
  if (current().kind != TokenKind::kName) unexpected("the name of a tag");
  const std::string tag = current().text;
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call();
  if (tag == "with") return parse_with();
  if (tag == "break" || tag == "continue") return parse_loop_control();
  if (tag == "filter") return parse_simple_block(StmtKind::kFilterBlock, "endfilter");
  if (tag == "generation") return parse_simple_block(StmtKind::kScope, "endgeneration");
  for (const std::string_view other : {"block", "extends", "include", "import", "from", "autoescape", "print"}) {
    if (tag == other) {
      location_.line = current().line;
      fail_at(location_, ErrorCode::kUnsupported, "{% " + tag + " %} is not supported in templates");
    }
  }
  if (tag.starts_with("end") || tag == "else" || tag == "elif") error("{% " + tag + " %} closes nothing");
  error("there is no tag called '" + tag + "'");
}

StmtPtr Parser::parse_for() {
  auto loop = std::make_unique<Stmt>();
  loop->kind = StmtKind::kFor;
  loop->line = take().line;
  loop->target = parse_target(/*may_be_attribute=*/false, "in");
  expect_word("in");
  loop->value = parse_tuple(/*with_condition=*/false, false, "recursive");
  if (skip_word("if")) loop->test = parse_expression();
  loop->recursive = skip_word("recursive");
  ++loops_;
  loop->body = parse_block_body({"endfor", "else"});
  --loops_;
  if (take().text == "else") {
    const int loops = loop->recursive ? std::exchange(loops_, 0) : loops_;  // a recursive loop is a function
    loop->otherwise = parse_block_body({"endfor"});
    loops_ = loops;
    take();
  }
  return loop;
}

StmtPtr Parser::parse_if() {
  auto choice = std::make_unique<Stmt>();
  choice->kind = StmtKind::kIf;
  choice->line = current().line;
  do {
    take();  // if or elif
    Branch branch;
    branch.test = parse_tuple(/*with_condition=*/false);
    branch.body = parse_block_body({"elif", "else", "endif"});
    choice->branches.push_back(std::move(branch));
  } while (at_word("elif"));
  const bool has_else = at_word("else");
  take();
  if (has_else) {
    choice->otherwise = parse_block_body({"endif"});
    take();
  }
  return choice;
}

// Something that can be assigned to: a name, a namespace's attribute, or a tuple of them.
ExprPtr Parser::parse_target(bool may_be_attribute, std::string_view end) {
  const NestingGuard guard(*this);
  const int line = current().line;
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (current().kind == TokenKind::kBlockEnd || at_operator(")") || (!end.empty() && at_word(end))) break;
    if (skip_operator("(")) {
      ExprPtr inner = parse_target(/*may_be_attribute=*/false);
      expect_operator(")");
      items.push_back(std::move(inner));
    } else {
      items.push_back(parse_primary(may_be_attribute));
    }
    const ExprKind kind = items.back()->kind;
    if (kind != ExprKind::kName && kind != ExprKind::kAttributeTarget && kind != ExprKind::kTuple) {
      error("this cannot be assigned to", "a name");
    }
    if (!skip_operator(",")) break;
    is_tuple = true;
  }
  if (items.empty()) unexpected("a name");
  if (!is_tuple) return std::move(items.front());
  ExprPtr tuple = make_node(ExprKind::kTuple, line);
  for (ExprPtr& item : items) add_child(*tuple, std::move(item));
  return tuple;
}

StmtPtr Parser::parse_set() {
  auto set = std::make_unique<Stmt>();
  set->kind = StmtKind::kSet;
  set->line = take().line;
  set->target = parse_target(/*may_be_attribute=*/true);
  if (skip_operator("=")) {
    set->value = parse_tuple();
    return set;
  }
  set->kind = StmtKind::kSetBlock;
  set->value = parse_filter_chain(/*starts_with_name=*/false);
  set->body = parse_block_body({"endset"});
  take();
  return set;
}

void Parser::parse_signature(MacroDefinition& macro) {
  expect_operator("(");
  while (!at_operator(")")) {
    if (macro.parameters.size() >= kMaxNamedArguments) error("a macro has too many parameters");
    const std::string name = expect_name();
    for (const std::string& other : macro.parameters) {
      if (other == name) error("a macro has two parameters called '" + name + "'");
    }
    macro.parameters.push_back(name);
    if (skip_operator("=")) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      error("a parameter without a default follows one that has one");
    }
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
}

StmtPtr Parser::parse_macro() {
  auto statement = std::make_unique<Stmt>();
  statement->kind = StmtKind::kMacro;
  statement->line = take().line;
  statement->macro = std::make_unique<MacroDefinition>();
  statement->macro->name = expect_name();
  parse_signature(*statement->macro);
  const int loops = std::exchange(loops_, 0);
  statement->macro->body = parse_block_body({"endmacro"});
  loops_ = loops;
  take();
  return statement;
}

StmtPtr Parser::parse_call() {
  auto statement = std::make_unique<Stmt>();
  statement->kind = StmtKind::kCall;
  statement->line = take().line;
  statement->macro = std::make_unique<MacroDefinition>();
  if (at_operator("(")) parse_signature(*statement->macro);
  statement->value = parse_expression();
  if (statement->value->kind != ExprKind::kCall) error("{% call %} needs a call");
  const int loops = std::exchange(loops_, 0);
  statement->macro->body = parse_block_body({"endcall"});
  loops_ = loops;
  take();
  return statement;
}

StmtPtr Parser::parse_with() {
  auto with = std::make_unique<Stmt>();
  with->kind = StmtKind::kWith;
  with->line = take().line;
  while (current().kind != TokenKind::kBlockEnd) {
    if (!with->targets.empty()) expect_operator(",");
    with->targets.push_back(parse_primary());
    if (with->targets.back()->kind != ExprKind::kName) error("this cannot be assigned to", "a name");
    expect_operator("=");
    with->parts.push_back(parse_expression());
  }
  with->body = parse_block_body({"endwith"});
  take();
  return with;
}

StmtPtr Parser::parse_loop_control() {
  if (loops_ == 0) error("{% " + current().text + " %} stands outside of any loop");
  auto control = std::make_unique<Stmt>();
  control->kind = current().text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
  control->line = take().line;
  return control;
}

// Blocks that are just a body with a frame of its own.
StmtPtr Parser::parse_simple_block(StmtKind kind, std::string_view end) {
  auto block = std::make_unique<Stmt>();
  block->kind = kind;
  block->line = take().line;
  if (kind == StmtKind::kFilterBlock) block->value = parse_filter_chain(/*starts_with_name=*/true);
  const int loops = kind == StmtKind::kScope ? std::exchange(loops_, 0) : loops_;
  block->body = parse_block_body({end});
  loops_ = loops;
  take();
  return block;
}

}  // namespace doppler::jinja
