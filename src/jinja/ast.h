// A template as a tree: expressions and statements, with every name bound to a slot of a frame (scope.cpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace doppler::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;
using Body = std::vector<StmtPtr>;

// Where a name finds its variable: `hops` frames outwards, there at index `slot`.
struct VariableRef {
  int hops = 0;
  int slot = -1;
};

// The variables of a frame and where each gets its value when the frame is entered.
struct Frame {
  enum class From : uint8_t {
    kNothing,    // not set until an assignment runs
    kParameter,  // set by whoever enters the frame
    kContext,    // what the caller of the template passed, or a global function
    kOuter,      // a copy of a variable of an outer frame
  };
  struct Variable {
    std::string name;
    From from = From::kNothing;
    VariableRef outer;
  };
  std::vector<Variable> variables;
};

enum class ExprKind : uint8_t {
  kNone,
  kBool,             // integer
  kInt,              // integer
  kFloat,            // real
  kString,           // text
  kName,             // text, variable
  kAttributeTarget,  // text '.' attribute on the left of an assignment; variable is that of `text`
  kTuple,            // parts
  kList,             // parts
  kDict,             // parts: key, value, key, value, ...
  kNot,              // parts: x
  kNegate,           // parts: x
  kPlus,             // parts: x
  kAnd,              // parts: a, b
  kOr,               // parts: a, b
  kBinary,           // text is the operator; parts: a, b
  kConcat,           // parts
  kCompare,          // parts: a, b, c, ...; operators between them
  kCondition,        // parts: test, value, otherwise (may be null)
  kAttribute,        // parts: x; text
  kItem,             // parts: x, key
  kSlice,            // parts: x, start, stop, step (may be null)
  kCall,             // parts: function; call
  kFilter,           // parts: x (null in a filter block); text; call
  kTest,             // parts: x; text; call
};

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr list, dict;  // *list and **dict, or null
};

struct Expr {
  ExprKind kind = ExprKind::kNone;
  int line = 0;
  int depth = 1;  // of the tree below
  std::string text;
  std::string attribute;
  int64_t integer = 0;
  double real = 0;
  std::vector<ExprPtr> parts;
  std::vector<std::string> operators;
  CallArguments call;
  VariableRef variable;
};

// Calls visit with every expression right below; null where an optional one is left out.
template <class Node, class Visit>
void each_child(Node& expr, Visit visit) {
  for (auto& part : expr.parts) visit(part.get());
  for (auto& argument : expr.call.positional) visit(argument.get());
  for (auto& [name, argument] : expr.call.named) visit(argument.get());
  visit(expr.call.list.get());
  visit(expr.call.dict.get());
}

enum class StmtKind : uint8_t {
  kOutput,       // parts
  kFor,          // target, value (the iterable), test; frame of the body, test_frame, else_frame; body, otherwise
  kIf,           // branches, otherwise
  kSet,          // target, value
  kSetBlock,     // target, value (a filter or null); frame; body
  kMacro,        // macro; variable of its name
  kCall,         // {% call %}: macro is the block, value the call
  kFilterBlock,  // value (a filter chain that ends in null); frame; body
  kWith,         // targets and parts; frame; body
  kScope,        // {% generation %}: frame; body
  kBreak,
  kContinue,
};

struct MacroDefinition {
  std::string name;  // empty for a call block
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  Frame frame;
  std::vector<int> parameter_slots;
  // Slots of the special variables, or -1 where the body does not use them.
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;
};

struct Branch {
  ExprPtr test;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kOutput;
  int line = 0;
  std::vector<ExprPtr> parts;
  std::vector<ExprPtr> targets;
  ExprPtr target, value, test;
  bool recursive = false;
  Body body, otherwise;
  std::vector<Branch> branches;
  std::unique_ptr<MacroDefinition> macro;
  VariableRef variable;
  Frame frame, test_frame, else_frame;
  int loop_slot = -1;  // of `loop` in the frame of a for body
};

struct Program {
  std::string name;  // what messages call the template
  Body body;
  Frame frame;
};

// Fails with line and construct on anything that is not a template we can run.
Program parse(std::string_view source, const std::string& name);

}  // namespace doppler::jinja
