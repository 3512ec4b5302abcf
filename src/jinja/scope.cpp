// Which variable a name means. jinja2 decides this when it compiles a template, not when it runs it, and the results
// differ: a name that a frame assigns anywhere belongs to that frame; what it is before the assignment depends on
// whether it was read or assigned first, and whether the assignment stands under a condition. This repeats that
// decision, so that every name of the tree gets a slot.
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "jinja/builtins.h"
#include "jinja/limits.h"
#include "jinja/parser.h"

namespace doppler::jinja {
namespace {

// The names of one frame while it is being worked out.
class Symbols {
 public:
  Symbols(const Symbols* parent, Frame& frame) : parent_(parent), frame_(frame) { layers_.emplace_back(); }

  // A variable of this frame or of one around it.
  std::optional<VariableRef> find(const std::string& name) const {
    int hops = 0;
    for (const Symbols* s = this; s; s = s->parent_, ++hops) {
      if (s->has(name)) return VariableRef{hops, s->slots_.find(name)->second};
    }
    return std::nullopt;
  }

  void read(const std::string& name) {
    if (!find(name)) define(name, {Frame::From::kContext, {}});
  }

  void assign(const std::string& name) {
    layers_.back().assigned.insert(name);
    if (!has(name)) define(name, initial(name, Frame::From::kNothing));
  }

  int parameter(const std::string& name) {
    layers_.back().assigned.insert(name);
    define(name, {Frame::From::kParameter, {}});
    return slots_[name];
  }

  // The three ways through an if (its body, all its elifs, its else) start from the same names.
  template <class... Visits>
  void branches(Visits... visits) {
    std::vector<Layer> done;
    (..., (layers_.emplace_back(), visits(), done.push_back(std::move(layers_.back())), layers_.pop_back()));
    std::set<std::string> newly_assigned;
    for (const Layer& layer : done) {
      for (const std::string& name : layer.assigned) {
        if (!is_assigned(name)) newly_assigned.insert(name);
      }
    }
    for (Layer& layer : done) {
      for (auto& [name, from] : layer.names) layers_.back().names[name] = from;
      layers_.back().assigned.merge(layer.assigned);
    }
    // Where no branch assigns it, the variable is what it was outside.
    for (const std::string& name : newly_assigned) define(name, initial(name, Frame::From::kContext));
  }

  // To be called when everything in the frame has been seen.
  void finish() {
    for (const auto& [name, origin] : layers_.front().names) {
      Frame::Variable& variable = frame_.variables[static_cast<size_t>(slots_[name])];
      variable.from = origin.from;
      variable.outer = origin.outer;
    }
  }

 private:
  struct Origin {
    Frame::From from;
    VariableRef outer;
  };
  struct Layer {
    std::map<std::string, Origin> names;
    std::set<std::string> assigned;
  };

  bool has(const std::string& name) const {
    for (const Layer& layer : layers_) {
      if (layer.names.contains(name)) return true;
    }
    return false;
  }
  bool is_assigned(const std::string& name) const {
    for (const Layer& layer : layers_) {
      if (layer.assigned.contains(name)) return true;
    }
    return false;
  }
  Origin initial(const std::string& name, Frame::From otherwise) const {
    std::optional<VariableRef> outer = parent_ ? parent_->find(name) : std::nullopt;
    if (!outer) return {otherwise, {}};
    ++outer->hops;  // seen from here
    return {Frame::From::kOuter, *outer};
  }
  void define(const std::string& name, Origin origin) {
    if (slots_.try_emplace(name, static_cast<int>(frame_.variables.size())).second) {
      frame_.variables.push_back({name, Frame::From::kNothing, {}});
    }
    layers_.back().names[name] = origin;
  }

