// No template runs for ever, fills the memory, or overruns the stack.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "jinja/limits.h"
#include "jinja/support.h"
#include "jinja/value.h"

namespace doppler {
namespace {

using testing::failure_of;
using testing::render;

std::string times(std::string_view s, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += s;
  return out;
}

struct Greedy {
  const char* name;
  const char* source;
  const char* what;
};

class GreedyTemplates : public ::testing::TestWithParam<Greedy> {};

TEST_P(GreedyTemplates, AreStoppedWithASentence) {
  const auto begin = std::chrono::steady_clock::now();
  jinja::RenderOptions options;
  options.limits.steps = 3'000'000;
  options.limits.memory_bytes = 32 << 20;
  options.limits.output_bytes = 1 << 20;
  const Error error = failure_of(GetParam().source, Json::object(), options);
  EXPECT_EQ(error.what, GetParam().what) << error.message();
  EXPECT_NE(error.expected.find("at most"), std::string::npos) << error.message();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

constexpr const char* kTooLong = "the template runs for too long";
constexpr const char* kTooLarge = "the template needs too much memory";
constexpr const char* kTooDeep = "the template nests too deeply";

INSTANTIATE_TEST_SUITE_P(
    Jinja, GreedyTemplates,
    ::testing::Values(
        Greedy{"nested_loops",
               "{% for a in range(100000) %}{% for b in range(100000) %}{% for c in range(100000) %}{% endfor %}"
               "{% endfor %}{% endfor %}",
               kTooLong},
        Greedy{"search_in_loop",
               "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set q = 'b' in s %}{% endfor %}", kTooLong},
        Greedy{"copy_in_loop", "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set q = s ~ i %}{% endfor %}",
               kTooLong},
        Greedy{"upper_in_loop",
               "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set q = s|upper %}{% endfor %}", kTooLong},
        Greedy{"index_in_loop",
               "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% set q = s[500000] %}{% endfor %}", kTooLong},
        Greedy{"sort_in_loop",
               "{% set l = range(100000)|list %}{% for i in range(100000) %}{% set q = l|sort %}{% endfor %}",
               kTooLong},
        Greedy{"membership", "{% set l = range(100000)|list %}{% for i in l %}{% set q = i in l %}{% endfor %}",
               kTooLong},
        Greedy{"unique", "{{ range(100000)|unique|list|length }}", kTooLong},
        Greedy{"trim", "{% set s = 'x' * 1000000 %}{% for i in range(100000) %}{% set q = s|trim('x') %}{% endfor %}",
               kTooLong},
        Greedy{"doubling",
               "{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
               kTooLarge},
        Greedy{"repeat", "{{ 'x' * 1000000000000000000 }}", kTooLarge},
        Greedy{"percent_zeros", "{{ '%0999999999d' % 1 }}", kTooLarge},
        Greedy{"percent_left", "{{ '%-999999999s' % 1 }}", kTooLarge},
        Greedy{"repeat_list", "{{ [1] * 1000000000000000000 }}", kTooLarge},
        Greedy{"percent_width", "{{ '%999999999d' % 1 }}", kTooLarge},
        Greedy{"indent", "{{ 'a\nb'|indent(9223372036854775807) }}", kTooLarge},
        Greedy{"json_indent", "{{ [1]|tojson(indent=9223372036854775807) }}", kTooLarge},
        Greedy{"replace", "{{ ('a' * 100000)|replace('a', 'b' * 100000) }}", kTooLarge},
        Greedy{"join", "{{ (range(100000)|list)|join('x' * 100000) }}", kTooLarge},
        Greedy{"characters", "{{ ('a' * 10000000)|list|length }}", kTooLarge},
        Greedy{"captured", "{% set b %}{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}{% endset %}",
               kTooLarge},
        Greedy{"output", "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
               "the template writes too much text"},
        Greedy{"recursion", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", kTooDeep},
        Greedy{"default_recursion", "{% macro m(a=m()) %}{% endmacro %}{{ m() }}", kTooDeep},
        Greedy{"loop_recursion", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", kTooDeep},
        Greedy{"self_print", "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}", kTooDeep},
        Greedy{"deep_list",
               "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
               kTooDeep},
        Greedy{"deep_json",
               "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}"
               "{{ ns.x|tojson }}",
               kTooDeep},
        Greedy{"deep_compare",
               "{% set ns = namespace(x=[], y=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}"
               "{% set ns.y = [ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
               kTooDeep},
        Greedy{"deep_key",
               "{% set ns = namespace(x=()) %}{% for i in range(5000) %}{% set ns.x = (ns.x,) %}{% endfor %}"
               "{{ {ns.x: 1} }}",
               kTooDeep},
        Greedy{
            "iterators_on_iterators",
            "{% set ns = namespace(x=[1]) %}{% for i in range(5000) %}{% set ns.x = ns.x|map('string') %}{% endfor %}"
            "{{ ns.x|list }}",
            kTooDeep},
        Greedy{"long_range", "{% for i in range(100001) %}{% endfor %}", "a range is too long"}),
    [](const auto& each) { return std::string(each.param.name); });

struct Nested {
  const char* name;
  std::string source;
};

class NestedTemplates : public ::testing::TestWithParam<Nested> {};

TEST_P(NestedTemplates, AreRefusedWhileTheyAreRead) {
  const Error error = failure_of(GetParam().source);
  EXPECT_NE(error.what.find("nested too deeply"), std::string::npos) << error.message();
}

INSTANTIATE_TEST_SUITE_P(
    Jinja, NestedTemplates,
    ::testing::Values(Nested{"brackets", "{{ " + times("(", 100000) + "1" + times(")", 100000) + " }}"},
                      Nested{"lists", "{{ " + times("[", 100000) + times("]", 100000) + " }}"},
                      Nested{"dicts", "{{ " + times("{1:", 50000) + "1" + times("}", 50000) + " }}"},
                      Nested{"nots", "{{ " + times("not ", 100000) + "1 }}"},
                      Nested{"signs", "{{ " + times("-", 100000) + "1 }}"},
                      Nested{"sums", "{{ 1" + times(" + 1", 100000) + " }}"},
                      Nested{"attributes", "{{ a" + times(".a", 100000) + " }}"},
                      Nested{"subscripts", "{{ a" + times("[0]", 100000) + " }}"},
                      Nested{"calls", "{{ a" + times("()", 100000) + " }}"},
                      Nested{"arguments", "{{ " + times("a(", 100000) + times(")", 100000) + " }}"},
                      Nested{"filters", "{{ a" + times("|e", 100000) + " }}"},
                      Nested{"conditions", "{{ 1" + times(" if 1", 100000) + " }}"},
                      Nested{"elses", "{{ 1" + times(" if 1 else 1", 50000) + " }}"},
                      Nested{"ands", "{{ 1" + times(" and 1", 100000) + " }}"},
                      Nested{"powers", "{{ 1" + times(" ** 1", 100000) + " }}"},
                      Nested{"blocks", times("{% if 1 %}", 50000)},
                      Nested{"targets", "{% set " + times("(", 100000) + "a" + times(")", 100000) + " = 1 %}"}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(JinjaLimits, LongButFlatTemplatesAreFine) {
  EXPECT_EQ(render("{% if 0 %}a" + times("{% elif 0 %}b", 5000) + "{% else %}c{% endif %}"), "c");
  EXPECT_EQ(render("{{ 'a'" + times(" ~ 'b'", 5000) + " }}"), "a" + times("b", 5000));
  EXPECT_EQ(render("{{ 1" + times(" == 1", 5000) + " }}"), "True");
  EXPECT_EQ(render("{{ [" + times("1,", 20000) + "]|length }}"), "20000");
  EXPECT_EQ(render(times("{% if 1 %}", 100) + "x" + times("{% endif %}", 100)), "x");
}

TEST(JinjaLimits, ATemplateThatIsTooLongIsRefused) {
  EXPECT_EQ(failure_of(times("x", static_cast<int>(jinja::kMaxSourceBytes) + 1)).what, "the template is too long");
}

TEST(JinjaLimits, MacrosMayCallThemselvesAHundredTimes) {
  EXPECT_EQ(render("{% macro m(n) %}{% if n %}{% for i in [1] %}{{ m(n - 1) }}{% endfor %}{% else %}done{% endif %}"
                   "{% endmacro %}{{ m(100) }}"),
            "done");
}

TEST(JinjaLimits, WhatIsLetGoOfCanBeUsedAgain) {
  // 2000 strings of 100 kB one after the other, in a heap of 4 MB.
  jinja::RenderOptions options;
  options.limits.memory_bytes = 4 << 20;
  EXPECT_EQ(render("{% set ns = namespace() %}{% for i in range(2000) %}{% set ns.s = 'x' * 100000 %}{% endfor %}"
                   "{{ ns.s|length }}",
                   Json::object(), options),
            "100000");
}

TEST(JinjaLimits, LongChainsAndCirclesAreFreedWithoutRecursion) {
  EXPECT_EQ(render("{% set ns = namespace(x=[]) %}{% for i in range(100000) %}{% set ns.x = [ns.x] %}{% endfor %}ok"),
            "ok");
  EXPECT_EQ(
      render("{% set ns = namespace() %}{% for i in range(100000) %}{% set ns.x = namespace(p=ns.x) %}{% endfor %}ok"),
      "ok");
  EXPECT_EQ(render("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                   "{% macro m() %}{{ m }}{% endmacro %}{% set a.m = m %}ok"),
            "ok");
}

TEST(JinjaHeap, CountsWhatIsAliveDownToNothing) {
  jinja::Runtime rt("test", {}, nullptr);
  {
    const jinja::Value text = rt.string(std::string(1000, 'x'));
    const uint64_t one = rt.heap.used();
    EXPECT_GE(one, 1000u);
    const jinja::Value list = rt.list({text, text, rt.string("y")});
    EXPECT_GT(rt.heap.used(), one);
    jinja::TextBuilder builder(rt);
    builder.repeat("ab", 500);
    EXPECT_EQ(builder.finish().text().size(), 1000u);
  }
  EXPECT_EQ(rt.heap.used(), 0u);
}

}  // namespace
}  // namespace doppler
