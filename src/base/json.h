// JSON from outside: every access names its place, and a wrong type is an error a person can act on.
// Uses nlohmann-json without exceptions, so that the same code runs in the browser build.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace doppler {

using Json = nlohmann::ordered_json;

// Parses or fails with the byte, line and column of the first fault. `where` names the source (a path).
// Nesting deeper than 256 is refused: a small file must not be able to exhaust the stack.
Json parse_json(std::string_view text, const std::string& where);

// `where` is the path to `object` so far ("manifest.json: architecture"); messages append the key.
const Json& require(const Json& object, std::string_view key, const std::string& where);
const Json* find(const Json& object, std::string_view key);  // null if absent or JSON null

int64_t require_int(const Json& object, std::string_view key, const std::string& where);
double require_number(const Json& object, std::string_view key, const std::string& where);
std::string require_string(const Json& object, std::string_view key, const std::string& where);
const Json& require_object(const Json& object, std::string_view key, const std::string& where);
const Json& require_array(const Json& object, std::string_view key, const std::string& where);

// The default when the key is absent or null; still an error when it is there with another type.
int64_t int_or(const Json& object, std::string_view key, int64_t otherwise, const std::string& where);
double number_or(const Json& object, std::string_view key, double otherwise, const std::string& where);
bool bool_or(const Json& object, std::string_view key, bool otherwise, const std::string& where);
std::string string_or(const Json& object, std::string_view key, std::string otherwise, const std::string& where);

// The text of a value for an error message, cut to a readable length.
std::string brief(const Json& value);

}  // namespace doppler
