#include "words.h"

#include <gtest/gtest.h>

namespace zeus::zeusd {
namespace {

using std::string_literals::operator""s;
using Words = std::vector<std::string>;

// Expected as POSIX.1-2017 2.2 has it; dash splits them so too.
TEST(Words, AreSplitAsAShellWould) {
  const std::pair<std::string, Words> cases[] = {
      {"a b\tc\nd", {"a", "b", "c", "d"}},
      {"  a  ", {"a"}},
      {"a'b c'd", {"ab cd"}},
      {R"('a\b"c')", {R"(a\b"c)"}},
      {R"("a b" "\$\`\"\\\n\x")", {"a b", R"($`"\\n\x)"}},
      {R"(a\ b \'c \\)", {"a b", "'c", "\\"}},
      {"'' a \"\"", {"", "a", ""}},
      {"a\\\nb \"c\\\nd\"", {"ab", "cd"}},
      {"a # b ' c\nd", {"a", "d"}},
      {"a#b '#' \\#c", {"a#b", "#", "#c"}},
      {"a|b;c & $D *?~ > {x}", {"a|b;c", "&", "$D", "*?~", ">", "{x}"}},
  };
  for (const auto& [text, words] : cases) {
    const auto split = split_command(text);
    ASSERT_TRUE(split) << text;
    EXPECT_EQ(*split, words) << text;
  }
}

TEST(Words, AreNotGuessed) {
  for (const std::string& text : {"'a"s, "a \"b"s, "a'"s, "\"a\\\""s, "a\\"s, "a\0b"s}) {
    const auto split = split_command(text);
    ASSERT_FALSE(split) << text;
    EXPECT_EQ(split.error().code, Errc::invalid);
    EXPECT_NE(split.error().detail.find("cannot be split"), std::string::npos);
  }
}

TEST(Words, AreAtLeastOne) {
  for (const char* text : {"", "  \t\n", "# only a comment"}) {
    EXPECT_NE(split_command(text).error().detail.find("zero tokens"), std::string::npos);
  }
}

}  // namespace
}  // namespace zeus::zeusd
