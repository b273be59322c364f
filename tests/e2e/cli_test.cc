// The command line as its users see it: the real binary in a process of its own.

#include "e2e/cli.h"

#include <gtest/gtest.h>

namespace zeus::test {
namespace {

TEST(CommandLine, ReturnsTheStatusOfTheCommand) {
  EXPECT_EQ(zeus({"run", "--", "true"}).status, 0);
  EXPECT_EQ(zeus({"run", "--", "false"}).status, 1);
  EXPECT_EQ(zeus({"run", "--", "sh", "-c", "exit 42"}).status, 42);
  EXPECT_EQ(zeus({"run", "--", "sh", "-c", "kill -9 $$"}).status, 137);
  EXPECT_EQ(zeus({"run", "--", "sh", "-c", "kill -TERM $$"}).status, 143);
}

TEST(CommandLine, TellsAnUnknownCommandFromOneThatCannotRun) {
  const auto unknown = zeus({"run", "--", "no-such-command"});
  const auto data = zeus({"run", "--", "/etc/passwd"});

  EXPECT_EQ(unknown.status, 127);
  EXPECT_TRUE(one_sentence(unknown.err)) << unknown.err;
  EXPECT_EQ(data.status, 126);
  EXPECT_TRUE(one_sentence(data.err)) << data.err;
}

TEST(CommandLine, AnswersEveryMisuseWithOneSentenceAndStatusTwo) {
  const std::vector<Words> misuses = {
      {"nonsense"},
      {"run"},
      {"run", "--"},
      {"run", "true"},
      {"run", "--no-such-flag", "--", "true"},
      {"run", "--period", "5 apples", "--", "true"},
      {"run", "--period", "0", "--", "true"},
      {"run", "-r", "0", "--", "true"},
      {"run", "-r", "x", "--", "true"},
      {"run", "-r", "-1", "--", "true"},
      {"run", "-r", "99999999999999", "--", "true"},
      {"run", "--period", "--", "true"},
      {"run", "-I", "abc", "--", "true"},
      {"run", "-o", "", "--", "true"},
      {"run", "-o"},
      {"run", "--json=3", "--", "true"},
      {"run", "--gpus", "0\n1", "--", "true"},
      {"run", "--gpus", "0", "--gpus", "1", "--", "true"},
      {"run", "--gpus", "0", "--no-gpu", "--", "true"},
      {"run", "--timeline", "power.txt", "--", "true"},
      {"run", "--json", "-I", "100", "--", "true"},
      {"bench"},
      {"bench", ""},
      {"bench", "--", "true"},
      {"bench", "-r", "0", "true"},
      {"bench", "-r", "2", "--fail-if", "time > 1.1x", "true", "true"},
      {"bench", "--fail-if", "time > 1.1x", "true"},
      {"bench", "--fail-if", "faster", "true", "true"},
      {"bench", "--no-worse-than", "1.05 W", "true", "true"},
      {"bench", "--order", "alphabetical", "true"},
      {"bench", "--cool-to", "cold", "true"},
      {"bench", "--reference", "3", "true", "true"},
      {"bench", "--reference", "0", "true", "true"},
      {"bench", "--name", "a", "--name", "b", "true"},
      {"bench", "--phase", "--no-phase", "true"},
      {"bench", "--shell", "none", "echo 'open"},
      {"bench", "--export-csv", "/nonexistent/b.csv", "true"},
      {"bench", "--no-gpu", "--no-cpu", "--fail-if", "energy > 1.05x", "true", "true"},
      {"--host", "sim:constant", "bench", "--gpus", "7", "true"},
      {"--host", "nowhere", "env"},
      {"--host", "", "env"},
      {"--host", "sim:", "env"},
      {"--host", "sim:a\nb\x1b[2J", "env"},
      {"--host", "sim:/nonexistent.toml", "env"},
      {"--host", "sim:no-such-scenario", "run", "--", "true"},
      {"env", "--require", "gpu,flux"},
      {"env", "extra"},
      {"env", "--", "true"},
      {"monitor"},
      {"monitor", "heat"},
      {"monitor", "energy", "--gpu-indices", "-1"},
      {"monitor", "power", "--power-domain", "psychic"},
      {"--host", "sim:square", "monitor", "power", "--power-domain", "psychic"},
      {"--host", "replay:/nonexistent.zeus", "env"},
      {"--host", "replay:/etc/passwd", "env"},
      {"record"},
      {"record", "true"},
      {"record", "--duration", "1s", "--", "true"},
      {"record", "--duration", "1s", "-r", "2"},
      {"record", "-o", "/nonexistent/a.zeus", "--", "true"},
      {"verify"},
      {"verify", "/nonexistent.zeus"},
      {"verify", "/etc/passwd"},
      {"verify", "a.zeus", "--", "true"},
      {"sim", "run", "no-such-scenario", "--", "true"},
      {"sim", "run", "square"},
      {"sim", "truth"},
      {"sim", "truth", "/nonexistent"},
      {"restore", "--journal", "/nonexistent"},
      {"serve-proxy"},
      {"serve-proxy", "--upstream", "http://127.0.0.1:1", "--python", "/nonexistent/python"}};
  for (const Words& words : misuses) {
    const auto r = zeus(words);
    std::string all;
    for (const auto& w : words) all += w + ' ';
    EXPECT_EQ(r.status, 2) << all << r.err;
    EXPECT_TRUE(one_sentence(r.err)) << all << r.err;
    EXPECT_EQ(r.out, "") << all;
  }
}

TEST(CommandLine, AMisuseNamesTheOptionAndTheValue) {
  const std::vector<std::pair<Words, std::string>> misuses = {
      {{"run", "--no-such-flag", "--", "true"}, "\"--no-such-flag\""},
      {{"run", "-r", "-1", "--", "true"}, "--repeat: \"-1\""},
      {{"run", "-I", "abc", "--", "true"}, "--interval: \"abc\""},
      {{"run", "-o"}, "--output needs a value"},
      {{"run", "--json=3", "--", "true"}, "--json takes no value"},
      {{"run", "--gpus", "0", "--gpus", "1", "--", "true"}, "--gpus is given more than once"},
      {{"runn"}, "verbs are env, run, bench, monitor"},
      {{"monitor"}, "one of energy, power"}};
  for (const auto& [words, part] : misuses) {
    const std::string err = zeus(words).err;
    EXPECT_NE(err.find(part), std::string::npos) << part << " is not in: " << err;
  }
}

TEST(CommandLine, AloneShowsItsHelpAsAMisuse) {
  const auto r = zeus({});

  EXPECT_EQ(r.status, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err, zeus({"--help"}).out);
}

TEST(CommandLine, AGpuThatIsNotThereIsNamedWithThoseThatAre) {
  const auto r = zeus({"--host", "sim:a100x4", "run", "--gpus", "9", "--", "true"});

  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(one_sentence(r.err)) << r.err;
  EXPECT_NE(r.err.find("9"), std::string::npos);
  EXPECT_NE(r.err.find("3"), std::string::npos) << "it does not say which there are: " << r.err;
}

TEST(CommandLine, HelpAndVersionOfEveryVerbGoToStandardOutput) {
  const std::vector<Words> verbs = {{},
                                    {"env"},
                                    {"run"},
                                    {"bench"},
                                    {"monitor"},
                                    {"monitor", "energy"},
                                    {"monitor", "power"},
                                    {"processes"},
                                    {"record"},
                                    {"verify"},
                                    {"sim"},
                                    {"sim", "list"},
                                    {"sim", "run"},
                                    {"sim", "truth"},
                                    {"restore"},
                                    {"serve-proxy"}};
  for (Words verb : verbs) {
    verb.emplace_back("--help");
    const auto r = zeus(verb);
    EXPECT_EQ(r.status, 0);
    EXPECT_NE(r.out.find("Usage: "), std::string::npos);
    EXPECT_NE(r.out.find("Examples:\n"), std::string::npos) << r.out;
    std::istringstream lines(r.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
    EXPECT_EQ(r.err, "");
  }
  EXPECT_TRUE(zeus({"--version"}).out.starts_with("zeus "));
}

TEST(CommandLine, LeavesTheStreamsOfTheCommandAlone) {
  const auto r = zeus({"run", "--", "printf", "a\\000b\\377\\n"});

  EXPECT_EQ(r.out, std::string("a\0b\xff\n", 5));
  EXPECT_EQ(zeus({"run", "--json", "--", "echo", "hello"}).out, "hello\n");
}

TEST(CommandLine, AFileThatCannotBeWrittenIsToldBeforeTheCommandStarts) {
  const Tree tree;
  const auto r =
      zeus({"run", "-o", "/nonexistent/report", "--", "touch", (tree.root() / "started").string()});

  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(one_sentence(r.err)) << r.err;
  EXPECT_FALSE(std::filesystem::exists(tree.root() / "started"));
}

TEST(CommandLine, AReportAppearsWholeAndLeavesNothingElse) {
  const Tree tree;
  const auto file = tree.root() / "report.json";
  const auto r = zeus({"run", "--json", "-o", file.string(), "--", "ls", tree.root().string()});

  EXPECT_EQ(r.out.find("report.json\n"), std::string::npos) << "it is there before the end";
  EXPECT_EQ(json_of(file)["schema"], "zeus.run/1");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(tree.root()), {}), 1);
  EXPECT_EQ(r.err, "");
}

TEST(CommandLine, OptionsStandBeforeOrBehindTheVerb) {
  EXPECT_EQ(zeus({"--json", "env"}).out, zeus({"env", "--json"}).out);
  EXPECT_EQ(zeus({"run", "--host", "sim:nope", "--", "true"}).status, 2);
}

TEST(CommandLine, IsReadTheSameInEveryLocale) {
  const Tree tree;
  const auto file = (tree.root() / "r.json").string();
  Process::Options comma;
  comma.environment = {{"LC_ALL", "de_DE.UTF-8"}, {"LANG", "de_DE.UTF-8"}};
  (void)zeus({"run", "--period", "1.5s", "--json", "-o", file, "--", "sleep", "0.1"}, comma);

  EXPECT_GT(json_of(file)["window"]["duration_s"], 0.1);
}

TEST(CommandLine, WritesNoColourWhereNobodyLooks) {
  Process::Options terminal;
  terminal.environment = {{"TERM", "xterm-256color"}, {"NO_COLOR", "1"}};

  EXPECT_EQ(zeus({"env"}, terminal).out.find('\x1b'), std::string::npos);
  EXPECT_EQ(zeus({"run", "--", "true"}, terminal).err.find('\x1b'), std::string::npos);
}

TEST(Environment, ExitsWithZeroWhateverIsMissing) {
  EXPECT_EQ(zeus({"env"}).status, 0);
  EXPECT_EQ(Json::parse(zeus({"env", "--json"}).out)["schema"], "zeus.env/1");
}

TEST(Environment, RequiresWhatItIsToldTo) {
  const auto met = zeus({"--host", "sim:square", "env", "--require", "gpu,cpu,dram"});
  const auto unmet = zeus({"--host", "sim:constant", "env", "--require", "gpu,dram"});

  EXPECT_EQ(met.status, 0) << met.err;
  EXPECT_EQ(unmet.status, 1);
  EXPECT_NE(unmet.err.find("dram is required and missing"), std::string::npos) << unmet.err;
  EXPECT_EQ(unmet.err.find("gpu is required"), std::string::npos);
  EXPECT_NE(unmet.out.find("SIMULATED (scenario constant)"), std::string::npos);
}

TEST(Settings, FlagsStandOverTheEnvironmentAndThatOverFiles) {
  Tree tree;
  tree.write("zeus.toml", "host = \"sim:constant\"\n");
  Process::Options options;
  options.folder = tree.root().string();
  const auto scenario = [&](const Words& more) {
    Words words = {"env", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    return Json::parse(zeus(words, options).out)["host"]["address"].get<std::string>();
  };

  EXPECT_EQ(scenario({}), "sim:constant");
  options.environment["ZEUS_HOST"] = "sim:square";
  EXPECT_EQ(scenario({}), "sim:square");
  EXPECT_EQ(scenario({"--host", "local:"}), "local:");
}

TEST(Settings, TheNearerFileWins) {
  Tree tree;
  tree.write("here/zeus.toml", "json = true\n");
  tree.write("xdg/zeus/zeus.toml", "json = false\nhost = \"sim:constant\"\n");
  Process::Options options;
  options.folder = (tree.root() / "here").string();
  options.environment["XDG_CONFIG_HOME"] = (tree.root() / "xdg").string();

  EXPECT_EQ(Json::parse(zeus({"env"}, options).out)["host"]["address"], "sim:constant");
}

TEST(Settings, AMistakeIsToldWithFileLineAndKey) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"\nhots = \"local:\"\n", "hots"},
      {"\n[run]\nperiod = true\n", "period"},
      {"\n[run]\nrepeat = \"three\"\n", "repeat"},
      {"\njson = \"yes\"\n", "json"},
      {"\n[runn]\nperiod = 1\n", "runn"},
      {"\n[run]\ngpus = [0, true]\n", "gpus"},
      {"\nhost = \n", "line"}};
  for (const auto& [text, key] : mistakes) {
    Tree tree;
    tree.write("zeus.toml", text);
    Process::Options options;
    options.folder = tree.root().string();
    const auto r = zeus({"run", "--", "true"}, options);
    EXPECT_EQ(r.status, 2) << text;
    EXPECT_TRUE(one_sentence(r.err)) << r.err;
    EXPECT_NE(r.err.find("zeus.toml, line "), std::string::npos) << r.err;
    EXPECT_NE(r.err.find(key), std::string::npos) << r.err;
  }
}

TEST(Settings, TheSourceOfAChoiceIsPrinted) {
  Process::Options options;
  options.environment = {{"ZEUS_GPUS", "1"}, {"ZEUS_NO_CPU", "1"}};
  const auto r = zeus({"--host", "sim:a100x4", "run", "--", "true"}, options);
  const auto visible = zeus({"--host", "sim:a100x4", "run", "--", "true"},
                            {.environment = {{"CUDA_VISIBLE_DEVICES", "3"}}, .folder = {}});

  EXPECT_NE(r.err.find("GPUs: 1 (ZEUS_GPUS=1)"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("CPUs: none"), std::string::npos) << r.err;
  EXPECT_NE(visible.err.find("GPUs: 3 (CUDA_VISIBLE_DEVICES=3"), std::string::npos) << visible.err;
}

TEST(Restore, FindsNothingToDoWhereNothingWasTurned) {
  const Tree tree;
  const auto r = zeus({"restore", "--journal", tree.root().string()});

  EXPECT_EQ(r.status, 0) << r.err;
}

}  // namespace
}  // namespace zeus::test
