// Build-time generator: reads one WGSL kernel and the snippets it uses, and writes a C++ header and source with
//   - a struct that mirrors `struct Params` in WGSL's uniform layout, offsets asserted;
//   - a struct with one named member for every buffer binding, in binding order;
//   - the texts, ready to be composed into a variant (src/gpu/webgpu/kernel_source.h).
// So the WGSL file is the only definition of what host and device share.
//
//   gen_kernels ops/norm.wgsl OUT_DIR      writes OUT_DIR/norm.h and OUT_DIR/norm.cpp
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

std::string current_file;

[[noreturn]] void die(int line, const std::string& message) {
  std::cerr << current_file << ":" << line << ": error: " << message << "\n";
  std::exit(1);
}

std::string read_whole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::cerr << path.string() << ": error: cannot be read\n";
    std::exit(1);
  }
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string trim(const std::string& s) {
  const size_t a = s.find_first_not_of(" \t\r\n");
  if (a == std::string::npos) return "";
  return s.substr(a, s.find_last_not_of(" \t\r\n") - a + 1);
}

std::vector<std::string> split(const std::string& s, char separator) {
  std::vector<std::string> out;
  std::istringstream in(s);
  for (std::string part; std::getline(in, part, separator);) out.push_back(trim(part));
  return out;
}

// Comments become spaces, so that offsets and lines stay.
std::string without_comments(const std::string& text) {
  std::string out = text;
  for (size_t i = 0; i + 1 < out.size(); ++i) {
    if (out[i] == '/' && out[i + 1] == '/') {
      while (i < out.size() && out[i] != '\n') out[i++] = ' ';
    } else if (out[i] == '/' && out[i + 1] == '*') {
      int depth = 0;
      do {
        if (out.compare(i, 2, "/*") == 0 || out.compare(i, 2, "*/") == 0) {
          depth += out[i] == '/' ? 1 : -1;
          out[i] = out[i + 1] = ' ';
          ++i;
        } else if (out[i] != '\n') {
          out[i] = ' ';
        }
        ++i;
      } while (depth > 0 && i + 1 < out.size());
    }
  }
  return out;
}

// Without the spaces that WGSL does not need: a fifth of a text, which a page would have to fetch. Between operators
// they stay, or two of them could become another one or a comment.
std::string squeezed(const std::string& line) {
  const auto part_of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto part_of_operator = [](char c) { return std::string("+-*/%&|^!~<>=").find(c) != std::string::npos; };
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != ' ') {
      out += line[i];
      continue;
    }
    const size_t next = line.find_first_not_of(' ', i);
    if (next == std::string::npos) break;
    const char before = out.empty() ? '(' : out.back(), after = line[next];
    if ((part_of_word(before) && part_of_word(after)) || (part_of_operator(before) && part_of_operator(after))) {
      out += ' ';
    }
    i = next - 1;
  }
  return out;
}

struct Token {
  std::string text;
  int line;
};

std::vector<Token> tokenize(const std::string& code) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < code.size();) {
    const unsigned char c = static_cast<unsigned char>(code[i]);
    if (c == '\n') ++line;
    if (std::isspace(c)) {
      ++i;
    } else if (std::isalnum(c) || c == '_') {
      size_t j = i;
      while (j < code.size() && (std::isalnum(static_cast<unsigned char>(code[j])) || code[j] == '_')) ++j;
      tokens.push_back({code.substr(i, j - i), line});
      i = j;
    } else {
      tokens.push_back({std::string(1, code[i]), line});
      ++i;
    }
  }
  return tokens;
}

struct Member {
  std::string name, type;
  uint32_t offset = 0, size = 0;
};

struct Binding {
  std::string name, kind;  // kind: kUniform, kReadStorage, kStorage
  uint32_t number = 0;
};

struct Text {
  std::string file, directives, body;
  std::vector<std::string> overrides;
  std::vector<Binding> bindings;
  std::vector<Member> params;
  uint32_t params_bytes = 0;
};

struct ParamType {
  const char* cpp;
  uint32_t size, align;
};

