// What a template that goes wrong says: what, on which line, in which construct.
#include <gtest/gtest.h>

#include <string>

#include "jinja/support.h"

namespace doppler {
namespace {

using testing::failure_of;
using testing::render;

struct Fault {
  const char* source;
  ErrorCode code;
  const char* what;
  const char* where;
};

class Faults : public ::testing::TestWithParam<Fault> {};

TEST_P(Faults, NameLineAndConstruct) {
  const Json variables = {{"d", {{"a", 1}}}, {"n", nullptr}, {"l", {1, 2}}, {"s", "text"}};
  const Error error = failure_of(GetParam().source, variables);
  EXPECT_EQ(error.code, GetParam().code) << error.message();
  EXPECT_EQ(error.what, GetParam().what);
  EXPECT_EQ(error.where, GetParam().where);
}

constexpr ErrorCode kFormat = ErrorCode::kFormat, kUnsupported = ErrorCode::kUnsupported;

INSTANTIATE_TEST_SUITE_P(
    Jinja, Faults,
    ::testing::Values(
        Fault{"{{ x.y }}", kFormat, "'x' is undefined", "test, line 1: attribute 'y'"},
        Fault{"a\nb\n{{ d.b.c }}", kFormat, "'dict object' has no attribute 'b'", "test, line 3: attribute 'c'"},
        Fault{"{{ n.b.c }}", kFormat, "'None' has no attribute 'b'", "test, line 1: attribute 'c'"},
        Fault{"{{ l[7].x }}", kFormat, "list object has no element 7", "test, line 1: attribute 'x'"},
        Fault{"\n{{ 'a' + 1 }}", kFormat, "'+' has no meaning between str and int", "test, line 2: operator '+'"},
        Fault{"{{ undefined + 'a' }}", kFormat, "'undefined' is undefined", "test, line 1: operator '+'"},
        Fault{"{{ 1 < 'a' }}", kFormat, "'<' has no meaning between int and str", "test, line 1: operator '<'"},
        Fault{"{{ 1 in s }}", kFormat, "'in' a string needs a string before it", "test, line 1: operator 'in'"},
        Fault{"{{ 1 // 0 }}", kFormat, "division by zero", "test, line 1: operator '//'"},
        Fault{"{{ x|tojson }}", kFormat, "an undefined value cannot be written as JSON",
              "test, line 1: filter 'tojson'"},
        Fault{"{{ 3|length }}", kFormat, "an int has no length", "test, line 1: filter 'length'"},
        Fault{"{{ s|replace }}", kFormat, "replace() needs an argument 'old'", "test, line 1: filter 'replace'"},
        Fault{"{{ s|join(x=1) }}", kFormat, "join() has no argument called 'x'", "test, line 1: filter 'join'"},
        Fault{"{{ s.upper(1) }}", kFormat, "this call has too many arguments", "test, line 1: call of 'upper'"},
        Fault{"{{ s.split('') }}", kFormat, "the separator of split() is empty", "test, line 1: call of 'split'"},
        Fault{"{{ s() }}", kFormat, "a str cannot be called", "test, line 1: call of 's'"},
        Fault{"{{ f() }}", kFormat, "'f' is undefined", "test, line 1: call of 'f'"},
        Fault{"{{ s.nope() }}", kFormat, "'str object' has no attribute 'nope'", "test, line 1: call of 'nope'"},
        Fault{"{% for x in 5 %}{% endfor %}", kFormat, "an int cannot be iterated over", "test, line 1: {% for %}"},
        Fault{"{% for a, b in l %}{% endfor %}", kFormat, "a value cannot be taken apart into 2 variables",
              "test, line 1: {% for %}"},
        Fault{"{% set a, b = (1, 2, 3) %}", kFormat, "the number of values does not fit the variables",
              "test, line 1: {% set %}"},
        Fault{"{% set d.a = 1 %}", kFormat, "only a namespace can have its attributes set", "test, line 1: {% set %}"},
        Fault{"{{ l[::0] }}", kFormat, "the step of a slice cannot be zero", "test, line 1: [...:...]"},
        Fault{"{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}", kFormat, "the macro 'm' has too many arguments",
              "test, line 2: call of 'm'"},
        Fault{"{{ l|map('upper') }}", kFormat, "a generator cannot be printed", "test, line 1: {{ }}"},
        // The sandbox of chat templates lets nobody change a list.
        Fault{
            "{{ l.append(3) }}", kFormat,
            "access to attribute 'append' of a list is unsafe: templates may not change lists and dicts, or look into "
            "Python",
            "test, line 1: call of 'append'"},
        // Syntax
        Fault{"a\n{% if x %}", kFormat, "the template has a syntax error", "test, line 2"},
        Fault{"{% endif %}", kFormat, "{% endif %} closes nothing", "test, line 1"},
        Fault{"\n\n{% frob %}", kFormat, "there is no tag called 'frob'", "test, line 3"},
        Fault{"{{ x|frob }}", kFormat, "there is no filter called 'frob'", "test, line 1"},
        Fault{"{{ x is frob }}", kFormat, "there is no test called 'frob'", "test, line 1"},
        Fault{"a {{ 'b\nc", kFormat, "a string is never closed", "test, line 1: '"},
        Fault{"a {{ b\nc", kFormat, "a tag is never closed", "test, line 1: {{"},
        Fault{"{# b\nc", kFormat, "a comment is never closed", "test, line 1: {#"},
        Fault{"{% raw %} b", kFormat, "a raw block is never closed", "test, line 1: {% raw %}"},
        Fault{"{{ (1] }}", kFormat, "unexpected ']' where ')' should close", "test, line 1"},
        Fault{"{{ 1 ? 2 }}", kFormat, "a character has no meaning here: '?'", "test, line 1: {{"},
        Fault{"{{ '\\ud800' }}", kFormat, "a string has an escape \\u that is no character", "test, line 1"},
        Fault{"{% break %}", kFormat, "{% break %} stands outside of any loop", "test, line 1"},
        Fault{"\xff", kFormat, "the template is not valid UTF-8", "test"},
        // What jinja2 has and we have not says so.
        Fault{"{% include 'x' %}", kUnsupported, "{% include %} is not supported in templates", "test, line 1"},
        Fault{"{{ l|groupby('a') }}", kUnsupported, "the filter 'groupby' is not supported in templates",
              "test, line 1: filter 'groupby'"},
        Fault{"{{ s.encode() }}", kUnsupported, "the attribute 'encode' of a str is not supported in templates",
              "test, line 1: attribute 'encode'"},
        Fault{"{{ lipsum() }}", kUnsupported, "this function is not supported in templates",
              "test, line 1: call of 'lipsum'"},
        Fault{"{{ 9223372036854775807 + 1 }}", kUnsupported,
              "a whole number beyond 64 bits is not supported in templates", "test, line 1: operator '+'"}));

TEST(JinjaErrors, RaisedByTheTemplateComeThroughInItsOwnWords) {
  const Error error = failure_of("a\n{{ raise_exception('No, ' ~ who ~ '.') }}", {{"who", "Bob"}});
  EXPECT_EQ(error.code, ErrorCode::kUsage);
  EXPECT_EQ(error.what, "No, Bob.");
  EXPECT_EQ(error.where, "test, line 2: call of 'raise_exception'");
}

TEST(JinjaErrors, InsideAMacroNameTheMacrosLine) {
  const Error error = failure_of("{% macro m() %}\n{{ 1 + 'a' }}\n{% endmacro %}\n\n{{ m() }}");
  EXPECT_EQ(error.where, "test, line 2: operator '+'");
}

TEST(JinjaErrors, AnUnknownFilterUnderAConditionMattersOnlyWhenReached) {
  EXPECT_EQ(render("{% if x %}{{ 1|frob }}{% endif %}ok"), "ok");
  EXPECT_EQ(failure_of("{% if x %}{{ 1|frob }}{% endif %}", {{"x", true}}).what, "there is no filter called 'frob'");
}

TEST(JinjaErrors, ValuesThatTemplatesDoNotHaveAreRefused) {
  EXPECT_EQ(failure_of("x", {{"a", 18446744073709551615ull}}).what, "a whole number is beyond 64 bits");
  EXPECT_EQ(failure_of("x", {{"a", {1, "\xff"}}}).what, "a string is not valid UTF-8");
  EXPECT_EQ(failure_of("x", {{"a", {{"\xff", 1}}}}).what, "a key is not valid UTF-8");
  EXPECT_EQ(failure_of("x", Json::array()).what, "the variables of a template must be an object");
}

TEST(JinjaErrors, AnIteratorCannotBeEnteredWhileItRuns) {
  // The test of the loop calls a macro that asks the loop for its length, which would need the test.
  const char* source =
      "{% set ns = namespace() %}"
      "{% for x in [1, 2, 3] if ns.m is not defined or ns.m() %}"
      "{% macro m() %}{{ loop.length }}{% endmacro %}{% set ns.m = m %}{% endfor %}";
  EXPECT_EQ(failure_of(source).what, "an iterator is used while it is being advanced");
}

}  // namespace
}  // namespace doppler
