#include "net/path.h"

#include <gtest/gtest.h>

#include "net/percent.h"

namespace zeus::net {
namespace {

using std::string_literals::operator""s;

TEST(Path, IsDecodedBeforeAnybodyJudgesIt) {
  EXPECT_EQ(decode_path("/gpu/get_power"), "/gpu/get_power");
  // What upstream's daemon routes as control and authorises as reading, or not at all.
  EXPECT_EQ(decode_path("/gpu/%73et_power_limit"), "/gpu/set_power_limit");
  EXPECT_EQ(decode_path("/%67pu/set_power_limit"), "/gpu/set_power_limit");
  EXPECT_EQ(decode_path("/%67%70%75%2fset_power_limit"), "/gpu/set_power_limit");
  EXPECT_EQ(decode_path("/%C3%A9"), "/é");
}

TEST(Path, IsDecodedOnce) {
  EXPECT_EQ(decode_path("/gpu/%2573et_power_limit"), "/gpu/%73et_power_limit");
  EXPECT_EQ(decode_path("/%252e%252e/"), "/%2e%2e/");
}

TEST(Path, KeepsWhatMakesItAnother) {
  EXPECT_EQ(decode_path("/"), "/");
  EXPECT_EQ(decode_path("/discover/"), "/discover/");
  EXPECT_EQ(decode_path("/GPU/get_power"), "/GPU/get_power");
  EXPECT_EQ(decode_path("/gpu/+"), "/gpu/+");  // A plus is a space in a query only.
  EXPECT_EQ(decode_path("/..."), "/...");
  EXPECT_EQ(decode_path("/.well-known/x..y"), "/.well-known/x..y");
}

TEST(Path, IsRefusedWithAMalformedEscape) {
  for (const char* raw : {"/%", "/%7", "/%7g", "/%g7", "/%%73", "/% 3", "/%+3", "/a%"}) {
    EXPECT_EQ(decode_path(raw), std::nullopt) << raw;
  }
}

TEST(Path, IsRefusedWithWhatIsNoText) {
  for (const auto& raw : {"/%00"s, "/gpu%00/get_power"s, "/\0x"s, "/%0a"s, "/%1b[0m"s, "/%7f"s,
                          "/%c2%85"s, "/%ff"s, "/%c3"s, "/%c0%af"s, "/%e0%80%af"s, "/%ed%a0%80"s,
                          "/%f4%90%80%80"s, "/%f0%80%80%af"s, "/\xff"s}) {
    EXPECT_EQ(decode_path(raw), std::nullopt) << raw;
  }
}

TEST(Path, IsRefusedWhereAFileSystemWouldWalk) {
  for (const char* raw :
       {"//gpu/set_power_limit", "/gpu//set_power_limit", "/gpu%2f/set_power_limit", "//", "/x//",
        "/.", "/..", "/./", "/../", "/discover/../gpu/set_power_limit",
        "/discover/%2e%2E/gpu/set_power_limit", "/gpu/./get_power", "/gpu/.%2fget_power", "/gpu/..",
        "/gpu%5cset_power_limit", "/gpu\\set_power_limit"}) {
    EXPECT_EQ(decode_path(raw), std::nullopt) << raw;
  }
}

TEST(Path, IsRefusedWhereSomethingElseWouldBegin) {
  for (const char* raw : {"", "*", "gpu/get_power", "http://host/gpu/get_power", "%2fdiscover",
                          "/discover%3f", "/discover?", "/discover%23x", "/discover#"}) {
    EXPECT_EQ(decode_path(raw), std::nullopt) << raw;
  }
}

TEST(Utf8, IsWhatTable3And7OfUnicodeSays) {
  EXPECT_EQ(utf8_length("a"), 1u);
  EXPECT_EQ(utf8_length("\u00e9x"), 2u);
  EXPECT_EQ(utf8_length("\ud7ff"), 3u);
  EXPECT_EQ(utf8_length("\U0010ffff"), 4u);
  for (const char* wrong : {"", "\x80", "\xc1\xbf", "\xc3", "\xc3(", "\xe0\x9f\xbf", "\xed\xa0\x80",
                            "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_EQ(utf8_length(wrong), 0u) << wrong;
  }
  EXPECT_EQ(to_utf8("a\xff\u00e9\xe2\x82"), "a\uFFFD\u00e9\uFFFD\uFFFD");
}

TEST(Shown, IsShortAndPrintable) {
  EXPECT_EQ(shown("gpus"), "gpus");
  EXPECT_EQ(shown("a\nb\x1b[0m\xff\0c"s), "a?b?[0m??c");
  EXPECT_EQ(shown(std::string(65, 'x')), std::string(64, 'x') + "...");
  EXPECT_EQ(shown("\u00e9\u00e9", 3), "\u00e9...");  // Never half a character.
}

}  // namespace
}  // namespace zeus::net