  const Symbols* parent_;
  Frame& frame_;
  std::map<std::string, int> slots_;
  std::vector<Layer> layers_;
};

// First pass over a frame: what it reads and assigns, in order. Bodies with a frame of their own are left out.
void collect(const Expr* expr, Symbols& symbols) {
  if (!expr) return;
  if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kAttributeTarget) symbols.read(expr->text);
  each_child(*expr, [&](const Expr* child) { collect(child, symbols); });
}

void collect_target(const Expr& target, Symbols& symbols, bool as_parameter) {
  if (target.kind == ExprKind::kTuple) {
    for (const ExprPtr& part : target.parts) collect_target(*part, symbols, as_parameter);
  } else if (target.kind == ExprKind::kAttributeTarget) {
    symbols.read(target.text);
  } else if (as_parameter) {
    symbols.parameter(target.text);
  } else {
    symbols.assign(target.text);
  }
}

void collect(const Body& body, Symbols& symbols);

void collect_if(const Stmt& choice, size_t branch, Symbols& symbols) {
  const auto elifs = [&] {
    for (size_t i = 1; branch == 0 && i < choice.branches.size(); ++i) collect_if(choice, i, symbols);
  };
  const auto otherwise = [&] {
    if (branch == 0) collect(choice.otherwise, symbols);
  };
  collect(choice.branches[branch].test.get(), symbols);
  symbols.branches([&] { collect(choice.branches[branch].body, symbols); }, elifs, otherwise);
}

void collect(const Body& body, Symbols& symbols) {
  for (const StmtPtr& statement : body) {
    const Stmt& s = *statement;
    switch (s.kind) {
      case StmtKind::kOutput:
      case StmtKind::kWith:
        for (const ExprPtr& part : s.parts) collect(part.get(), symbols);
        break;
      case StmtKind::kFor:
      case StmtKind::kCall:
      case StmtKind::kFilterBlock: collect(s.value.get(), symbols); break;
      case StmtKind::kIf: collect_if(s, 0, symbols); break;
      case StmtKind::kSet:
        collect(s.value.get(), symbols);
        collect_target(*s.target, symbols, false);
        break;
      case StmtKind::kSetBlock: collect_target(*s.target, symbols, false); break;
      case StmtKind::kMacro: symbols.assign(s.macro->name); break;
      case StmtKind::kScope:
      case StmtKind::kBreak:
      case StmtKind::kContinue: break;
    }
  }
}

// Whether `name` is read in a body before anything there assigns it.
class ReadBeforeAssignment {
 public:
  explicit ReadBeforeAssignment(std::string_view name) : name_(name) {}
  bool in(const Body& body) {
    visit(body);
    return found_;
  }

 private:
  void see(const std::string& name, bool reads) {
    if (name == name_ && !decided_) {
      decided_ = true;
      found_ = reads;
    }
  }
  void visit(const Expr* expr) {
    if (!expr || decided_) return;
    if (expr->kind == ExprKind::kName) see(expr->text, true);
    each_child(*expr, [&](const Expr* child) { visit(child); });
  }
  void visit_target(const Expr* target) {
    if (!target) return;
    if (target->kind == ExprKind::kName) see(target->text, false);
    for (const ExprPtr& part : target->parts) visit_target(part.get());
  }
  void visit(const Body& body) {
    for (const StmtPtr& s : body) {
      if (decided_) return;
      visit_target(s->target.get());
      for (const ExprPtr& target : s->targets) visit_target(target.get());
      for (const ExprPtr& part : s->parts) visit(part.get());
      visit(s->value.get());
      for (const Branch& branch : s->branches) {
        visit(branch.test.get());
        visit(branch.body);
      }
      if (s->macro) {
        for (const std::string& parameter : s->macro->parameters) see(parameter, false);
        for (const ExprPtr& value : s->macro->defaults) visit(value.get());
        visit(s->macro->body);
      }
      visit(s->body);
      visit(s->otherwise);
      visit(s->test.get());
    }
  }

  const std::string_view name_;
  bool decided_ = false, found_ = false;
};

// Second pass: gives every name its slot, frame by frame.
class Binder {
 public:
  explicit Binder(const std::string& name) : location_{name, 1, {}, {}} {}

  void bind(Body& body, const Symbols& symbols, bool conditional) {
    for (StmtPtr& statement : body) bind(*statement, symbols, conditional);
  }

 private:
  [[noreturn]] void error(int line, std::string what) {
    location_.line = line;
    fail_at(location_, ErrorCode::kFormat, std::move(what));
  }

  // `conditional` is true under a condition of the same frame.
  void bind(Expr* expr, const Symbols& symbols, bool conditional) {
    if (!expr) return;
    if (expr->kind == ExprKind::kName || expr->kind == ExprKind::kAttributeTarget) {
      expr->variable = symbols.find(expr->text).value_or(VariableRef{});
    }
    if (expr->kind == ExprKind::kCondition) conditional = true;
    if (!conditional && expr->kind == ExprKind::kFilter && !is_filter(expr->text)) {
      error(expr->line, "there is no filter called '" + expr->text + "'");
    }
    if (!conditional && expr->kind == ExprKind::kTest && !is_test(expr->text)) {
      error(expr->line, "there is no test called '" + expr->text + "'");
    }
    each_child(*expr, [&](Expr* child) { bind(child, symbols, conditional); });
  }

