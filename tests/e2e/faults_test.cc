// What goes wrong on a machine while `zeus run` measures it, and what is said then.

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "e2e/cli.h"
#include "support/simulated.h"
#include "zeus/lease.h"

namespace zeus::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

/// Two GPUs of 100 W, packages of 60 W and 50 W, and what goes wrong with them.
std::string machine_with(const std::string& faults, const std::string& mode = "0444") {
  const auto zone = [&](const std::string& n, const std::string& watts) {
    return "[[zone]]\npath = \"intel-rapl:" + n + "\"\nname = \"package-" + n +
           "\"\npower = { watts = " + watts + " }\nmode = \"" + mode + "\"\n";
  };
  return "[[gpu]]\ncount = 2\nmodel = \"Two\"\npower = { kind = \"constant\", watts = 100 }\n"
         "energy = { update = \"20ms\" }\n"
         "power_instant = { kind = \"instant\", update = \"20ms\" }\n" +
         zone("0", "60") + zone("1", "50") + faults;
}

struct Told {
  int status = -1;
  std::string text;
  Json report;

  const Json& domain(const std::string& name) const {
    static const Json none;
    for (const Json& d : report["domains"]) {
      if (d["domain"] == name) return d;
    }
    return none;
  }
  /// Those of constant power, as the scenario says it.
  void expect_joules(const std::string& name, double watts) const {
    const double expected = watts * report["window"]["duration_s"].get<double>();
    ASSERT_TRUE(domain(name)["energy_j"].is_number()) << name << report;
    EXPECT_NEAR(domain(name)["energy_j"].get<double>(), expected, 0.1 * expected) << name;
  }
};

/// A run of two seconds; what goes wrong does so at one second of the machine's life.
Told run_on(const std::string& scenario, const std::string& command = "sleep 2; exit 3") {
  Tree tree;
  tree.write("faulty.toml", scenario);
  const auto file = tree.root() / "r.json";
  const auto r = zeus({"--host", "sim:" + (tree.root() / "faulty.toml").string(), "run", "--json",
                       "-o", file.string(), "--", "sh", "-c", command});
  return {r.status, r.err, json_of(file)};
}

// field failure 89
TEST(Faults, AGpuThatIsLostIsNullWithItsReasonAndTheOthersAreMeasured) {
  const Told told =
      run_on(machine_with("[[fault]]\ngpu = 1\ncall = \"all\"\nat = \"1s\"\ncode = 15\n"));

  EXPECT_EQ(told.status, 3) << told.text;
  told.expect_joules("gpu:0", 100);
  told.expect_joules("package:0", 60);
  told.expect_joules("package:1", 50);
  EXPECT_TRUE(told.domain("gpu:1")["energy_j"].is_null()) << told.report;
  EXPECT_EQ(told.domain("gpu:1")["reason"], "its sensor could not be read: lost");
  EXPECT_EQ(told.report["devices"].size(), 4u);
  EXPECT_EQ(told.report["total"]["complete"], false);
  EXPECT_EQ(told.report["total"]["missing"][0], "gpu:1 (its sensor could not be read: lost)");
  EXPECT_TRUE(told.report["edp_js"].is_null());
}

TEST(Faults, AZoneThatTellsNoNumberIsNullWithItsReasonAndTheOthersAreMeasured) {
  for (const std::string text : {"", "N/A", "12x"}) {
    const Told told =
        run_on(machine_with("[[fault]]\nzone = \"intel-rapl:1\"\nfile = \"energy_uj\"\n"
                            "at = \"1s\"\ntext = \"" +
                            text + "\"\n"));

    EXPECT_EQ(told.status, 3) << told.text;
    told.expect_joules("gpu:0", 100);
    told.expect_joules("package:0", 60);
    EXPECT_TRUE(told.domain("package:1")["energy_j"].is_null()) << text << told.report;
    EXPECT_EQ(told.domain("package:1")["reason"], "its sensor could not be read: malformed");
    EXPECT_EQ(told.report["total"]["complete"], false);
  }
}

TEST(Faults, ADriverReloadIsRefusedWithALowerBound) {
  const Told told =
      run_on(machine_with("[[fault]]\ngpu = 1\ncall = \"energy\"\nat = \"1s\"\nreset = true\n"));
  const Json& d = told.domain("gpu:1");
  const auto& flags = d["flags"];

  EXPECT_NE(std::find(flags.begin(), flags.end(), "reset"), flags.end()) << d;
  EXPECT_TRUE(d["energy_j"].is_null());
  EXPECT_EQ(d["refusal"], "R3: the counter fell or started anew");
  EXPECT_GE(d["low_j"], 0.0);
  EXPECT_LE(d["low_j"], 100 * told.report["window"]["duration_s"].get<double>());
  told.expect_joules("gpu:0", 100);
}

