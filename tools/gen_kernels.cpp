// Build-time generator: reads a WGSL file with the kernels of one operation, and the snippets they use, and writes a
// C++ header and source with, for each kernel,
//   - a struct that mirrors `struct Params` in WGSL's uniform layout, offsets asserted;
//   - a struct with one named member for every buffer binding, in binding order;
//   - the texts, ready to be composed into a variant (src/gpu/webgpu/kernel_source.h).
// So the WGSL file is the only definition of what host and device share.
//
//   gen_kernels ops/rope.wgsl OUT_DIR      writes OUT_DIR/rope.h and OUT_DIR/rope.cpp
//
// A file consists of sections, each up to the line that begins the next:
//   // kernel: norm                      a kernel; its lines `// use: …` name the snippets it is composed with
//   // snippet: index                    a snippet
//   // snippet: weights = q4_k           one of the snippets that a variant chooses between
// A file without such lines is one kernel of the file's name; in lib/, one snippet. Kernels find snippets in every file
// of their folder and of its lib/.
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

std::vector<Token> tokenize(const std::string& code, int line) {
  std::vector<Token> tokens;
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
  int first_line = 1;  // of the section in its file
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

// A part of a file: a kernel or a snippet.
struct Section {
  std::string file;   // as error messages show it
  std::string shown;  // "ops/rope.wgsl"
  bool kernel = false;
  std::string name, choice;
  int first_line = 1;
  std::string text;
};

// "// use: weights = q4_k | q6_k" -> "weights", {"q4_k", "q6_k"}; without " = …" one choice without a name.
struct Clause {
  std::string name;
  std::vector<std::string> choices = {""};
};
bool read_clause(const std::string& line, const std::string& word, int number, Clause& out) {
  const std::string prefix = "// " + word + ":";
  if (line.rfind(prefix, 0) != 0) return false;
  const std::string rest = trim(line.substr(prefix.size()));
  const size_t equals = rest.find('=');
  out = {trim(rest.substr(0, equals))};
  if (equals != std::string::npos) out.choices = split(rest.substr(equals + 1), '|');
  if (out.name.empty() || out.choices.empty()) {
    die(number, "the line must read '" + prefix + " name' or '" + prefix + " name = a'");
  }
  return true;
}

std::vector<Section> read_sections(const fs::path& path) {
  current_file = path.string();
  const std::string text = read_whole(path);
  if (!text.empty() && text.back() != '\n') die(1, "the file must end with a newline");
  if (text.find(")wgsl\"") != std::string::npos) die(1, "the text )wgsl\" cannot be embedded");
  const fs::path folder = path.parent_path();
  const bool lib = folder.filename() == "lib";
  std::string shown = folder.filename().string() + "/" + path.filename().string();
  if (lib) shown = folder.parent_path().filename().string() + "/" + shown;
  std::vector<Section> sections = {{path.string(), shown, !lib, path.stem().string(), "", 1, ""}};
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    Clause clause;
    const bool kernel = read_clause(line, "kernel", number, clause);
    if (kernel || read_clause(line, "snippet", number, clause)) {
      if (clause.choices.size() > 1 || (kernel && !clause.choices[0].empty())) die(number, "a section has one name");
      sections.push_back({path.string(), shown, kernel, clause.name, clause.choices[0], number, ""});
    }
    sections.back().text += line + "\n";
  }
  if (sections.size() > 1) {
    if (!trim(without_comments(sections[0].text)).empty()) die(1, "there is code before the first section");
    sections.erase(sections.begin());
  }
  return sections;
}