const std::map<std::string, ParamType>& param_types() {
  static const std::map<std::string, ParamType> types = {
      {"u32", {"uint32_t", 4, 4}},
      {"i32", {"int32_t", 4, 4}},
      {"f32", {"float", 4, 4}},
      {"vec2<u32>", {"std::array<uint32_t, 2>", 8, 8}},
      {"vec2<i32>", {"std::array<int32_t, 2>", 8, 8}},
      {"vec2<f32>", {"std::array<float, 2>", 8, 8}},
      {"vec4<u32>", {"std::array<uint32_t, 4>", 16, 16}},
      {"vec4<i32>", {"std::array<int32_t, 4>", 16, 16}},
      {"vec4<f32>", {"std::array<float, 4>", 16, 16}},
  };
  return types;
}

void parse_params(const std::vector<Token>& tokens, size_t& i, Text& out) {
  // at "Params" "{" member ":" type [","] ... "}"
  i += 2;
  uint32_t offset = 0, widest = 4;
  while (i < tokens.size() && tokens[i].text != "}") {
    const int line = tokens[i].line;
    Member member;
    member.name = tokens[i].text;
    if (member.name == "@") die(line, "attributes on members of Params are not supported");
    if (i + 1 >= tokens.size() || tokens[i + 1].text != ":") die(line, "expected ':' after " + member.name);
    i += 2;
    int depth = 0;
    while (i < tokens.size() && !(depth == 0 && (tokens[i].text == "," || tokens[i].text == "}"))) {
      if (tokens[i].text == "<") ++depth;
      if (tokens[i].text == ">") --depth;
      member.type += tokens[i++].text;
    }
    if (i < tokens.size() && tokens[i].text == ",") ++i;
    const auto type = param_types().find(member.type);
    if (type == param_types().end()) {
      die(line, "Params." + member.name + ": type " + member.type + " is not supported (u32, i32, f32, vec2, vec4)");
    }
    offset = (offset + type->second.align - 1) / type->second.align * type->second.align;
    member.offset = offset;
    member.size = type->second.size;
    offset += member.size;
    widest = std::max(widest, type->second.align);
    out.params.push_back(member);
  }
  if (out.params.empty()) die(tokens[std::min(i, tokens.size() - 1)].line, "Params is empty");
  out.params_bytes = (offset + widest - 1) / widest * widest;
}

void parse_binding(const std::vector<Token>& tokens, size_t& i, Text& out) {
  // @ group ( 0 ) @ binding ( N ) var < access > name : type ;
  const int line = tokens[i].line;
  auto expect = [&](const std::string& text) {
    if (i >= tokens.size() || tokens[i].text != text) {
      die(line, "a binding must read '@group(0) @binding(N) var<...> name: type;' (expected '" + text + "')");
    }
    ++i;
  };
  for (const char* t : {"@", "group", "(", "0", ")", "@", "binding", "("}) expect(t);
  Binding binding;
  binding.number = static_cast<uint32_t>(std::strtoul(tokens[i].text.c_str(), nullptr, 10));
  ++i;
  for (const char* t : {")", "var", "<"}) expect(t);
  std::string access;
  while (i < tokens.size() && tokens[i].text != ">") access += tokens[i++].text;
  expect(">");
  if (access == "uniform")
    binding.kind = "kUniform";
  else if (access == "storage,read" || access == "storage")
    binding.kind = "kReadStorage";
  else if (access == "storage,read_write")
    binding.kind = "kStorage";
  else
    die(line, "unknown address space or access: " + access);
  binding.name = tokens[i].text;
  out.bindings.push_back(binding);
}

