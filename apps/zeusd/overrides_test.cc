#include "overrides.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/tree.h"

namespace zeus::zeusd {
namespace {

constexpr const char* kAll = R"(
[reset_locked_clocks]
commands = ["/bin/true"]
[set_power_limit]
commands = ["/bin/echo {gpu_id} {power_limit_mw} {power_limit_w}", "/bin/true {gpu_uuid} {gpu_pci}"]
error_pattern = "(?i)not supported|failed"
timeout_s = 5
[set_persistence_mode]
commands = ["/bin/echo {enabled}"]
[set_gpu_locked_clocks]
commands = ["/bin/echo {gpu_id} {min_clock_mhz},{max_clock_mhz}"]
[reset_gpu_locked_clocks]
commands = ["/bin/echo"]
[set_mem_locked_clocks]
commands = ["/bin/echo {min_clock_mhz}{max_clock_mhz}"]
[reset_mem_locked_clocks]
commands = ["/bin/echo"]
)";

std::string refusal(std::string_view toml) {
  const auto overrides = Overrides::parse(toml, "x.toml");
  if (overrides) return "";
  EXPECT_EQ(overrides.error().code, Errc::invalid);
  EXPECT_EQ(overrides.error().detail.rfind("cannot use the overrides x.toml: ", 0), 0u);
  return overrides.error().detail;
}
/// Of a power limit with this one command.
std::string refusal_of(const std::string& command) {
  return refusal("[set_power_limit]\ncommands = ['''" + command + "''']");
}
bool holds(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Overrides, TakeTheSevenOperationsAndAllKeys) {
  const auto overrides = Overrides::parse(kAll, "x.toml");
  ASSERT_TRUE(overrides) << overrides.error().detail;
  EXPECT_FALSE(overrides->empty());
  std::vector<std::string_view> names;
  for (const Operation o : overrides->operations()) names.push_back(to_string(o));
  EXPECT_EQ(names, (std::vector<std::string_view>{
                       "set_persistence_mode", "set_power_limit", "set_gpu_locked_clocks",
                       "reset_gpu_locked_clocks", "set_mem_locked_clocks",
                       "reset_mem_locked_clocks", "reset_locked_clocks"}));
  EXPECT_EQ(overrides->timeout(Operation::set_power_limit).count(), 5);
  EXPECT_EQ(overrides->timeout(Operation::set_persistence_mode).count(), 60);
}

TEST(Overrides, OfAnEmptyFileAreNone) {
  const auto overrides = Overrides::parse("# nothing\n", "x.toml");
  ASSERT_TRUE(overrides);
  EXPECT_TRUE(overrides->empty());
  EXPECT_FALSE(overrides->has(Operation::set_power_limit));
  EXPECT_TRUE(Overrides().empty());
}

TEST(Overrides, KnowEveryWord) {
  EXPECT_TRUE(holds(refusal("[set_fan]\ncommands=['/x']"), "unknown field `set_fan`"));
  EXPECT_TRUE(holds(refusal("timeout_s = 1"), "unknown field `timeout_s`"));
  EXPECT_TRUE(holds(refusal("[set_power_limit]\ncommands=['/x']\nshell=true"),
                    "set_power_limit: unknown field `shell`"));
  EXPECT_TRUE(holds(refusal("set_power_limit = '/x'"), "set_power_limit: it must be a table"));
  EXPECT_TRUE(holds(refusal("[set_power_limit"), "line 1: "));
  EXPECT_TRUE(holds(refusal("[set_power_limit]\ncommands=['/x']\n[set_power_limit]"), "line 3: "));
}

TEST(Overrides, NeedCommands) {
  EXPECT_TRUE(holds(refusal("[set_power_limit]"), "missing field `commands`"));
  for (const char* value : {"[]", "'/x'", "1", "[1]", "['/x', 1]", "[['/x']]"}) {
    EXPECT_TRUE(holds(refusal("[set_power_limit]\ncommands=" + std::string(value)),
                      "set_power_limit: `commands` must be a list"))
        << value;
  }
  EXPECT_TRUE(holds(refusal_of("/x 'y"), "set_power_limit: the command \"/x 'y\" cannot be split"));
  EXPECT_TRUE(holds(refusal_of(""), "zero tokens"));
}

TEST(Overrides, RunProgramsByTheirWholePath) {
  for (const char* command :
       {"nvidia-smi -pl 1", "./x", "bin/x", "'' /x", "{gpu_id}", "/x{gpu_id}", "/opt/{gpu_id}/x"}) {
    EXPECT_TRUE(holds(refusal_of(command), "must be an absolute path")) << command;
  }
  EXPECT_EQ(refusal_of("'/opt/with blank/x' y"), "");
}

TEST(Overrides, KnowTheirPlaceholders) {
  EXPECT_EQ(refusal_of("/x {gpu_id}{gpu_id}:{power_limit_w}W--{gpu_uuid}"), "");
  for (const char* word : {"{gpu}", "{}", "{GPU_ID}", "{enabled}", "{min_clock_mhz}"}) {
    const std::string text = refusal_of("/x a" + std::string(word) + "b");
    EXPECT_TRUE(holds(text, "set_power_limit: there is no placeholder " + std::string(word)));
    EXPECT_TRUE(holds(text, "in the word \"a" + std::string(word) + "b\"")) << text;
  }
  EXPECT_TRUE(holds(refusal("[reset_locked_clocks]\ncommands=['/x {power_limit_mw}']"),
                    "reset_locked_clocks: there is no placeholder"));
}

TEST(Overrides, HaveNoOtherUseForBraces) {
  for (const char* word : {"{", "}", "{gpu_id", "gpu_id}", "{{gpu_id}}", "{gpu_id}}", "a}b{c",
                           "{gpu_id}{", "{gpu_{id}}"}) {
    const std::string text = refusal_of("/x " + std::string(word));
    EXPECT_TRUE(holds(text, "set_power_limit: ") && holds(text, word)) << text;
  }
}

TEST(Overrides, NeedAPatternThatCanBeSearched) {
  const auto with = [](const char* pattern) {
    return refusal("[set_power_limit]\ncommands=['/x']\nerror_pattern=" + std::string(pattern));
  };
  EXPECT_EQ(with("'(?i)error|^fail(ed)?'"), "");
  for (const char* pattern :
       {"'('", "'['", "'a**'", "'(?=look)'", R"('(a)\1')", "'\\p{Nothing}'"}) {
    EXPECT_TRUE(holds(with(pattern), "set_power_limit: `error_pattern` is no regular expression"))
        << pattern;
  }
  EXPECT_TRUE(holds(with("1"), "`error_pattern` must be a text"));
  for (const char* pattern : {"''", "'x*'", "'^$'"}) {
    EXPECT_TRUE(holds(with(pattern), "finds an error in an output that is empty")) << pattern;
  }
}

TEST(Overrides, NeedATimeThatEnds) {
  const auto with = [](const char* timeout) {
    return refusal("[set_power_limit]\ncommands=['/x']\ntimeout_s=" + std::string(timeout));
  };
  EXPECT_EQ(with("1"), "");
  EXPECT_EQ(with("86400"), "");
  for (const char* t : {"0", "-1", "1.5", "'1'", "86401", "9223372036854775807", "inf", "true"}) {
    EXPECT_TRUE(holds(with(t), "`timeout_s` must be")) << t;
  }
}

struct OverridesFile : testing::Test {
  OverridesFile() {
    tree.write("run", "#!/bin/sh\n");
    chmod("run", 0755);
    write(at("run"));
    chmod("x.toml", 0644);
  }
  std::string at(const char* name) const { return (tree.root() / name).string(); }
  void chmod(const char* name, unsigned mode) const {
    ASSERT_EQ(::chmod(at(name).c_str(), mode), 0);
  }
  void write(const std::string& command) {
    tree.write("x.toml", "[set_power_limit]\ncommands = ['" + command + "']\n");
  }
  std::string refusal() const {
    const auto overrides = Overrides::load(at("x.toml"));
    return overrides ? "" : overrides.error().detail;
  }
  test::Tree tree;
};

TEST_F(OverridesFile, IsReadIfNobodyElseCanWriteIt) {
  const auto overrides = Overrides::load(at("x.toml"));
  ASSERT_TRUE(overrides) << overrides.error().detail;
  EXPECT_TRUE(overrides->has(Operation::set_power_limit));
  EXPECT_TRUE(overrides->warnings().empty());
  chmod("x.toml", 0666);
  EXPECT_EQ(refusal(), "cannot trust " + at("x.toml") + ": everybody may write " + at("x.toml") +
                           "; chmod o-w " + at("x.toml"));
}

TEST_F(OverridesFile, IsReadWithAWarningIfAGroupCanWriteIt) {
  chmod("x.toml", 0664);
  if (::geteuid() == 0) {  // Root's own group is as root.
    ASSERT_EQ(::chown(at("x.toml").c_str(), 0, 7), 0);
  }
  const auto overrides = Overrides::load(at("x.toml"));
  ASSERT_TRUE(overrides) << overrides.error().detail;
  ASSERT_EQ(overrides->warnings().size(), 1u);
  EXPECT_TRUE(holds(overrides->warnings()[0], at("x.toml") + ", which a group may write"));
}

TEST_F(OverridesFile, IsRefusedIfSomebodyElseCanWriteWhatItRuns) {
  chmod("run", 0757);
  EXPECT_TRUE(holds(refusal(), "everybody may write " + at("run")));
  chmod("run", 0644);
  EXPECT_TRUE(holds(refusal(), "not executable"));
  chmod("run", 0755);
  EXPECT_EQ(refusal(), "");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(at("run").c_str(), 1234, 0), 0);
    EXPECT_TRUE(holds(refusal(), at("run") + " belongs to user 1234"));
  }
  write(at("none"));
  EXPECT_TRUE(holds(refusal(), at("none")));
}

TEST_F(OverridesFile, IsRefusedIfItIsEndless) {
  tree.write("x.toml", std::string((1U << 20) + 1, '#'));
  EXPECT_TRUE(holds(refusal(), "it is longer than 1048576 bytes"));
}

}  // namespace
}  // namespace zeus::zeusd