Text parse(const Section& section) {
  current_file = section.file;
  Text out;
  out.file = section.shown;
  out.first_line = section.first_line;
  const std::string code = without_comments(section.text);

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

  const std::vector<Token> tokens = tokenize(code, section.first_line);
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

using SnippetName = std::pair<std::string, std::string>;  // and choice
using Snippets = std::map<SnippetName, Section>;

Snippets find_snippets(const fs::path& folder) {
  Snippets out;
  for (const fs::path& place : {folder, folder / "lib"}) {
    if (!fs::exists(place)) continue;
    for (const fs::directory_entry& entry : fs::directory_iterator(place)) {
      if (entry.path().extension() != ".wgsl") continue;
      for (Section& section : read_sections(entry.path())) {
        if (section.kernel) continue;
        const SnippetName name = {section.name, section.choice};
        const int line = section.first_line;
        if (!out.emplace(name, std::move(section)).second) die(line, "a second snippet " + name.first);
      }
    }
  }
  return out;
}

struct Used {
  std::string name;
  std::vector<std::string> choices;
};

struct KernelText {
  std::string name;
  Text main;
  std::vector<Used> snippets;
};

KernelText parse_kernel(const Section& section, const Snippets& snippets, std::map<SnippetName, Text>& used) {
  KernelText out = {section.name, parse(section), {}};
  std::vector<Binding>& bindings = out.main.bindings;
  const int at = section.first_line;
  std::sort(bindings.begin(), bindings.end(), [](const Binding& a, const Binding& b) { return a.number < b.number; });
  int uniforms = 0;
  for (size_t i = 0; i < bindings.size(); ++i) {
    const Binding& b = bindings[i];
    if (i > 0 && bindings[i - 1].number == b.number) {
      die(at, "binding " + std::to_string(b.number) + " is declared twice");
    }
    if (b.kind == "kUniform") {
      ++uniforms;
      if (b.number != 0 || b.name != "params")
        die(at, "the uniform must be '@group(0) @binding(0) var<uniform> params: Params'");
    }
  }
  if (bindings.empty()) die(at, "no bindings found");
  if ((uniforms == 1) != !out.main.params.empty()) die(at, "struct Params and its uniform binding must come together");

  std::istringstream lines(section.text);
  int number = section.first_line - 1;
  for (std::string line; std::getline(lines, line);) {
    Clause clause;
    current_file = section.file;
    if (!read_clause(line, "use", ++number, clause)) continue;
    if (clause.choices == std::vector<std::string>{"*"}) {
      clause.choices.clear();
      for (const auto& [name, unused] : snippets) {
        if (name.first == clause.name) clause.choices.push_back(name.second);
      }
    }
    for (const std::string& choice : clause.choices) {
      const SnippetName name = {clause.name, choice};
      const auto snippet = snippets.find(name);
      if (snippet == snippets.end()) {
        die(number, "there is no snippet " + clause.name + (choice.empty() ? "" : " = " + choice));
      }
      if (used.count(name) > 0) continue;
      Text text = parse(snippet->second);
      if (!text.bindings.empty() || !text.params.empty()) {
        die(snippet->second.first_line, "a snippet may not declare bindings or Params: they belong to the kernel");
      }
      used.emplace(name, std::move(text));
      current_file = section.file;
    }
    out.snippets.push_back({clause.name, clause.choices});
  }
  return out;
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

void emit_kernel_struct(std::ostringstream& h, const KernelText& kernel) {
  const Text& main = kernel.main;
  const std::string type = camel(kernel.name);
  h << "struct " << type << " {\n  static const KernelSource& source();\n\n  struct Params {\n";
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
  if (main.params.empty()) return;
  for (const Member& m : main.params) {
    h << "static_assert(offsetof(" << type << "::Params, " << m.name << ") == " << m.offset << ");\n";
  }
  h << "static_assert(sizeof(" << type << "::Params) == " << main.params_bytes << ");\n\n";
}

std::string header(const std::string& shown, const std::vector<KernelText>& kernels) {
  std::ostringstream h;
  h << "// Made by tools/gen_kernels from src/gpu/" << shown << ". Do not edit.\n#pragma once\n\n"
    << "#include <array>\n#include <cstddef>\n#include <cstdint>\n\n"
    << "#include \"gpu/webgpu/device.h\"\n#include \"gpu/webgpu/kernel_source.h\"\n\n"
    << "namespace doppler::gpu::wgsl {\n\n";
  for (const KernelText& kernel : kernels) emit_kernel_struct(h, kernel);
  h << "}  // namespace doppler::gpu::wgsl\n";
  return h.str();
}

void emit_text(std::ostringstream& c, const std::string& name, const Text& text) {
  c << "constexpr const char* k" << name << "Overrides[] = {";
  for (const std::string& o : text.overrides) c << "\"" << o << "\", ";
  c << "nullptr};\nconstexpr SourceText k" << name << " = {\n    R\"wgsl(" << text.directives
    << ")wgsl\",\n    R\"wgsl(" << text.body << ")wgsl\",\n    std::span<const char* const>(k" << name << "Overrides, "
    << text.overrides.size() << "),\n    \"" << text.file << "\", " << text.first_line << "};\n\n";
}

std::string source(const std::string& file, const std::vector<KernelText>& kernels,
                   const std::map<SnippetName, Text>& snippets) {
  std::ostringstream c;
  c << "// Made by tools/gen_kernels from src/gpu/" << kernels[0].main.file << ". Do not edit.\n#include \"gpu/wgsl/"
    << file << ".h\"\n\nnamespace doppler::gpu::wgsl {\nnamespace {\n\n";
  for (const auto& [name, text] : snippets) emit_text(c, camel(name.first) + "_" + name.second, text);
  for (const KernelText& kernel : kernels) {
    const std::string type = camel(kernel.name);
    emit_text(c, type + "Main", kernel.main);
    for (const Used& use : kernel.snippets) {
      c << "constexpr SnippetChoice k" << type << camel(use.name) << "Choices[] = {\n";
      for (const std::string& choice : use.choices) {
        c << "    {\"" << choice << "\", k" << camel(use.name) << "_" << choice << "},\n";
      }
      c << "};\n\n";
    }
    if (!kernel.snippets.empty()) {
      c << "constexpr Snippet k" << type << "Snippets[] = {\n";
      for (const Used& use : kernel.snippets) {
        c << "    {\"" << use.name << "\", k" << type << camel(use.name) << "Choices},\n";
      }
      c << "};\n\n";
    }
    c << "constexpr BindingInfo k" << type << "Bindings[] = {\n";
    for (const Binding& b : kernel.main.bindings) {
      c << "    {\"" << b.name << "\", " << b.number << ", BindingType::" << b.kind << ", "
        << (b.kind == "kUniform" ? kernel.main.params_bytes : 0) << "},\n";
    }
    c << "};\n\nconstexpr KernelSource k" << type << "Source = {\"" << kernel.name << "\", k" << type << "Main, "
      << (kernel.snippets.empty() ? "{}" : "k" + type + "Snippets") << ", k" << type << "Bindings, "
      << kernel.main.params_bytes << "};\n\n";
  }
  c << "}  // namespace\n\n";
  for (const KernelText& kernel : kernels) {
    const std::string type = camel(kernel.name);
    c << "const KernelSource& " << type << "::source() { return k" << type << "Source; }\n";
  }
  c << "\n}  // namespace doppler::gpu::wgsl\n";
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
  const std::string file = path.stem().string();
  const Snippets snippets = find_snippets(path.parent_path());
  std::map<SnippetName, Text> used;
  std::vector<KernelText> kernels;
  for (const Section& section : read_sections(path)) {
    if (section.kernel) kernels.push_back(parse_kernel(section, snippets, used));
  }
  current_file = path.string();
  if (kernels.empty()) die(1, "there is no kernel in the file");
  write_if_changed(out / (file + ".h"), header(kernels[0].main.file, kernels));
  write_if_changed(out / (file + ".cpp"), source(file, kernels, used));
  return 0;
}
