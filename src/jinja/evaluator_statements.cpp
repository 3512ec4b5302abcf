// The statements of a template, and the `loop` of a for loop.
#include <optional>

#include "jinja/builtins.h"
#include "jinja/evaluator.h"
#include "jinja/operations.h"

namespace doppler::jinja {

std::string Evaluator::render() {
  const Value scope = make_scope(program_.frame, Value());
  initialize(program_.frame, scope);
  run(program_.body, scope, output_);
  return output_.take();
}

void Evaluator::locate(const Stmt& statement, std::string_view construct) {
  rt_.location.line = statement.line;
  rt_.location.construct = construct;
  rt_.location.name = {};
}

Value Evaluator::make_scope(const Frame& frame, const Value& parent) {
  ScopeObject* object = rt_.heap.make<ScopeObject>(frame.variables.size() * sizeof(Value));
  Value scope(Kind::kScope, object);
  object->slots.resize(frame.variables.size());
  object->parent = parent;
  return scope;
}

Value& Evaluator::variable(const Value& scope, const VariableRef& ref) {
  ScopeObject* object = &scope.as<ScopeObject>();
  for (int i = 0; i < ref.hops; ++i) object = &object->parent.as<ScopeObject>();
  return object->slots[static_cast<size_t>(ref.slot)];
}

// Gives every variable that is not a parameter the value it has when the frame begins.
void Evaluator::initialize(const Frame& frame, const Value& scope) {
  std::vector<Value>& slots = scope.as<ScopeObject>().slots;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Frame::Variable& v = frame.variables[i];
    switch (v.from) {
      case Frame::From::kParameter: break;
      case Frame::From::kNothing: slots[i] = Value(); break;
      case Frame::From::kContext: slots[i] = context_value(v.name); break;
      case Frame::From::kOuter: slots[i] = variable(scope, v.outer); break;
    }
  }
}

Value Evaluator::context_value(const std::string& name) {
  for (const auto& [key, value] : context_) {
    if (key == name) return value;
  }
  return global_function(rt_, name);
}

void Evaluator::write(TextBuilder& out, std::string_view text) {
  out.add(text);
  if (&out == &output_ && output_.size() > rt_.limits.output_bytes) {
    fail_at(rt_.location, ErrorCode::kMemory, "the template writes too much text",
            "at most " + std::to_string(rt_.limits.output_bytes) + " bytes");
  }
}

