#include "net/event_stream.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "net/power_event.h"

namespace zeus::net {
namespace {

struct Seen {
  std::vector<std::string> events;
  std::uint64_t comments = 0, skipped = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

/// Fed in pieces that `length` draws.
template <class F>
Seen fed(std::string_view text, F&& length) {
  EventStream stream;
  Seen seen;
  while (!text.empty()) {
    const std::size_t n = std::min<std::size_t>(length(), text.size());
    stream.feed(text.substr(0, n), [&](const EventStream::Event& e) {
      seen.events.push_back(std::string(e.type) + '|' + std::string(e.data));
    });
    text.remove_prefix(n);
  }
  seen.comments = stream.comments();
  seen.skipped = stream.skipped();
  return seen;
}
Seen whole(std::string_view text) {
  return fed(text, [&] { return text.size(); });
}

TEST(EventStream, GivesTheDataOfEachEvent) {
  EXPECT_EQ(whole("data: a\n\ndata: b\n\n").events, (std::vector<std::string>{"|a", "|b"}));
  EXPECT_EQ(whole("data:a\n\ndata:  b\n\n").events, (std::vector<std::string>{"|a", "| b"}));
  EXPECT_EQ(whole("data: a\ndata\ndata: c\n\n").events, (std::vector<std::string>{"|a\n\nc"}));
  EXPECT_EQ(whole("event: error\ndata: x\nid: 7\nretry: 9\nother: y\n\n").events,
            (std::vector<std::string>{"error|x"}));
}

TEST(EventStream, EndsLinesWithLfCrOrBoth) {
  for (const char* text : {"data: a\n\ndata: b\n\n", "data: a\r\n\r\ndata: b\r\n\r\n",
                           "data: a\r\rdata: b\r\r", "data: a\n\r\ndata: b\r\r\n"}) {
    EXPECT_EQ(whole(text).events, (std::vector<std::string>{"|a", "|b"}));
  }
}

TEST(EventStream, GivesNoEventWithoutData) {
  EXPECT_TRUE(whole("\n\n\nevent: x\n\n").events.empty());
  EXPECT_TRUE(whole("data: not ended").events.empty());
  EXPECT_TRUE(whole("data: not ended\n").events.empty());
  EXPECT_EQ(whole("event: x\n\ndata: a\n\n").events, (std::vector<std::string>{"|a"}));
}

TEST(EventStream, CountsCommentsAsSignsOfLife) {
  const Seen seen = whole(": alive\n\n:\n\ndata: a\n:in between\n\n");
  EXPECT_EQ(seen.comments, 3u);
  EXPECT_EQ(seen.events, (std::vector<std::string>{"|a"}));
  EXPECT_EQ(whole(':' + std::string(200'000, 'x') + "\n\ndata: a\n\n"), (Seen{{"|a"}, 1, 0}));
}

TEST(EventStream, SkipsAndCountsAnEventThatIsTooLong) {
  const std::string most(EventStream::kMost - 6, 'x');
  EXPECT_EQ(whole("data: " + most + "\n\n").events, (std::vector<std::string>{"|" + most}));
  const Seen seen = whole("data: " + most + "y\n\ndata: a\n\n");
  EXPECT_EQ(seen, (Seen{{"|a"}, 0, 1}));
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "data: " + std::string(1000, 'z') + '\n';
  EXPECT_EQ(whole(lines + "\ndata: a\n\n"), (Seen{{"|a"}, 0, 1}));
}

TEST(EventStream, PassesOverAByteOrderMarkAtTheBeginningOnly) {
  EXPECT_EQ(whole("\xef\xbb\xbf"
                  "data: a\n\n\xef\xbb\xbf"
                  "data: b\n\n")
                .events,
            (std::vector<std::string>{"|a"}));
}

TEST(EventStream, IsTheSameHoweverItsBytesAreSplit) {
  static constexpr std::string_view kPieces[] = {
      "data: ", "data:", "data", ":", ": c", "event: e",     "\n",    "\r",
      "\r\n",   "\n\n",  "x",    " ", "{}",  "\xef\xbb\xbf", "id: 1", "\n\ndata: y\n\n"};
  std::mt19937_64 random(7);
  for (int turn = 0; turn < 2000; ++turn) {
    std::string text;
    for (std::size_t n = random() % 30; n > 0; --n) text += kPieces[random() % std::size(kPieces)];
    const Seen expected = whole(text);
    EXPECT_EQ(fed(text, [] { return std::size_t{1}; }), expected) << text;
    EXPECT_EQ(fed(text, [&] { return 1 + random() % 7; }), expected) << text;
  }
}

TEST(PowerEvent, IsReadAsTheSpecificationWritesIt) {
  const auto gpu =
      parse_power_event(R"({"timestamp_ms":1762000000000,"gpu_id":3,"power_mw":75000})");
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->timestamp_ms, 1'762'000'000'000u);
  EXPECT_EQ(gpu->id, 3);
  EXPECT_EQ(gpu->power_mw, 75'000u);
  EXPECT_FALSE(gpu->dram_mw);
  const auto cpu = parse_power_event(
      R"( { "timestamp_ms" : 1, "x":[{"a":"]}\""},2], "cpu_id":0,"cpu_mw":85000,"dram_mw":12000 } )");
  ASSERT_TRUE(cpu);
  EXPECT_EQ(cpu->dram_mw, 12'000u);
  EXPECT_FALSE(
      parse_power_event(R"({"timestamp_ms":1,"cpu_id":0,"cpu_mw":1,"dram_mw":null})")->dram_mw);
}

// field failure 166: a bad event is no end of the stream.
TEST(PowerEvent, IsNothingWhereItIsNotWhole) {
  for (const char* text :
       {"", "{}", "null", "[]", R"({"gpu_id":null})", R"({"timestamp_ms":1,"gpu_id":0})",
        R"({"timestamp_ms":1,"gpu_id":0,"power_mw":-5})",
        R"({"timestamp_ms":1,"gpu_id":0,"power_mw":1.5})",
        R"({"timestamp_ms":1,"gpu_id":0,"power_mw":"1"})",
        R"({"timestamp_ms":1,"gpu_id":65536,"power_mw":1})",
        R"({"timestamp_ms":18446744073709551616,"gpu_id":0,"power_mw":1})",
        R"({"timestamp_ms":1,"gpu_id":0,"power_mw":1)",
        R"({"timestamp_ms":1,"gpu_id":0,"power_mw":1}x)",
        R"({"timestamp_ms":1 "gpu_id":0,"power_mw":1})"}) {
    EXPECT_FALSE(parse_power_event(text)) << text;
  }
}

}  // namespace
}  // namespace zeus::net