Text parse(const fs::path& path, const std::string& shown) {
  current_file = path.string();
  Text out;
  out.file = shown;
  const std::string text = read_whole(path);
  if (!text.empty() && text.back() != '\n') die(1, "the file must end with a newline");
  if (text.find(")wgsl\"") != std::string::npos) die(1, "the text )wgsl\" cannot be embedded");
  const std::string code = without_comments(text);

  std::istringstream code_lines(code);
  for (std::string bare; std::getline(code_lines, bare);) {
    bare = trim(bare);
    if (bare.rfind("enable ", 0) == 0 || bare.rfind("requires ", 0) == 0 || bare.rfind("diagnostic", 0) == 0) {
      out.directives += bare + "\n";
      out.body += "\n";
    } else {
      out.body += squeezed(bare) + "\n";  // comments and indents stay at home; lines keep their numbers
    }
  }

  const std::vector<Token> tokens = tokenize(code);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].text == "struct" && i + 2 < tokens.size() && tokens[i + 1].text == "Params") {
      ++i;
      parse_params(tokens, i, out);
    } else if (tokens[i].text == "@" && i + 1 < tokens.size() && tokens[i + 1].text == "group") {
      parse_binding(tokens, i, out);
    } else if (tokens[i].text == "override" && i + 1 < tokens.size()) {
      out.overrides.push_back(tokens[i + 1].text);
    }
  }
  return out;
}

struct Slot {
  std::string name;
  std::vector<std::pair<std::string, Text>> choices;
};

std::vector<Slot> parse_slots(const fs::path& path) {
  std::vector<Slot> slots;
  const fs::path lib = path.parent_path() / "lib";
  std::istringstream lines(read_whole(path));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const std::string prefix = "// use:";
    if (line.rfind(prefix, 0) != 0) continue;
    current_file = path.string();
    const std::string rest = trim(line.substr(prefix.size()));
    const size_t equals = rest.find('=');
    Slot slot;
    slot.name = trim(rest.substr(0, equals));
    std::vector<std::string> choices = {""};
    if (equals != std::string::npos) choices = split(rest.substr(equals + 1), '|');
    if (slot.name.empty() || choices.empty())
      die(number, "a snippet line must read '// use: name' or '// use: name = a | b'");
    for (const std::string& choice : choices) {
      const std::string file = choice.empty() ? slot.name + ".wgsl" : slot.name + "." + choice + ".wgsl";
      current_file = path.string();
      if (!fs::exists(lib / file)) die(number, "there is no snippet lib/" + file);
      Text text = parse(lib / file, "ops/lib/" + file);
      if (!text.bindings.empty() || !text.params.empty()) {
        die(1, "a snippet may not declare bindings or Params: they belong to the kernel file");
      }
      slot.choices.emplace_back(choice, std::move(text));
    }
    slots.push_back(std::move(slot));
  }
  return slots;
}

std::string camel(const std::string& name) {
  std::string out;
  bool upper = true;
  for (char c : name) {
    if (c == '_') {
      upper = true;
    } else {
      out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
      upper = false;
    }
  }
  return out;
}

std::string header(const std::string& op, const Text& main) {
  std::ostringstream h;
  const std::string type = camel(op);
  h << "// Made by tools/gen_kernels from src/gpu/" << main.file << ". Do not edit.\n#pragma once\n\n"
    << "#include <array>\n#include <cstddef>\n#include <cstdint>\n\n"
    << "#include \"gpu/webgpu/device.h\"\n#include \"gpu/webgpu/kernel_source.h\"\n\n"
    << "namespace doppler::gpu::wgsl {\n\nstruct " << type << " {\n  static const KernelSource& source();\n\n";
  h << "  struct Params {\n";
  uint32_t at = 0;
  int pad = 0;
  auto pad_to = [&](uint32_t offset) {
    for (; at < offset; at += 4) h << "    uint32_t pad" << pad++ << "_ = 0;\n";
  };
  for (const Member& m : main.params) {
    pad_to(m.offset);
    h << "    " << param_types().at(m.type).cpp << " " << m.name << " = {};\n";
    at = m.offset + m.size;
  }
  pad_to(main.params_bytes);
  h << "  };\n\n  struct Buffers {\n";
  size_t count = 0;
  std::string names;
  for (const Binding& b : main.bindings) {
    if (b.kind == "kUniform") continue;
    h << "    BoundBuffer " << b.name << ";\n";
    names += (count++ ? ", " : "") + b.name;
  }
  h << "    std::array<BoundBuffer, " << count << "> list() const { return {" << names << "}; }\n  };\n};\n\n";
  if (!main.params.empty()) {
    for (const Member& m : main.params) {
      h << "static_assert(offsetof(" << type << "::Params, " << m.name << ") == " << m.offset << ");\n";
    }
    h << "static_assert(sizeof(" << type << "::Params) == " << main.params_bytes << ");\n\n";
  }
  h << "}  // namespace doppler::gpu::wgsl\n";
  return h.str();
}

