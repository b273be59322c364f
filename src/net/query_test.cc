#include "net/query.h"

#include <gtest/gtest.h>

namespace zeus::net {
namespace {

using Ids = std::vector<unsigned>;

/// The arguments of /gpu/set_power_limit, in upstream's order.
struct PowerLimit {
  explicit PowerLimit(std::string_view raw) {
    Query query(raw);
    gpu_ids = query.text("gpu_ids");
    power_limit_mw = query.number("power_limit_mw");
    block = query.flag("block");
    fault = query.fault();
  }
  std::string gpu_ids, fault;
  std::uint32_t power_limit_mw = 0;
  bool block = false;
};

std::string fault_of(std::string_view raw) { return PowerLimit(raw).fault; }
bool holds(const std::string& text, std::string_view part) {
  return text.rfind("Query deserialize error: ", 0) == 0 && text.find(part) != std::string::npos;
}

TEST(Query, GivesWhatWasAsked) {
  const PowerLimit p("gpu_ids=0,1&power_limit_mw=200000&block=true");
  EXPECT_EQ(p.fault, "");
  EXPECT_EQ(p.gpu_ids, "0,1");
  EXPECT_EQ(p.power_limit_mw, 200'000u);
  EXPECT_TRUE(p.block);
}

TEST(Query, DecodesKeysAndValues) {
  const PowerLimit p("&&block=fals%65&pow%65r_limit_mw=%2B007&gpu_ids=0%2C+1%3d%26");
  EXPECT_EQ(p.fault, "");
  EXPECT_EQ(p.gpu_ids, "0, 1=&");
  EXPECT_EQ(p.power_limit_mw, 7u);
  EXPECT_FALSE(p.block);
  Query query("name=caf%C3%A9%0A&empty&also=");
  EXPECT_EQ(query.text("name"), "café\n");
  EXPECT_EQ(query.text_if("empty"), "");
  EXPECT_EQ(query.text_if("also"), "");
  EXPECT_EQ(query.fault(), "");
}

TEST(Query, LeavesOptionalKeysOut) {
  Query query("");
  EXPECT_EQ(query.flag_if("a"), std::nullopt);
  EXPECT_EQ(query.number_if("b"), std::nullopt);
  EXPECT_EQ(query.text_if("c"), std::nullopt);
  EXPECT_EQ(query.fault(), "");
  EXPECT_EQ(Query("").fault(), "");
}

// The texts are those of the released daemon.
TEST(Query, NamesTheKeyThatNobodyAskedFor) {
  EXPECT_EQ(fault_of("foo=1&power_limit_mw=-1"),
            "Query deserialize error: unknown field `foo`, expected one of `gpu_ids`, "
            "`power_limit_mw`, `block`");
  Query one("gpus=0");
  (void)one.text_if("gpu_ids");
  EXPECT_EQ(one.fault(), "Query deserialize error: unknown field `gpus`, expected `gpu_ids`");
  Query two("=0");
  (void)two.flag_if("cpu");
  (void)two.flag_if("dram");
  EXPECT_EQ(two.fault(), "Query deserialize error: unknown field ``, expected `cpu` or `dram`");
  EXPECT_EQ(Query("x").fault(), "Query deserialize error: unknown field `x`, there are no fields");
}

TEST(Query, NamesTheKeyThatIsThereTwice) {
  EXPECT_EQ(fault_of("power_limit_mw=1&power_limit_mw=x&foo=1"),
            "Query deserialize error: duplicate field `power_limit_mw`");
  EXPECT_EQ(fault_of("block=true&gpu_ids=0&power_limit_mw=1&%62lock=true"),
            "Query deserialize error: duplicate field `block`");
}

TEST(Query, NamesTheFirstKeyThatIsMissing) {
  EXPECT_EQ(fault_of("gpu_ids=0"), "Query deserialize error: missing field `power_limit_mw`");
  EXPECT_EQ(fault_of(""), "Query deserialize error: missing field `gpu_ids`");
}

TEST(Query, TakesTrueAndFalseOnly) {
  for (const char* value : {"1", "0", "TRUE", "True", "", "yes", "true+", "t", "falsee"}) {
    const std::string text = fault_of("gpu_ids=0&power_limit_mw=1&block=" + std::string(value));
    EXPECT_TRUE(holds(text, "not `true` or `false`")) << text;
  }
}

TEST(Query, TakesDecimalNumbersOf32Bits) {
  EXPECT_EQ(PowerLimit("gpu_ids=0&power_limit_mw=4294967295&block=true").power_limit_mw,
            4'294'967'295u);
  for (const char* value : {"-1", "abc", "", "4294967296", "99999999999999999999", "1.5", "1e3",
                            "0x10", "+5", "5+", "%2B", "%2B%2B5", "%2B-5", "1_000"}) {
    const PowerLimit p("power_limit_mw=" + std::string(value) + "&gpu_ids=0&block=true");
    EXPECT_TRUE(holds(p.fault, "invalid")) << value << ": " << p.fault;
    EXPECT_EQ(p.power_limit_mw, 0u);
  }
}

TEST(Query, TellsTheFaultThatStandsFirst) {
  EXPECT_TRUE(holds(fault_of("power_limit_mw=x&block=1"), "`power_limit_mw`"));
  EXPECT_TRUE(holds(fault_of("block=1&power_limit_mw=x"), "`block`"));
  EXPECT_TRUE(holds(fault_of("power_limit_mw=-1&foo=1"), "invalid"));
  EXPECT_TRUE(holds(fault_of("block=true&foo=1"), "unknown field"));
  EXPECT_TRUE(holds(fault_of("%ff=1&foo=1"), "invalid"));
  EXPECT_TRUE(holds(fault_of("foo=1&gpu_ids=%ff"), "unknown field"));
}

TEST(Query, IsAtFaultWhereItIsNoText) {
  for (const char* part : {"gpu_ids=%", "gpu_ids=%4", "gpu_ids=0%ZZ", "gpu_ids=%ff", "gpu_ids=%c3",
                           "gpu_ids=%00", "%00=1", "gpu_id%=1", "%ed%a0%80=1", "gpu_ids=\xff"}) {
    const std::string text = fault_of(std::string(part) + "&power_limit_mw=1&block=true");
    EXPECT_TRUE(holds(text, "invalid")) << part << ": " << text;
  }
}

TEST(Query, EchoesLittleAndNothingThatSteersATerminal) {
  const std::string text = fault_of("%1b]0;x%07%0a" + std::string(5000, 'k') + "=1");
  EXPECT_TRUE(holds(text, "unknown field `?]0;x??kkk")) << text;
  EXPECT_LT(text.size(), 250u);
  for (const char c : text) EXPECT_GE(c, ' ');
}

TEST(Query, LooksAtSoManyArgumentsAndNoMore) {
  std::string raw;
  for (int i = 0; i < 64; ++i) raw += "k" + std::to_string(i) + "=1&";
  Query all(raw), more(raw + "k64=1");
  for (int i = 0; i < 65; ++i) {
    (void)all.number_if("k" + std::to_string(i));
    (void)more.number_if("k" + std::to_string(i));
  }
  EXPECT_EQ(all.fault(), "");
  EXPECT_TRUE(holds(more.fault(), "invalid query: more than 64 arguments"));
}

TEST(Ids, AreSortedAndEachIsThereOnce) {
  EXPECT_EQ(*parse_ids("0, 2,0"), (Ids{0, 2}));
  EXPECT_EQ(*parse_ids(" 10 ,\t9,007"), (Ids{7, 9, 10}));
  EXPECT_EQ(*parse_ids("4294967295"), (Ids{4'294'967'295u}));
}

TEST(Ids, AreRefusedWithASentence) {
  for (const char* list :
       {"", " ", "0,,1", ",", "0,", ",0", "0x1", "-1", "a", "1 2", "1.0", "4294967296", "0;1"}) {
    const auto ids = parse_ids(list);
    ASSERT_FALSE(ids) << list;
    EXPECT_EQ(ids.error().code, Errc::invalid);
    EXPECT_FALSE(ids.error().detail.empty());
  }
  EXPECT_EQ(parse_ids("0,\x1bx").error().detail, "\"?x\" is no device index");
}

}  // namespace
}  // namespace zeus::net
