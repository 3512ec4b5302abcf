// Runs a Program: one Evaluator per rendering, and the values that only a running template has: macros and `loop`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/ast.h"
#include "jinja/operations.h"
#include "jinja/value.h"

namespace doppler::jinja {

// A macro as a value.
struct MacroObject : Object {
  const MacroDefinition* definition = nullptr;
  Value scope;  // kScope: the variables around its definition
  int line = 0;
  void release() override { scope = Value(); }
};

inline void print_macro(const MacroObject& macro, TextBuilder& out) {
  const std::string& name = macro.definition->name;
  out.add(name.empty() ? "<Macro anonymous>" : "<Macro '" + name + "'>");
}

// The `loop` of a for loop.
struct LoopObject : Object {
  Value source;                  // what is looped over, for its length
  std::optional<Cursor> cursor;  // over it
  int64_t index0 = -1;
  int64_t depth0 = 0;
  int64_t length = -1;              // once it is known
  Value before, current, after;     // kMissing where there is none, or not yet looked at
  Value changed;                    // what loop.changed() was last given
  const Stmt* recursive = nullptr;  // the loop, where it may be called
  Value scope;                      // kScope around a recursive loop

  bool next(Value& out);
  bool is_last();
  int64_t count(Runtime& rt);
  void release() override;
};

// loop.name, or nothing.
std::optional<Value> loop_attribute(Runtime& rt, const Value& loop, std::string_view name);
void print_loop(Runtime& rt, LoopObject& loop, TextBuilder& out);

class Evaluator {
 public:
  using Context = std::vector<std::pair<std::string, Value>>;
  Evaluator(const Program& program, Runtime& rt, Context context)
      : program_(program), rt_(rt), context_(std::move(context)), output_(rt) {}

  std::string render();

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // Statements (evaluator_statements.cpp). `scope` is always a kScope.
  Flow run(const Body& body, const Value& scope, TextBuilder& out);
  Flow run(const Stmt& statement, const Value& scope, TextBuilder& out);
  void run_output(const Stmt& statement, const Value& scope, TextBuilder& out);
  Flow run_for(const Stmt& statement, const Value& scope, TextBuilder& out);
  Flow run_loop(const Stmt& statement, const Value& scope, const Value& iterable, int64_t depth0, TextBuilder& out);
  Flow run_if(const Stmt& statement, const Value& scope, TextBuilder& out);
  void run_set(const Stmt& statement, const Value& scope);
  Flow run_set_block(const Stmt& statement, const Value& scope);
  void run_call_block(const Stmt& statement, const Value& scope, TextBuilder& out);
  Flow run_filter_block(const Stmt& statement, const Value& scope, TextBuilder& out);
  Flow run_with(const Stmt& statement, const Value& scope, TextBuilder& out);
  Flow run_scope(const Stmt& statement, const Value& scope, TextBuilder& out);
  Value filtered_items(const Stmt& loop, const Value& scope, const Value& iterable);
  Value make_macro(const Stmt& statement, const Value& scope);
  void assign(const Expr& target, const Value& value, const Value& scope);
  void check_namespaces(const Expr& target, const Value& scope);
  void set_attribute(const Expr& target, const Value& value, const Value& scope);
  void write(TextBuilder& out, std::string_view text);
  void locate(const Stmt& statement, std::string_view construct);

  // Scopes
  Value make_scope(const Frame& frame, const Value& parent);
  void initialize(const Frame& frame, const Value& scope);
  Value context_value(const std::string& name);
  static Value& variable(const Value& scope, const VariableRef& ref);

  // Expressions (evaluator.cpp)
  Value evaluate(const Expr& expr, const Value& scope);
  Value evaluate_name(const Expr& expr, const Value& scope);
  Value evaluate_sequence(const Expr& expr, const Value& scope, Kind kind);
  Value evaluate_dict(const Expr& expr, const Value& scope);
  Value evaluate_concat(const Expr& expr, const Value& scope);
  Value evaluate_compare(const Expr& expr, const Value& scope);
  Value evaluate_binary(const Expr& expr, const Value& scope);
  Value evaluate_unary(const Expr& expr, const Value& scope);
  Value evaluate_condition(const Expr& expr, const Value& scope);
  Value evaluate_access(const Expr& expr, const Value& scope);
  Value evaluate_slice(const Expr& expr, const Value& scope);
  Value evaluate_call(const Expr& expr, const Value& scope, const Value& caller);
  Value evaluate_filter(const Expr& expr, const Value& scope);
  Value evaluate_test(const Expr& expr, const Value& scope);
  void evaluate_arguments(const CallArguments& call, const Value& scope, Arguments& out);
  void locate(const Expr& expr, std::string_view construct, std::string_view name = {});

  // Calls
  Value call(const Value& function, Arguments& arguments);
  Value call_macro(const Value& macro, Arguments& arguments);
  Value call_loop(const Value& loop, const Arguments& arguments);

  const Program& program_;
  Runtime& rt_;
  const Context context_;
  TextBuilder output_;
  Value captured_;  // what a filter block has rendered, while its filters run
};

}  // namespace doppler::jinja
