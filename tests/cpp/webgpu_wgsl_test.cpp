// The WGSL preprocessor: a misspelt flag or a forgotten define must be an error, never another kernel.
#include <gtest/gtest.h>

#include "generated/wgsl_sources.h"
#include "runtime/webgpu/wgsl.h"

namespace etwgpu {
namespace {

std::string_view files(std::string_view name) {
  if (name == "a.wgsl") return "#include \"b.wgsl\"\n#include \"b.wgsl\"\nlet a = ${A};\n";
  if (name == "b.wgsl") return "enable f16;\nlet b = 1;\n";
  if (name == "loop.wgsl") return "#include \"loop.wgsl\"\nlet l = 1;\n";
  return {};
}

Result<std::string> expand(const std::string& source, std::map<std::string, std::string> defines) {
  return expandWgsl(WgslVariant{"", source, std::move(defines), "test_kernel"}, files);
}
std::string expanded(const std::string& source, std::map<std::string, std::string> defines = {}) {
  const auto r = expand(source, std::move(defines));
  return r.ok() ? r.value() : "error: " + r.status().message();
}

TEST(Wgsl, ReplacesNames) { EXPECT_EQ(expanded("a ${X} ${Y}${X}\n", {{"X", "1"}, {"Y", "two"}}), "a 1 two1\n"); }

TEST(Wgsl, Conditions) {
  const std::string source = "#if A\na\n#elif B == 2\nb\n#else\nc\n#endif\n";
  EXPECT_EQ(expanded(source, {{"A", "1"}, {"B", "0"}}), "a\n");
  EXPECT_EQ(expanded(source, {{"A", "0"}, {"B", "2"}}), "b\n");
  EXPECT_EQ(expanded(source, {{"A", "0"}, {"B", "3"}}), "c\n");
  EXPECT_EQ(expanded("#if !A && B != f16\nx\n#endif\n", {{"A", "false"}, {"B", "f32"}}), "x\n");
  EXPECT_EQ(expanded("#if A || B\nx\n#endif\n", {{"A", "0"}, {"B", "1"}}), "x\n");
  EXPECT_EQ(expanded("#if A\n#if B\nx\n#else\ny\n#endif\n#else\nz\n#endif\n", {{"A", "1"}, {"B", "0"}}), "y\n");
  EXPECT_EQ(expanded("#if A\n#if B\nx\n#endif\n#else\nz\n#endif\n", {{"A", "0"}, {"B", "1"}}), "z\n");
}

TEST(Wgsl, Order) {
  EXPECT_EQ(expanded("#if N <= 9\na\n#endif\n#if 10 <= N && N <= 10\nb\n#endif\n", {{"N", "10"}}), "b\n");
  EXPECT_NE(expanded("#if N <= M\n#endif\n", {{"N", "1"}}).find("compares no numbers"), std::string::npos);
}

TEST(Wgsl, Repetition) {
  EXPECT_EQ(expanded("#for i 0 N\na${i}\n#endfor\nb\n", {{"N", "3"}}), "a0\na1\na2\nb\n");
  EXPECT_EQ(expanded("#for i 1 3\n#for j 0 2\n${i}${j}\n#endfor\n#if i == 2\nx\n#endif\n#endfor\n"),
            "10\n11\n20\n21\nx\n");
  // left out: by a condition, or empty; names in it count as used
  EXPECT_EQ(expanded("#if A\n#for i 0 2\n${X}\n#endfor\n#endif\nb\n", {{"A", "0"}, {"X", "1"}}), "b\n");
  EXPECT_EQ(expanded("#for i 2 N\n#for j 0 2\n${X}\n#endfor\n#endfor\nb\n", {{"N", "2"}, {"X", "1"}}), "b\n");
  for (const char* source : {"#for i 0 2\n", "#endfor\n", "#for i 0\n#endfor\n", "#for i 0 n\n#endfor\n",
                             "#for i 0 2\n#for i 0 2\n#endfor\n#endfor\n"}) {
    EXPECT_FALSE(expand(source, {}).ok()) << source;
  }
}

TEST(Wgsl, UnknownAndUnusedNamesAreErrors) {
  EXPECT_NE(expanded("${X}\n").find("unknown name ${X}"), std::string::npos);
  EXPECT_NE(expanded("#if X\n#endif\n").find("unknown name \"X\""), std::string::npos);
  EXPECT_NE(expanded("#if X == 1\n#endif\n").find("neither side"), std::string::npos);
  EXPECT_NE(expanded("a\n", {{"X", "1"}}).find("X is defined but not used"), std::string::npos);
  EXPECT_NE(expanded("a\n", {{"X", "1"}}).find("test_kernel"), std::string::npos);
  // A name in a branch that is left out need not be defined, and counts as used.
  EXPECT_EQ(expanded("#if A\n${X}\n#endif\n", {{"A", "0"}}), "");
  EXPECT_EQ(expanded("#if A\n${X}\n#endif\n", {{"A", "0"}, {"X", "1"}}), "");
}

TEST(Wgsl, BrokenDirectivesAreErrors) {
  for (const char* source : {"#if A\n", "#endif\n", "#else\n", "#if A\n#else\n#else\n#endif\n", "#iff A\n",
                             "#include b\n", "#include \"none.wgsl\"\n", "${A\n"}) {
    EXPECT_FALSE(expand(source, {{"A", "1"}}).ok()) << source;
  }
}

TEST(Wgsl, IncludesOnceAndMovesDirectivesUp) {
  EXPECT_EQ(expandWgsl(WgslVariant{"a.wgsl", "", {{"A", "2"}}, "k"}, files).value(),
            "enable f16;\nlet b = 1;\nlet a = 2;\n");
  EXPECT_EQ(expandWgsl(WgslVariant{"loop.wgsl", "", {}, "k"}, files).value(), "let l = 1;\n");
  EXPECT_EQ(expandWgsl(WgslVariant{"none.wgsl", "", {}, "k"}, files).status().code(), Code::internal);
}

TEST(Wgsl, EmbeddedSourcesAreFound) {
  ASSERT_FALSE(wgslSources().empty());
  for (const WgslSource& s : wgslSources()) EXPECT_EQ(wgslSource(s.name).data(), s.text.data()) << s.name;
  EXPECT_TRUE(wgslSource("no/such.wgsl").empty());
}

}  // namespace
}  // namespace etwgpu