TEST(Faults, ABurstOfErrorsPasses) {
  for (const std::string code : {"1", "999"}) {
    const Told told =
        run_on(machine_with("[[fault]]\ngpu = 1\ncall = \"all\"\nat = \"1s\"\n"
                            "for = \"300ms\"\ncode = " +
                            code + "\n"));

    EXPECT_EQ(told.status, 3) << told.text;
    told.expect_joules("gpu:0", 100);
    told.expect_joules("gpu:1", 100);
    told.expect_joules("package:0", 60);
    EXPECT_EQ(told.report["total"]["complete"], true);
  }
}

TEST(Faults, AnUnknownKeyOfAScenarioIsNamedWithItsLine) {
  Tree tree;
  tree.write(
      "wrong.toml",
      "[[gpu]]\npower = { kind = \"constant\", watts = 100 }\nenrgy = { update = \"1s\" }\n");
  const auto r = zeus({"--host", "sim:" + (tree.root() / "wrong.toml").string(), "env"});

  EXPECT_EQ(r.status, 2);
  EXPECT_TRUE(one_sentence(r.err)) << r.err;
  EXPECT_NE(r.err.find("line 3"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("enrgy"), std::string::npos) << r.err;
}

TEST(Faults, AVendorLibraryThatIsBrokenOrNotThereIsAReasonAndNoError) {
  Tree tree;
  tree.write("libnvidia-ml.so.1", "not a library");
  tree.write("libnvidia-ml.so", "not a library");
  const auto nvml = [](const Process::Result& r) {
    EXPECT_EQ(r.status, 0) << r.err;
    const Json out = Json::parse(r.out, nullptr, false);
    for (const Json& p : out["problems"]) {
      if (p["where"] == "nvml") return p["detail"].get<std::string>();
    }
    return std::string();
  };

  const auto broken = nvml(
      zeus({"env", "--json"}, {.environment = {{"LD_LIBRARY_PATH", tree.root()}}, .folder = {}}));
  EXPECT_TRUE(broken.starts_with("cannot load NVIDIA's library: ")) << broken;
  EXPECT_EQ(nvml(zeus({"--host", "sim:xeon-2s", "env", "--json"})),
            "the scenario has no NVIDIA GPU");
  EXPECT_EQ(
      zeus({"run", "--", "true"}, {.environment = {{"LD_LIBRARY_PATH", tree.root()}}, .folder = {}})
          .status,
      0);
}

/// Processes that were started with `root` as their TMPDIR, and mounts below it.
std::vector<std::string> remains(const fs::path& root) {
  std::vector<std::string> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/proc", none)) {
    if (content(entry.path() / "environ").find("TMPDIR=" + root.string()) != std::string::npos) {
      out.push_back(content(entry.path() / "comm"));
    }
  }
  std::istringstream mounts(content("/proc/self/mounts"));
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(root.string()) != std::string::npos) out.push_back(line);
  }
  return out;
}

TEST(Faults, AZeusThatIsKilledLeavesNoMountAndNoServer) {
  const Tree tree;
  Process p(zeus_words({"--host", "sim:square", "run", "--", "sh", "-c",
                        "echo ready; exec >/dev/null 2>&1; sleep 0.3"}),
            {.environment = {{"TMPDIR", tree.root()}}, .folder = {}});
  ASSERT_TRUE(p.sees("ready\n"));
  EXPECT_FALSE(remains(tree.root()).empty());
  p.signal(SIGKILL);
  EXPECT_EQ(p.wait().status, -SIGKILL);
  auto left = remains(tree.root());
  for (int i = 0; i < 1000 && !left.empty(); ++i) {
    std::this_thread::sleep_for(10ms);
    left = remains(tree.root());
  }
  EXPECT_EQ(left, std::vector<std::string>{});
}

