#include "sim/scenario.h"

#include <gtest/gtest.h>

#include "sim/session.h"
#include "support/tree.h"

namespace zeus::sim {
namespace {

constexpr const char* kGpu = R"(
[[gpu]]
power = { kind = "constant", watts = 100 }
)";

Result<Scenario> parse(const std::string& text) { return parse_scenario(text, "my.toml", "/"); }

std::string error_of(const std::string& text) {
  const Result<Scenario> s = parse(text);
  return s ? "no error" : s.error().detail;
}

TEST(Scenario, NamesAnUnknownKeyItsLineAndWhatIsKnown) {
  const std::string e =
      error_of("name = \"x\"\n[[gpu]]\nmodle = \"H100\"\npower = { watts = 1 }\n");
  EXPECT_NE(e.find("my.toml, line 3: unknown key `modle` in [[gpu]]; known are:"), e.npos) << e;
  EXPECT_NE(e.find("model"), e.npos) << e;
}

TEST(Scenario, NamesAnUnknownKeyOfASensor) {
  const std::string e = error_of(std::string(kGpu) + "power_usage = { windov = \"1s\" }");
  EXPECT_NE(e.find("unknown key `windov` in [[gpu]].power_usage"), e.npos) << e;
}

TEST(Scenario, SaysWhatAValueShouldHaveBeen) {
  EXPECT_NE(error_of("[[gpu]]\npower = { kind = \"cubic\" }").find("`kind` is \"constant\""),
            std::string::npos);
  EXPECT_NE(error_of(std::string(kGpu) + "energy = { update = \"1 week\" }").find("a duration"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(kGpu) + "energy = { update = 0 }").find("more than zero"),
            std::string::npos);
  EXPECT_NE(error_of("[[gpu]]\nmodel = \"x\"").find("give the true power"), std::string::npos);
  for (const char* text :
       {"[[gpu]\n", "[[[gpu]]]\n", "[[;", "[=]", "a.= 1", "\u00e4 = 1", "js\u03d1 = 1"}) {
    EXPECT_NE(error_of(text).find("line 1"), std::string::npos) << text;
  }
  EXPECT_NE(error_of(std::string(kGpu) + "limit = { min = 9, max = 3 }").find("min <= default"),
            std::string::npos);
}

TEST(Scenario, RefusesNumbersThatCannotBeReckonedWith) {
  const std::string levels = "[1e8, 1], [1e8, 1], [1e8, 1], [1e8, 1]";
  const std::pair<std::string, const char*> faults[] = {
      {"[[gpu]]\npower = { watts = 1e308 }", "1e15"},
      {"[[gpu]]\npower = { watts = 1e7 }", "a million watts"},
      {"[[gpu]]\npower = { watts = -1 }", "between 0 and"},
      {"[[gpu]]\npower = { kind = \"follow\", idle = -1, max = 2 }", "between 0 and"},
      {"[[gpu]]\npower = { kind = \"square\", high = 2, duty = -1e10 }", "`duty` lies"},
      {"[[gpu]]\npower = { kind = \"levels\", levels = [" + levels + "] }", "ten years"},
      {std::string(kGpu) + "energy = { jitter = \"9e18ns\" }", "ten years"},
      {std::string(kGpu) + "energy = { update = \"1ns\" }", "a microsecond"},
      {std::string(kGpu) + "energy = { quantum = 1e-12 }", "a billionth"},
      {std::string(kGpu) + "memory = \"1e300 GiB\"", "a size"},
      {"[[zone]]\npath = \"intel-rapl:0\"\nname = \"x\"\nmirror = \"intel-rapl:0\"", "above"}};
  for (const auto& [text, why] : faults) {
    EXPECT_NE(error_of(text).find(why), std::string::npos) << text << '\n' << error_of(text);
  }
}

TEST(Scenario, RefusesAFaultWithoutTargetOrEffect) {
  EXPECT_NE(error_of("[[fault]]\ncode = 15").find("name one of `gpu` and `zone`"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(kGpu) + "[[fault]]\ngpu = 0").find("say one thing"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(kGpu) + "[[fault]]\ngpu = 1\ncode = 15").find("index of a GPU"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(kGpu) + "[[fault]]\ngpu = 0\ncall = \"x\"\ncode = 1").find("`x`"),
            std::string::npos);
}

TEST(Scenario, MakesCopiesThatDifferWhereRealOnesDo) {
  const Result<Scenario> s = parse(R"(
[[gpu]]
count = 3
power = { kind = "constant", watts = 100 }
energy = { update = "100ms" }
)");
  ASSERT_TRUE(s) << s.error().detail;
  ASSERT_EQ(s->gpus.size(), 3U);
  EXPECT_NE(s->gpus[0].uuid, s->gpus[1].uuid);
  EXPECT_NE(s->gpus[0].pci, s->gpus[1].pci);
  EXPECT_NE(s->gpus[0].energy->comb.phase, s->gpus[1].energy->comb.phase);
  EXPECT_EQ(s->gpus[2].minor, 2U);
  EXPECT_EQ(s->gpus[2].uuid.size(), 40U);
}

TEST(Scenario, DrawsTheSameMachineFromTheSameSeed) {
  const Result<Scenario> a = parse(kGpu), b = parse(kGpu);
  const Result<Scenario> c = parse(std::string("seed = 2\n") + kGpu);
  ASSERT_TRUE(a && b && c);
  EXPECT_EQ(a->gpus[0].uuid, b->gpus[0].uuid);
  EXPECT_NE(a->gpus[0].uuid, c->gpus[0].uuid);
}

TEST(Scenario, ReadsATraceAsStepsThatHold) {
  test::Tree tree;
  tree.write("p.csv", "t, watts\n0,10\n500,20\n1500,40\n");
  tree.write("s.toml", R"(
[[gpu]]
power = { kind = "trace", file = "p.csv", time = "t", unit = "ms", column = "watts" }
)");
  const Result<Scenario> s = read_scenario(tree.root() / "s.toml");
  ASSERT_TRUE(s) << s.error().detail;
  // The last sample holds as long as the one before it.
  EXPECT_NEAR(s->gpus[0].power.steps.joules(0, 2'500'000'000), 5 + 20 + 40, 1e-9);

  const Result<std::string> text = portable_text(tree.root() / "s.toml");
  ASSERT_TRUE(text);
  const Result<Scenario> elsewhere = parse_scenario(*text, "copy", "/nowhere");
  ASSERT_TRUE(elsewhere) << elsewhere.error().detail;
  EXPECT_EQ(elsewhere->name, "s");
}

TEST(Scenario, SaysWhatIsWrongWithATrace) {
  test::Tree tree;
  tree.write("p.csv", "t,watts\n0,10\n0,20\n");
  tree.write("s.toml", "[[gpu]]\npower = { kind = \"trace\", file = \"p.csv\", time = \"t\" }\n");
  const Result<Scenario> s = read_scenario(tree.root() / "s.toml");
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().detail.find("names no columns `t` and `power`"), std::string::npos);
}

TEST(Scenario, OfEachBuiltInNameIsRead) {
  const std::vector<BuiltIn> all = list();
  std::vector<std::string> names;
  for (const BuiltIn& b : all) {
    names.push_back(b.name);
    const Result<Scenario> s = read_scenario(b.file);
    EXPECT_TRUE(s) << s.error().detail;
    EXPECT_FALSE(s && s->description.empty()) << b.name;
  }
  const std::vector<std::string> expected = {"a100x4",       "constant", "driven", "epyc",
                                             "grace-hopper", "h100x8",   "laptop", "no-counter",
                                             "rtx3090",      "square",   "xeon-2s"};
  EXPECT_EQ(names, expected);
}

}  // namespace
}  // namespace zeus::sim
