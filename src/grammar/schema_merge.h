// JSON schemas as data: references resolved, allOf merged into one schema, and which keywords there are.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"

namespace doppler {

class SchemaMerger {
 public:
  // `root` is what references point into and must outlive this. `where` names it in errors.
  SchemaMerger(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  // The same schema without $ref and allOf, and without annotations; true or false stay what they are. Keywords that
  // are not supported fail with their names and places. `path` is a JSON pointer.
  Json flat(const Json& schema, const std::string& path, int depth = 0);
  // What both allow.
  Json merge(const Json& a, const Json& b, const std::string& path);
  // What a reference points to.
  const Json& target(const Json& reference, const std::string& path) const;

  [[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& todo = "") const;
  // The schema is not a schema.
  [[noreturn]] void wrong(const std::string& path, const std::string& expected, const Json& got) const;
  const std::string& where() const { return where_; }

  // Whether no value can be valid for both: different types, different constants, or objects that differ in a constant
  // that both require. Flat schemas; false where it is not plain.
  bool disjoint(const Json& a, const Json& b, const std::string& path, int depth = 0);

 private:
  Json merge_key(const std::string& key, const Json& a, const Json& b, const std::string& path);
  Json merge_properties(const Json& a, const Json& b, const std::string& path);
  void spend(size_t work);  // fails when merging takes too much of it

  const Json& root_;
  std::string where_;
  size_t spent_ = 0;
};

// The types that a flat schema's values may have, as a list of names; all of them where it does not say.
Json types_of(const Json& schema);

}  // namespace doppler
