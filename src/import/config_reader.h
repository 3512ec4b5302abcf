// Values out of a Hugging Face config.json by the small expressions of a family file, remembering which keys were read.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/json.h"

namespace doppler {

class ConfigReader {
 public:
  // Reads `root` and, where it lacks a key, `outer` (the whole file around a text_config).
  ConfigReader(const Json& root, const Json& outer, std::string config_where, std::string family_where)
      : root_(root), outer_(outer), where_(std::move(config_where)), family_where_(std::move(family_where)) {}

  // An expression: a literal; {"key": name or [names], "default": expression, "null": expression, "values": {…}};
  // {"field": name}; {"sqrt": e}; {"rsqrt": e}; {"divide": [a, b]}; {"multiply": [a, b]}.
  Json value(const Json& expression);
  double number(const Json& expression);
  int64_t integer(const Json& expression);
  bool boolean(const Json& expression);
  std::string string(const Json& expression);

  // A field computed earlier, for {"field": …}.
  void remember(const std::string& field, double value) { fields_[field] = value; }

  // The key's value, or null if it is absent or JSON null; counts as read.
  const Json* key(const std::string& name);

  const std::set<std::string>& used() const { return used_; }
  const std::string& where() const { return where_; }
  const std::string& family_where() const { return family_where_; }

 private:
  Json from_key(const Json& expression);
  std::pair<double, double> pair(const Json& list);
  [[noreturn]] void wrong(const Json& expression, const Json& got, const char* expected) const;

  const Json& root_;
  const Json& outer_;
  std::string where_, family_where_;
  std::map<std::string, double> fields_;
  std::set<std::string> used_;
};

struct Family;
struct ModelConfig;

// ModelConfig::layers and ::ropes from the family's "layers" and "ropes", in both dialects of config.json:
// rope_theta / rope_scaling / a pattern (transformers 4), and rope_parameters / layer_types (transformers 5).
void read_layers(ModelConfig& config, const Family& family, ConfigReader& reader);

}  // namespace doppler