void emit_text(std::ostringstream& c, const std::string& name, const Text& text) {
  c << "constexpr const char* k" << name << "Overrides[] = {";
  for (const std::string& o : text.overrides) c << "\"" << o << "\", ";
  c << "nullptr};\nconstexpr SourceText k" << name << " = {\n    R\"wgsl(" << text.directives
    << ")wgsl\",\n    R\"wgsl(" << text.body << ")wgsl\",\n    std::span<const char* const>(k" << name << "Overrides, "
    << text.overrides.size() << ")};\n\n";
}

std::string source(const std::string& op, const Text& main, const std::vector<Slot>& slots) {
  std::ostringstream c;
  c << "// Made by tools/gen_kernels from src/gpu/" << main.file << ". Do not edit.\n#include \"gpu/wgsl/" << op
    << ".h\"\n\nnamespace doppler::gpu::wgsl {\nnamespace {\n\n";
  emit_text(c, "Main", main);
  for (const Slot& slot : slots) {
    for (const auto& [choice, text] : slot.choices) emit_text(c, camel(slot.name) + "_" + choice, text);
    c << "constexpr SlotChoice k" << camel(slot.name) << "Choices[] = {\n";
    for (const auto& [choice, text] : slot.choices) {
      c << "    {\"" << choice << "\", k" << camel(slot.name) << "_" << choice << "},\n";
    }
    c << "};\n\n";
  }
  if (!slots.empty()) {
    c << "constexpr Slot kSlots[] = {\n";
    for (const Slot& slot : slots) c << "    {\"" << slot.name << "\", k" << camel(slot.name) << "Choices},\n";
    c << "};\n\n";
  }
  c << "constexpr BindingInfo kBindings[] = {\n";
  for (const Binding& b : main.bindings) {
    c << "    {\"" << b.name << "\", " << b.number << ", BindingType::" << b.kind << ", "
      << (b.kind == "kUniform" ? main.params_bytes : 0) << "},\n";
  }
  c << "};\n\nconstexpr KernelSource kSource = {\"" << op << "\", kMain, " << (slots.empty() ? "{}" : "kSlots")
    << ", kBindings, " << main.params_bytes << "};\n\n}  // namespace\n\n"
    << "const KernelSource& " << camel(op) << "::source() { return kSource; }\n\n}  // namespace doppler::gpu::wgsl\n";
  return c.str();
}

void write_if_changed(const fs::path& path, const std::string& text) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && read_whole(path) == text) {
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
    return;
  }
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out) {
    std::cerr << path.string() << ": error: cannot be written\n";
    std::exit(1);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: gen_kernels ops/OP.wgsl OUT_DIR\n";
    return 2;
  }
  const fs::path path = argv[1], out = argv[2];
  const std::string op = path.stem().string();
  Text main = parse(path, path.parent_path().filename().string() + "/" + path.filename().string());
  std::sort(main.bindings.begin(), main.bindings.end(),
            [](const Binding& a, const Binding& b) { return a.number < b.number; });
  int uniforms = 0;
  for (size_t i = 0; i < main.bindings.size(); ++i) {
    const Binding& b = main.bindings[i];
    if (i > 0 && main.bindings[i - 1].number == b.number)
      die(1, "binding " + std::to_string(b.number) + " is declared twice");
    if (b.kind == "kUniform") {
      ++uniforms;
      if (b.number != 0 || b.name != "params")
        die(1, "the uniform must be '@group(0) @binding(0) var<uniform> params: Params'");
    }
  }
  if (main.bindings.empty()) die(1, "no bindings found");
  if ((uniforms == 1) != !main.params.empty()) die(1, "struct Params and its uniform binding must come together");
  const std::vector<Slot> slots = parse_slots(path);
  write_if_changed(out / (op + ".h"), header(op, main));
  write_if_changed(out / (op + ".cpp"), source(op, main, slots));
  return 0;
}