  void bind_target(Expr* target, const Symbols& symbols) {
    if (target->kind == ExprKind::kName && target->text == "loop" && loops_ > 0) {
      error(target->line, "'loop' cannot be assigned to within a for loop");
    }
    for (ExprPtr& part : target->parts) bind_target(part.get(), symbols);
    if (target->kind != ExprKind::kTuple) bind(target, symbols, true);
  }

  void bind(Stmt& s, const Symbols& symbols, bool conditional) {
    switch (s.kind) {
      case StmtKind::kFor: bind_for(s, symbols, conditional); return;
      case StmtKind::kMacro:
        s.variable = symbols.find(s.macro->name).value_or(VariableRef{});
        bind_macro(s, symbols);
        return;
      case StmtKind::kCall:
        bind_macro(s, symbols);
        bind(s.value.get(), symbols, conditional);
        return;
      case StmtKind::kIf:
        for (Branch& branch : s.branches) {
          bind(branch.test.get(), symbols, true);
          bind(branch.body, symbols, true);
        }
        bind(s.otherwise, symbols, true);
        return;
      case StmtKind::kSetBlock:
      case StmtKind::kFilterBlock:
      case StmtKind::kWith:
      case StmtKind::kScope: bind_block(s, symbols, conditional); return;
      case StmtKind::kOutput:
      case StmtKind::kSet:
      case StmtKind::kBreak:
      case StmtKind::kContinue: break;
    }
    for (ExprPtr& part : s.parts) bind(part.get(), symbols, conditional);
    bind(s.value.get(), symbols, conditional);
    if (s.target) bind_target(s.target.get(), symbols);
  }

  void bind_for(Stmt& s, const Symbols& symbols, bool conditional) {
    bind(s.value.get(), symbols, conditional);
    ++loops_;
    Symbols body(&symbols, s.frame);
    s.loop_slot = body.parameter("loop");
    collect_target(*s.target, body, true);
    collect(s.body, body);
    body.finish();
    bind_target(s.target.get(), body);
    bind(s.body, body, false);
    if (s.test) {
      Symbols test(&symbols, s.test_frame);
      // The target is assigned in both frames through the same slots, so that both must begin alike. `loop` in the
      // test is that of an outer loop: its place is held by a name that no template can write.
      test.parameter("loop ");
      collect_target(*s.target, test, true);
      collect(s.test.get(), test);
      test.finish();
      bind(s.test.get(), test, false);
    }
    Symbols otherwise(&symbols, s.else_frame);
    collect(s.otherwise, otherwise);
    otherwise.finish();
    bind(s.otherwise, otherwise, false);
    --loops_;
  }

  void bind_macro(Stmt& s, const Symbols& symbols) {
    MacroDefinition& macro = *s.macro;
    Symbols inner(&symbols, macro.frame);
    const size_t without_default = macro.parameters.size() - macro.defaults.size();
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      macro.parameter_slots.push_back(inner.parameter(macro.parameters[i]));
      if (macro.parameters[i] == "caller" && i < without_default && ReadBeforeAssignment("caller").in(macro.body)) {
        error(s.line, "a parameter called 'caller' needs a default");
      }
    }
    for (const ExprPtr& value : macro.defaults) collect(value.get(), inner);
    collect(macro.body, inner);
    bind_special(macro, "caller", inner, macro.caller_slot);
    bind_special(macro, "kwargs", inner, macro.kwargs_slot);
    bind_special(macro, "varargs", inner, macro.varargs_slot);
    inner.finish();
    for (ExprPtr& value : macro.defaults) bind(value.get(), inner, false);
    bind(macro.body, inner, false);
  }

  void bind_special(const MacroDefinition& macro, const std::string& name, Symbols& inner, int& slot) {
    for (const std::string& parameter : macro.parameters) {
      if (parameter == name) return;
    }
    if (ReadBeforeAssignment(name).in(macro.body)) slot = inner.parameter(name);
  }

  void bind_block(Stmt& s, const Symbols& symbols, bool conditional) {
    for (ExprPtr& part : s.parts) bind(part.get(), symbols, conditional);
    if (s.target) bind_target(s.target.get(), symbols);
    Symbols inner(&symbols, s.frame);
    for (const ExprPtr& target : s.targets) collect_target(*target, inner, true);
    collect(s.body, inner);
    collect(s.value.get(), inner);
    inner.finish();
    for (ExprPtr& target : s.targets) bind_target(target.get(), inner);
    bind(s.value.get(), inner, false);
    bind(s.body, inner, false);
  }

  Location location_;
  int loops_ = 0;
};

}  // namespace

void bind_frames(Program& program) {
  Symbols root(nullptr, program.frame);
  collect(program.body, root);
  root.finish();
  Binder(program.name).bind(program.body, root, false);
}

}  // namespace doppler::jinja
