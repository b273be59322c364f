#include "sim/scenario.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "sim/scenario_devices.h"

namespace zeus::sim {

namespace fs = std::filesystem;

namespace {

constexpr std::pair<const char*, int> kErrnos[] = {
    {"EIO", EIO},       {"ENODATA", ENODATA}, {"EACCES", EACCES},        {"EPERM", EPERM},
    {"ENOENT", ENOENT}, {"ENODEV", ENODEV},   {"EAGAIN", EAGAIN},        {"ENXIO", ENXIO},
    {"EINVAL", EINVAL}, {"EBUSY", EBUSY},     {"EOPNOTSUPP", EOPNOTSUPP}};

void read_nvml(Problems& problems, const toml::table& table, Nvml& out) {
  TableReader r(problems, table, "[nvml]");
  r.read("driver", out.driver);
  r.read("nvml", out.version);
  r.read("cuda", out.cuda);
  r.read("scopes", out.scopes);
  r.duration("latency", out.latency);
  std::string library = "new", control = "root";
  r.read("library", library);
  r.read("control", control);
  if (library != "new" && library != "old") r.say("library", "`library` is \"new\" or \"old\"");
  out.old = library == "old";
  if (control == "everyone") {
    out.control = Nvml::Control::everyone;
  } else if (control == "nobody") {
    out.control = Nvml::Control::nobody;
  } else if (control != "root") {
    r.say("control", "`control` is \"root\", \"everyone\" or \"nobody\"");
  }
  r.done();
}

void read_target(TableReader& r, const Scenario& s, Fault& f) {
  const toml::node* gpu = r.find("gpu");
  const toml::node* zone = r.find("zone");
  if ((gpu != nullptr) == (zone != nullptr)) return r.say("gpu", "name one of `gpu` and `zone`");
  const toml::node& n = gpu != nullptr ? *gpu : *zone;
  f.target = gpu != nullptr ? Fault::Target::gpu : Fault::Target::zone;
  const auto text = n.value_exact<std::string>();
  if (text == "all") return;
  if (gpu != nullptr) {
    const auto i = n.value_exact<std::int64_t>();
    if (!i || *i < 0 || std::cmp_greater_equal(*i, s.gpus.size())) {
      return r.wrong(n, "gpu", "the index of a GPU of this scenario, or \"all\"");
    }
    f.device = static_cast<int>(*i);
    return;
  }
  for (std::size_t i = 0; i < s.zones.size(); ++i) {
    if (text == s.zones[i].path) f.device = static_cast<int>(i);
  }
  if (f.device < 0) r.wrong(n, "zone", "the path of a zone of this scenario, or \"all\"");
}

int errno_named(const std::string& name) {
  for (const auto& [known, value] : kErrnos) {
    if (name == known) return value;
  }
  return 0;
}

void read_effect(TableReader& r, Fault& f) {
  int effects = 0;
  std::string text;
  bool on = false;
  if (r.has("code") && ++effects != 0) {
    f.what = Fault::What::code;
    r.read("code", f.code);
  }
  if (r.has("errno") && ++effects != 0) {
    f.what = Fault::What::error_number;
    r.read("errno", text);
    f.code = errno_named(text);
    if (f.code == 0) r.say("errno", "`errno` is a name such as \"EIO\", \"ENODATA\" or \"EACCES\"");
  }
  if (r.has("text") && ++effects != 0) {
    f.what = Fault::What::text;
    r.read("text", text);
    if (text.size() >= sizeof f.text) r.say("text", "`text` has at most 31 characters");
    std::strncpy(f.text, text.c_str(), sizeof f.text - 1);
  }
  if (r.has("value") && ++effects != 0) {
    f.what = Fault::What::value;
    r.read("value", f.value);
  }
  if (r.has("step_j") && ++effects != 0) {
    f.what = Fault::What::step;
    r.read("step_j", f.step_j);
  }
  if (r.has("block") && ++effects != 0) {
    f.what = Fault::What::block;
    r.period("block", f.block);
  }
  for (const auto& [key, what] :
       {std::pair{"freeze", Fault::What::freeze}, {"reset", Fault::What::reset}}) {
    if (!r.has(key)) continue;
    r.read(key, on);
    if (!on) continue;
    ++effects;
    f.what = what;
  }
  if (effects != 1) {
    r.say(
        "code",
        "say one thing that goes wrong: code, errno, text, value, freeze, reset, step_j or block");
  }
}

void read_fault(Problems& problems, const toml::table& table, Scenario& s) {
  TableReader r(problems, table, "[[fault]]");
  Fault f;
  read_target(r, s, f);
  read_effect(r, f);
  std::string call, file = "energy_uj";
  r.read("call", call);
  const bool counter =
      f.what == Fault::What::freeze || f.what == Fault::What::reset || f.what == Fault::What::step;
  f.calls = calls_named(!call.empty() ? call : counter ? "energy" : "all");
  if (f.calls.empty()) r.say("call", "`" + call + "` is no call; README.md of sim/ has the list");
  r.read("file", file);
  if (file.size() >= sizeof f.file) r.say("file", "`file` has at most 31 characters");
  std::strncpy(f.file, file.c_str(), sizeof f.file - 1);
  Ns length = 0;
  const bool starts = r.has("at"), ends = r.has("for");
  r.duration("at", f.from);
  r.period("for", length);
  if (counter && !starts) r.say("at", "freeze, reset and step_j need `at`");
  if (ends) {
    if (!starts) f.from = 0;
    f.until = f.from + length;
  }
  r.read("every", f.every);
  r.read("after_calls", f.after_calls);
  r.done();
  s.faults.push_back(f);
}

void read_all(Problems& problems, const toml::table& table, const fs::path& folder, Scenario& s) {
  TableReader r(problems, table, "the scenario");
  r.read("name", s.name);
  r.read("description", s.description);
  r.read("seed", s.seed);
  if (const toml::table* nvml = r.table("nvml")) read_nvml(problems, *nvml, s.nvml.emplace());
  for (const toml::table* t : r.tables("gpu")) read_gpus(problems, *t, folder, s);
  for (const toml::table* t : r.tables("zone")) read_zone(problems, *t, folder, s);
  for (const toml::table* t : r.tables("fault")) read_fault(problems, *t, s);
  r.done();
  if (!s.gpus.empty() && !s.nvml) s.nvml.emplace();
  if (s.gpus.size() > 256) r.say("gpu", "a machine has at most 256 GPUs");
  if (s.zones.size() > 256) r.say("zone", "a machine has at most 256 zones");
  if (s.faults.size() > 128) r.say("fault", "a scenario has at most 128 faults");
}

Result<std::string> text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf())) {
    return Error{Errc::absent, errno,
                 "cannot read the scenario " + file.string() +
                     "; give a file, or a name that `zeus sim list` shows"};
  }
  return text.str();
}