/// TMPDIR of this process, for as long as it lives.
struct TemporaryFolder {
  explicit TemporaryFolder(const fs::path& folder) {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    ::setenv("TMPDIR", folder.c_str(), 1);
  }
  ~TemporaryFolder() {
    if (before_) {
      ::setenv("TMPDIR", before_->c_str(), 1);
    } else {
      ::unsetenv("TMPDIR");
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  std::optional<std::string> before_;
};

TEST(Faults, WithoutTheRightToReadZonesTheGpusAreMeasuredAndTheWaysOutAreTold) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody with fewer rights";
  const Words nobody = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  Words can = nobody;
  can.insert(can.end(), {"test", "-x", ZEUS_BINARY});
  if (Process(can).wait().status != 0) GTEST_SKIP() << "nobody may not run " << ZEUS_BINARY;

  const Tree tree;
  ::chmod(tree.root().c_str(), 0755);
  const TemporaryFolder temporary(tree.root());
  Simulated sim(machine_with("", "0400"));
  const fs::path folder = sim.session().folder();  // Private to root until now.
  ::chmod(folder.parent_path().c_str(), 0711);
  ::chmod(folder.c_str(), 0755);
  ::chmod((folder / "state").c_str(), 0666);

  Words words = nobody;
  words.insert(words.end(), {ZEUS_BINARY, "--host", "sim:" + folder.string(), "run", "--json", "--",
                             "sleep", "0.5"});
  const auto r = Process(words).wait();
  const Told told{r.status, r.err, Json::parse(r.err, nullptr, false)};

  EXPECT_EQ(r.status, 0) << r.err;
  ASSERT_TRUE(told.report.is_object()) << r.err;
  told.expect_joules("gpu:0", 100);
  told.expect_joules("gpu:1", 100);
  ASSERT_EQ(told.report["problems"].size(), 2u) << r.err;
  for (const Json& p : told.report["problems"]) {
    EXPECT_EQ(p["code"], "denied");
    for (const char* way : {"join the group that owns this file", "run zeusd", "run as root"}) {
      EXPECT_NE(p["detail"].get<std::string>().find(way), std::string::npos) << p;
    }
  }
}

/// A process that turns the power limit of a simulated GPU and is killed with its hand on it.
void leave_an_orphan(const std::string& session, const std::string& gpu, const fs::path& journal) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto machine = open({Address::Scheme::sim, session});
    const auto lease = machine ? Lease::take(*machine, gpu, "power_limit", 120, journal)
                               : Result<Lease>(machine.error());
    const char word = lease ? 'y' : 'n';
    if (::write(ready[1], &word, 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char word = 0;
  EXPECT_EQ(::read(ready[0], &word, 1), 1);
  EXPECT_EQ(word, 'y') << "the lease was refused";
  ::kill(pid, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Restore, PutsBackWhatAKilledProcessLeftTurnedAndSaysSo) {
  const Tree journal;
  Simulated sim(
      "[nvml]\ncontrol = \"everyone\"\n[[gpu]]\n"
      "power = { kind = \"constant\", watts = 60 }\n"
      "limit = { min = 50, max = 200, default = 150 }\nenergy = {}\n");
  const std::string session = sim.session().folder().string();
  const std::string gpu = sim.session().devices().at(0).uuid;
  const auto limit = [&] {
    const Machine machine = open({Address::Scheme::sim, session}).value();
    return knob(machine.devices.at(0), "power_limit")->knob->get().value();
  };
  ASSERT_EQ(limit(), 150);
  leave_an_orphan(session, gpu, journal.root());
  ASSERT_EQ(limit(), 120);

  const Words restore = {"--host", "sim:" + session, "restore", "--journal", journal.root()};
  const auto r = zeus(restore);

  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("put back power_limit of " + gpu + "\n"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("1 put back"), std::string::npos) << r.out;
  EXPECT_EQ(limit(), 150);
  EXPECT_NE(zeus(restore).out.find("nothing to put back"), std::string::npos);
}

TEST(Restore, LeavesALeaseOfTheLivingAndOneWhoseDeviceIsAway) {
  const Tree journal;
  Simulated sim(
      "[nvml]\ncontrol = \"everyone\"\n[[gpu]]\n"
      "power = { kind = \"constant\", watts = 60 }\n"
      "limit = { min = 50, max = 200, default = 150 }\nenergy = {}\n");
  const std::string session = sim.session().folder().string();
  const Machine machine = open({Address::Scheme::sim, session}).value();
  {
    const auto lease =
        Lease::take(machine, machine.devices.at(0).info.id, "power_limit", 120, journal.root());
    ASSERT_TRUE(lease);
    const auto r = zeus({"--host", "sim:" + session, "restore", "--journal", journal.root()});
    EXPECT_EQ(r.status, 0) << r.err;
    EXPECT_NE(r.out.find("0 put back, 1 in use by living processes"), std::string::npos) << r.out;
  }
  leave_an_orphan(session, machine.devices[0].info.id, journal.root());
  const auto away = zeus({"--host", "sim:xeon-2s", "restore", "--journal", journal.root()});

  EXPECT_EQ(away.status, 1) << away.out;
  EXPECT_NE(away.out.find("it is not here now"), std::string::npos) << away.out;
}

}  // namespace
}  // namespace zeus::test
