#include "jinja/evaluator.h"

#include "jinja/builtins.h"
#include "jinja/operations.h"

namespace doppler::jinja {

void Evaluator::locate(const Expr& expr, std::string_view construct, std::string_view name) {
  rt_.location.line = expr.line;
  rt_.location.construct = construct;
  rt_.location.name = name;
}

Value Evaluator::evaluate(const Expr& expr, const Value& scope) {
  const Runtime::DepthGuard guard(rt_);
  rt_.step();
  switch (expr.kind) {
    case ExprKind::kNone: return Value::none();
    case ExprKind::kBool: return Value::boolean(expr.integer != 0);
    case ExprKind::kInt: return Value::integer(expr.integer);
    case ExprKind::kFloat: return Value::real(expr.real);
    case ExprKind::kString: return rt_.string(expr.text);
    case ExprKind::kName:
    case ExprKind::kAttributeTarget: return evaluate_name(expr, scope);
    case ExprKind::kTuple: return evaluate_sequence(expr, scope, Kind::kTuple);
    case ExprKind::kList: return evaluate_sequence(expr, scope, Kind::kList);
    case ExprKind::kDict: return evaluate_dict(expr, scope);
    case ExprKind::kNot: return Value::boolean(!is_truthy(evaluate(*expr.parts[0], scope)));
    case ExprKind::kNegate:
    case ExprKind::kPlus: return evaluate_unary(expr, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = evaluate(*expr.parts[0], scope);
      return is_truthy(left) == (expr.kind == ExprKind::kOr) ? left : evaluate(*expr.parts[1], scope);
    }
    case ExprKind::kBinary: return evaluate_binary(expr, scope);
    case ExprKind::kConcat: return evaluate_concat(expr, scope);
    case ExprKind::kCompare: return evaluate_compare(expr, scope);
    case ExprKind::kCondition: return evaluate_condition(expr, scope);
    case ExprKind::kAttribute:
    case ExprKind::kItem: return evaluate_access(expr, scope);
    case ExprKind::kSlice: return evaluate_slice(expr, scope);
    case ExprKind::kCall: return evaluate_call(expr, scope, Value());
    case ExprKind::kFilter: return evaluate_filter(expr, scope);
    case ExprKind::kTest: return evaluate_test(expr, scope);
  }
  return Value();
}

Value Evaluator::evaluate_name(const Expr& expr, const Value& scope) {
  const Value& value = variable(scope, expr.variable);
  return value.is_missing() ? rt_.undefined("'" + expr.text + "' is undefined") : value;
}

Value Evaluator::evaluate_sequence(const Expr& expr, const Value& scope, Kind kind) {
  ListBuilder items(rt_);
  for (const ExprPtr& part : expr.parts) items.add(evaluate(*part, scope));
  return items.finish(kind);
}

Value Evaluator::evaluate_dict(const Expr& expr, const Value& scope) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i + 1 < expr.parts.size(); i += 2) {
    Value key = evaluate(*expr.parts[i], scope);
    Value value = evaluate(*expr.parts[i + 1], scope);
    locate(expr, "{...}");
    insert_or_assign(rt_, items, std::move(key), std::move(value));
  }
  return rt_.dict(std::move(items));
}

Value Evaluator::evaluate_concat(const Expr& expr, const Value& scope) {
  TextBuilder out(rt_);
  for (const ExprPtr& part : expr.parts) {
    const Value value = evaluate(*part, scope);
    locate(expr, "operator", "~");
    print(rt_, value, out);
  }
  return out.finish();
}

Value Evaluator::evaluate_compare(const Expr& expr, const Value& scope) {
  Value left = evaluate(*expr.parts[0], scope);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.parts[i + 1], scope);
    locate(expr, "operator", expr.operators[i]);
    if (!compare(rt_, expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_binary(const Expr& expr, const Value& scope) {
  const Value left = evaluate(*expr.parts[0], scope);
  const Value right = evaluate(*expr.parts[1], scope);
  locate(expr, "operator", expr.text);
  return binary(rt_, expr.text, left, right);
}

Value Evaluator::evaluate_unary(const Expr& expr, const Value& scope) {
  const Value value = evaluate(*expr.parts[0], scope);
  locate(expr, "operator", expr.kind == ExprKind::kPlus ? "+" : "-");
  return expr.kind == ExprKind::kPlus ? plus(rt_, value) : negate(rt_, value);
}

Value Evaluator::evaluate_condition(const Expr& expr, const Value& scope) {
  if (is_truthy(evaluate(*expr.parts[0], scope))) return evaluate(*expr.parts[1], scope);
  if (expr.parts[2]) return evaluate(*expr.parts[2], scope);
  return rt_.undefined("the condition on line " + std::to_string(expr.line) + " is false and has no 'else'");
}

Value Evaluator::evaluate_access(const Expr& expr, const Value& scope) {
  const Value object = evaluate(*expr.parts[0], scope);
  if (expr.kind == ExprKind::kAttribute) {
    locate(expr, "attribute", expr.text);
    return get_attribute(rt_, object, expr.text);
  }
  const Value key = evaluate(*expr.parts[1], scope);
  locate(expr, "[...]");
  return get_item(rt_, object, key);
}

Value Evaluator::evaluate_slice(const Expr& expr, const Value& scope) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i) {
    if (expr.parts[i]) parts[i] = evaluate(*expr.parts[i], scope);
  }
  locate(expr, "[...:...]");
  return get_slice(rt_, parts[0], parts[1], parts[2], parts[3]);
}

