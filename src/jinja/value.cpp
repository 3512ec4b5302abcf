#include "jinja/value.h"

namespace doppler::jinja {

void Value::let_go() {
  if (--object_->references_ == 0) object_->heap_->bury(object_);
}

Heap::~Heap() {
  for (Object* o = living_; o; o = o->after_) ++o->references_;  // nothing is freed while circles are opened
  for (Object* o = living_; o; o = o->after_) o->release();
  while (living_) {
    Object* next = living_->after_;
    delete living_;
    living_ = next;
  }
}

void Heap::charge(uint64_t bytes) {
  if (bytes > limit_ - used_) {
    fail_at(place_, ErrorCode::kMemory, "the template needs too much memory",
            "at most " + std::to_string(limit_) + " bytes",
            std::to_string(used_) + " and then " + std::to_string(bytes) + " more");
  }
  used_ += bytes;
}

void Heap::adopt(Object* object, size_t bytes) {
  object->heap_ = this;
  object->bytes_ = bytes;
  object->after_ = living_;
  if (living_) living_->before_ = object;
  living_ = object;
}

void Heap::bury(Object* object) {
  if (object->before_) object->before_->after_ = object->after_;
  if (object->after_) object->after_->before_ = object->before_;
  if (living_ == object) living_ = object->after_;
  object->after_ = graves_;
  graves_ = object;
  if (burying_) return;  // we are inside the destructor of another: the loop below comes to this one
  burying_ = true;
  while (graves_) {
    Object* dead = graves_;
    graves_ = dead->after_;
    used_ -= dead->bytes_;
    delete dead;
  }
  burying_ = false;
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kMissing: return "missing";
    case Kind::kNone: return "NoneType";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kUndefined: return "Undefined";
    case Kind::kString: return value.is_markup() ? "Markup" : "str";
    case Kind::kList: return "list";
    case Kind::kTuple: return "tuple";
    case Kind::kDict: return "dict";
    case Kind::kView: {
      const ViewObject::Part part = value.as<ViewObject>().part;
      return part == ViewObject::kKeys ? "dict_keys" : part == ViewObject::kValues ? "dict_values" : "dict_items";
    }
    case Kind::kRange: return "range";
    case Kind::kIterator: return value.as<IteratorObject>().type;
    case Kind::kNamespace: return "Namespace";
    case Kind::kMacro: return "Macro";
    case Kind::kFunction: return "builtin_function_or_method";
    case Kind::kLoop: return "LoopContext";
    case Kind::kScope: return "scope";
  }
  return "object";
}

std::string a_type(const Value& value) {
  const std::string_view name = type_name(value);
  return (std::string_view("aeiouU").find(name[0]) == std::string_view::npos ? "a " : "an ") + std::string(name);
}

}  // namespace doppler::jinja