Error syntax_error(const toml::parse_error& e, const std::string& source) {
  return {Errc::invalid, 0,
          source + ", line " + std::to_string(e.source().begin.line) + ": " +
              std::string(e.description())};
}

}  // namespace

bool Scenario::follows() const {
  const auto follow = [](const auto& d) { return d.power.follow && !d.power.driven; };
  return std::any_of(gpus.begin(), gpus.end(), follow) ||
         std::any_of(zones.begin(), zones.end(), follow);
}

Result<Scenario> parse_scenario(std::string_view text, const std::string& source,
                                const fs::path& folder) {
  const toml::parse_result parsed = toml::parse(text, source);
  if (!parsed) return syntax_error(parsed.error(), source);
  Scenario s;
  s.name = fs::path(source).stem().string();
  Problems problems{source, {}};
  read_all(problems, parsed.table(), folder, s);
  if (problems.first) return *problems.first;
  return s;
}

Result<Scenario> read_scenario(const fs::path& file) {
  Result<std::string> text = text_of(file);
  if (!text) return text.error();
  return parse_scenario(*text, file.string(), fs::absolute(file).parent_path());
}

Result<std::string> portable_text(const fs::path& file) {
  Result<std::string> text = text_of(file);
  if (!text) return text.error();
  toml::parse_result parsed = toml::parse(*text, file.string());
  if (!parsed) return syntax_error(parsed.error(), file.string());
  toml::table& all = parsed.table();
  if (!all.contains("name")) all.insert("name", file.stem().string());
  const fs::path folder = fs::absolute(file).parent_path();
  for (const char* kind : {"gpu", "zone"}) {
    toml::array* devices = all[kind].as_array();
    if (devices == nullptr) continue;
    for (toml::node& d : *devices) {
      if (!d.is_table()) continue;
      if (auto* trace = (*d.as_table())["power"]["file"].as_string()) {
        trace->get() = (folder / trace->get()).lexically_normal().string();
      }
    }
  }
  std::ostringstream out;
  out << all << '\n';
  return out.str();
}

}  // namespace zeus::sim