void Evaluator::evaluate_arguments(const CallArguments& call, const Value& scope, Arguments& out) {
  for (const ExprPtr& argument : call.positional) out.positional.push_back(evaluate(*argument, scope));
  for (const auto& [name, argument] : call.named) out.named.emplace_back(name, evaluate(*argument, scope));
  if (call.list) {
    const Value list = to_list(rt_, evaluate(*call.list, scope));
    out.positional.insert(out.positional.end(), list.items().begin(), list.items().end());
  }
  if (!call.dict) return;
  const Value dict = evaluate(*call.dict, scope);
  if (dict.is_undefined()) rt_.fail_undefined(dict);
  if (!dict.is(Kind::kDict)) rt_.error("what follows '**' in a call must be a dict", "", std::string(type_name(dict)));
  if (dict.as<DictObject>().items.size() > kMaxNamedArguments) rt_.error("a call has too many named arguments");
  for (const auto& [key, value] : dict.as<DictObject>().items) {
    if (!key.is_string()) rt_.error("the names of arguments must be strings", "", std::string(type_name(key)));
    for (const auto& [name, unused] : out.named) {
      if (name == key.text()) rt_.error("an argument is given twice: '" + name + "'");
    }
    out.named.emplace_back(key.text(), value);
  }
}

Value Evaluator::evaluate_call(const Expr& expr, const Value& scope, const Value& caller) {
  const Expr& callee = *expr.parts[0];
  const Value function = evaluate(callee, scope);
  Arguments arguments;
  evaluate_arguments(expr.call, scope, arguments);
  if (!caller.is_missing()) arguments.named.emplace_back("caller", caller);
  locate(expr, "call of", callee.text);
  return call(function, arguments);
}

Value Evaluator::evaluate_filter(const Expr& expr, const Value& scope) {
  const Value value = expr.parts[0] ? evaluate(*expr.parts[0], scope) : captured_;
  Arguments arguments;
  evaluate_arguments(expr.call, scope, arguments);
  locate(expr, "filter", expr.text);
  return call_filter(rt_, expr.text, value, arguments);
}

Value Evaluator::evaluate_test(const Expr& expr, const Value& scope) {
  const Value value = evaluate(*expr.parts[0], scope);
  Arguments arguments;
  evaluate_arguments(expr.call, scope, arguments);
  locate(expr, "test", expr.text);
  return Value::boolean(call_test(rt_, expr.text, value, arguments));
}

Value Evaluator::call(const Value& function, Arguments& arguments) {
  const Runtime::DepthGuard guard(rt_);  // a call takes more of the stack than other expressions
  switch (function.kind()) {
    case Kind::kFunction: {
      const FunctionObject& f = function.as<FunctionObject>();
      return f.call(rt_, f.self, arguments);
    }
    case Kind::kMacro: return call_macro(function, arguments);
    case Kind::kLoop: return call_loop(function, arguments);
    case Kind::kUndefined: rt_.fail_undefined(function);
    default: rt_.error(described_type(function) + " cannot be called");
  }
}

Value Evaluator::call_macro(const Value& function, Arguments& arguments) {
  const MacroObject& object = function.as<MacroObject>();
  const MacroDefinition& macro = *object.definition;
  const std::string shown = macro.name.empty() ? "the call block" : "the macro '" + macro.name + "'";
  const Value scope = make_scope(macro.frame, object.scope);
  std::vector<Value>& slots = scope.as<ScopeObject>().slots;
  const auto take_named = [&](std::string_view name) {
    for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      arguments.named.erase(it);
      return value;
    }
    return Value();
  };
  const size_t count = macro.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    slots[static_cast<size_t>(macro.parameter_slots[i])] =
        i < arguments.positional.size() ? arguments.positional[i] : take_named(macro.parameters[i]);
  }
  if (macro.caller_slot >= 0) {
    const Value caller = take_named("caller");
    slots[static_cast<size_t>(macro.caller_slot)] =
        caller.is_missing() ? rt_.undefined("no caller is defined") : caller;
  }
  if (macro.kwargs_slot >= 0) {
    std::vector<std::pair<Value, Value>> rest;
    for (auto& [name, value] : arguments.named) rest.emplace_back(rt_.string(name), std::move(value));
    slots[static_cast<size_t>(macro.kwargs_slot)] = rt_.dict(std::move(rest));
  } else if (!arguments.named.empty()) {
    rt_.error(shown + " has no parameter called '" + arguments.named.front().first + "', or it is given twice");
  }
  if (macro.varargs_slot >= 0) {
    ListBuilder rest(rt_);
    for (size_t i = count; i < arguments.positional.size(); ++i) rest.add(arguments.positional[i]);
    slots[static_cast<size_t>(macro.varargs_slot)] = rest.finish(Kind::kTuple);
  } else if (arguments.positional.size() > count) {
    rt_.error(shown + " has too many arguments", "at most " + std::to_string(count),
              std::to_string(arguments.positional.size()));
  }
  initialize(macro.frame, scope);
  for (size_t i = 0; i < count; ++i) {
    const auto slot = static_cast<size_t>(macro.parameter_slots[i]);
    if (!slots[slot].is_missing()) continue;
    const size_t without_default = count - macro.defaults.size();
    slots[slot] = i < without_default ? rt_.undefined("the parameter '" + macro.parameters[i] + "' was not given")
                                      : evaluate(*macro.defaults[i - without_default], scope);
  }
  TextBuilder out(rt_);
  run(macro.body, scope, out);
  return out.finish();
}

Value Evaluator::call_loop(const Value& function, const Arguments& arguments) {
  const LoopObject& loop = function.as<LoopObject>();
  if (!loop.recursive) rt_.error("'loop' can be called only in a loop that is marked recursive");
  const Value iterable = bind(rt_, arguments, "loop", {"iterable"}, 1)[0];
  TextBuilder out(rt_);
  run_loop(*loop.recursive, loop.scope, iterable, loop.depth0 + 1, out);
  return out.finish();
}

}  // namespace doppler::jinja