Evaluator::Flow Evaluator::run(const Body& body, const Value& scope, TextBuilder& out) {
  for (const StmtPtr& statement : body) {
    const Flow flow = run(*statement, scope, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::run(const Stmt& statement, const Value& scope, TextBuilder& out) {
  const Runtime::DepthGuard guard(rt_);
  rt_.step();
  switch (statement.kind) {
    case StmtKind::kOutput: run_output(statement, scope, out); break;
    case StmtKind::kFor: return run_for(statement, scope, out);
    case StmtKind::kIf: return run_if(statement, scope, out);
    case StmtKind::kSet: run_set(statement, scope); break;
    case StmtKind::kSetBlock: return run_set_block(statement, scope);
    case StmtKind::kMacro: variable(scope, statement.variable) = make_macro(statement, scope); break;
    case StmtKind::kCall: run_call_block(statement, scope, out); break;
    case StmtKind::kFilterBlock: return run_filter_block(statement, scope, out);
    case StmtKind::kWith: return run_with(statement, scope, out);
    case StmtKind::kScope: return run_scope(statement, scope, out);
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Evaluator::run_output(const Stmt& statement, const Value& scope, TextBuilder& out) {
  for (const ExprPtr& part : statement.parts) {
    if (part->kind == ExprKind::kString) {
      rt_.step();
      write(out, part->text);
      continue;
    }
    const Value value = evaluate(*part, scope);
    locate(*part, "{{ }}");
    if (value.is_string()) {
      write(out, value.text());
    } else {
      write(out, to_text(rt_, value));
    }
  }
}

Evaluator::Flow Evaluator::run_for(const Stmt& statement, const Value& scope, TextBuilder& out) {
  const Value iterable = evaluate(*statement.value, scope);
  if (!statement.recursive) return run_loop(statement, scope, iterable, 0, out);
  TextBuilder text(rt_);
  run_loop(statement, scope, iterable, 0, text);
  write(out, text.text());
  return Flow::kNormal;
}

// The items of `iterable` for which the test of the loop is true, found as they are asked for.
Value Evaluator::filtered_items(const Stmt& loop, const Value& scope, const Value& iterable) {
  const Value test_scope = make_scope(loop.test_frame, scope);
  return rt_.iterator("generator", [this, &loop, test_scope, cursor = Cursor(rt_, iterable)](Value& out) mutable {
    for (Value item; cursor.next(item);) {
      assign(*loop.target, item, test_scope);
      initialize(loop.test_frame, test_scope);
      if (!is_truthy(evaluate(*loop.test, test_scope))) continue;
      out = std::move(item);
      return true;
    }
    return false;
  });
}

// The flow is that of the else: break and continue there mean the loop around this one.
Evaluator::Flow Evaluator::run_loop(const Stmt& statement, const Value& scope, const Value& iterable, int64_t depth0,
                                    TextBuilder& out) {
  locate(statement, "{% for %}");
  LoopObject* loop = rt_.heap.make<LoopObject>(0);
  const Value loop_value(Kind::kLoop, loop);
  loop->source = statement.test ? filtered_items(statement, scope, iterable) : iterable;
  loop->cursor.emplace(rt_, loop->source);
  loop->depth0 = depth0;
  if (statement.recursive) {
    loop->recursive = &statement;
    loop->scope = scope;
  }
  const Value body = make_scope(statement.frame, scope);
  bool completed = false;
  for (Value item; loop->next(item);) {
    locate(statement, "{% for %}");
    variable(body, {0, statement.loop_slot}) = loop_value;
    assign(*statement.target, item, body);
    initialize(statement.frame, body);
    const Flow flow = run(statement.body, body, out);
    // As in jinja2, an iteration that break or continue cut short does not keep the else from running.
    if (flow == Flow::kNormal) completed = true;
    if (flow == Flow::kBreak) break;
  }
  for (Value& slot : body.as<ScopeObject>().slots) slot = Value();
  if (completed || statement.otherwise.empty()) return Flow::kNormal;
  const Value otherwise = make_scope(statement.else_frame, scope);
  initialize(statement.else_frame, otherwise);
  return run(statement.otherwise, otherwise, out);
}

Evaluator::Flow Evaluator::run_if(const Stmt& statement, const Value& scope, TextBuilder& out) {
  for (const Branch& branch : statement.branches) {
    if (is_truthy(evaluate(*branch.test, scope))) return run(branch.body, scope, out);
  }
  return run(statement.otherwise, scope, out);
}

void Evaluator::run_set(const Stmt& statement, const Value& scope) {
  locate(statement, "{% set %}");
  check_namespaces(*statement.target, scope);
  const Value value = evaluate(*statement.value, scope);
  locate(statement, "{% set %}");
  assign(*statement.target, value, scope);
}

Evaluator::Flow Evaluator::run_set_block(const Stmt& statement, const Value& scope) {
  const Value inner = make_scope(statement.frame, scope);
  initialize(statement.frame, inner);
  TextBuilder text(rt_);
  const Flow flow = run(statement.body, inner, text);
  if (flow != Flow::kNormal) return flow;  // and nothing is set, as in jinja2
  Value value = text.finish();
  if (statement.value) {
    std::swap(captured_, value);
    Value result = evaluate(*statement.value, inner);
    captured_ = std::move(value);
    value = std::move(result);
  }
  locate(statement, "{% set %}");
  check_namespaces(*statement.target, scope);
  assign(*statement.target, value, scope);
  return Flow::kNormal;
}

void Evaluator::check_namespaces(const Expr& target, const Value& scope) {
  if (target.kind == ExprKind::kTuple) {
    for (const ExprPtr& part : target.parts) check_namespaces(*part, scope);
  } else if (target.kind == ExprKind::kAttributeTarget && !variable(scope, target.variable).is(Kind::kNamespace)) {
    rt_.error("only a namespace can have its attributes set", "", "'" + target.text + "'");
  }
}

void Evaluator::assign(const Expr& target, const Value& value, const Value& scope) {
  if (target.kind == ExprKind::kName) {
    variable(scope, target.variable) = value;
    return;
  }
  if (target.kind == ExprKind::kAttributeTarget) return set_attribute(target, value, scope);
  if (value.is_undefined() || !is_iterable(value)) {
    rt_.error("a value cannot be taken apart into " + std::to_string(target.parts.size()) + " variables", "",
              std::string(type_name(value)));
  }
  const Value items = to_list(rt_, value);
  if (items.items().size() != target.parts.size()) {
    rt_.error("the number of values does not fit the variables", std::to_string(target.parts.size()),
              std::to_string(items.items().size()));
  }
  for (size_t i = 0; i < target.parts.size(); ++i) assign(*target.parts[i], items.items()[i], scope);
}

void Evaluator::set_attribute(const Expr& target, const Value& value, const Value& scope) {
  const Value space = variable(scope, target.variable);
  if (!space.is(Kind::kNamespace))
    rt_.error("only a namespace can have its attributes set", "", "'" + target.text + "'");
  auto& attributes = space.as<NamespaceObject>().attributes;
  for (auto& [name, old] : attributes) {
    if (name == target.attribute) {
      old = value;
      return;
    }
  }
  rt_.heap.charge(sizeof(attributes[0]) + target.attribute.size());
  attributes.emplace_back(target.attribute, value);
}

Value Evaluator::make_macro(const Stmt& statement, const Value& scope) {
  MacroObject* macro = rt_.heap.make<MacroObject>(0);
  macro->definition = statement.macro.get();
  macro->scope = scope;
  return Value(Kind::kMacro, macro);
}

void Evaluator::run_call_block(const Stmt& statement, const Value& scope, TextBuilder& out) {
  const Value result = evaluate_call(*statement.value, scope, make_macro(statement, scope));
  locate(statement, "{% call %}");
  write(out, to_text(rt_, result));
}

Evaluator::Flow Evaluator::run_filter_block(const Stmt& statement, const Value& scope, TextBuilder& out) {
  const Value inner = make_scope(statement.frame, scope);
  initialize(statement.frame, inner);
  TextBuilder text(rt_);
  const Flow flow = run(statement.body, inner, text);
  if (flow != Flow::kNormal) return flow;  // what was rendered so far is lost, as in jinja2
  Value value = text.finish();
  std::swap(captured_, value);
  const Value result = evaluate(*statement.value, inner);
  captured_ = std::move(value);
  write(out, to_text(rt_, result));
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::run_with(const Stmt& statement, const Value& scope, TextBuilder& out) {
  const Value inner = make_scope(statement.frame, scope);
  initialize(statement.frame, inner);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    assign(*statement.targets[i], evaluate(*statement.parts[i], scope), inner);
  }
  return run(statement.body, inner, out);
}

Evaluator::Flow Evaluator::run_scope(const Stmt& statement, const Value& scope, TextBuilder& out) {
  const Value inner = make_scope(statement.frame, scope);
  initialize(statement.frame, inner);
  return run(statement.body, inner, out);
}

bool LoopObject::next(Value& out) {
  Value item;
  if (!after.is_missing()) {
    item = std::move(after);
    after = Value();
  } else if (!cursor->next(item)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = item;
  out = std::move(item);
  return true;
}

bool LoopObject::is_last() {
  if (after.is_missing()) {
    Value item;
    if (cursor->next(item)) after = std::move(item);
  }
  return after.is_missing();
}

int64_t LoopObject::count(Runtime& rt) {
  if (length >= 0) return length;
  if (const std::optional<int64_t> known = try_length(source)) return length = *known;
  // An iterator: read what is left of it, then go on from the copy.
  ListBuilder left(rt);
  for (Value item; cursor->next(item);) left.add(std::move(item));
  const Value list = left.finish();
  length = static_cast<int64_t>(list.items().size()) + index0 + 1 + (after.is_missing() ? 0 : 1);
  cursor.emplace(rt, list);
  return length;
}

void LoopObject::release() {
  cursor.reset();
  source = before = current = after = changed = scope = Value();
}

namespace {

Value call_cycle(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) rt.error("loop.cycle() needs something to cycle through");
  if (!arguments.named.empty()) rt.error("loop.cycle() takes no named arguments");
  const auto count = static_cast<int64_t>(arguments.positional.size());
  return arguments.positional[static_cast<size_t>(self.as<LoopObject>().index0 % count)];
}

Value call_changed(Runtime& rt, const Value& self, const Arguments& arguments) {
  if (!arguments.named.empty()) rt.error("loop.changed() takes no named arguments");
  LoopObject& loop = self.as<LoopObject>();
  Value now = rt.tuple(arguments.positional);
  const bool changed = loop.changed.is_missing() || !equal(rt, loop.changed, now);
  if (changed) loop.changed = std::move(now);
  return Value::boolean(changed);
}

}  // namespace

std::optional<Value> loop_attribute(Runtime& rt, const Value& self, std::string_view name) {
  LoopObject& loop = self.as<LoopObject>();
  if (name == "index") return Value::integer(loop.index0 + 1);
  if (name == "index0") return Value::integer(loop.index0);
  if (name == "first") return Value::boolean(loop.index0 == 0);
  if (name == "last") return Value::boolean(loop.is_last());
  if (name == "length") return Value::integer(loop.count(rt));
  if (name == "revindex") return Value::integer(loop.count(rt) - loop.index0);
  if (name == "revindex0") return Value::integer(loop.count(rt) - loop.index0 - 1);
  if (name == "depth") return Value::integer(loop.depth0 + 1);
  if (name == "depth0") return Value::integer(loop.depth0);
  if (name == "previtem") return loop.index0 == 0 ? rt.undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.is_last() ? rt.undefined("there is no next item") : loop.after;
  if (name == "cycle") return make_function(rt, call_cycle, self);
  if (name == "changed") return make_function(rt, call_changed, self);
  return std::nullopt;
}

void print_loop(Runtime& rt, LoopObject& loop, TextBuilder& out) {
  out.add("<LoopContext " + std::to_string(loop.index0 + 1) + "/" + std::to_string(loop.count(rt)) + ">");
}

}  // namespace doppler::jinja
