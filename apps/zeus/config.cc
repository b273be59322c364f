#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "options.h"
#include "sim/toml.h"

namespace zeus::cli {
namespace {

namespace fs = std::filesystem;

/// A value from a file or a variable, as the words that a command line would have.
struct Setting {
  std::vector<std::string> words;
  std::string source;  ///< "ZEUS_PERIOD", "zeus.toml line 3".
};

bool settable(const CLI::Option* option) {
  const std::string& name = option->get_single_name();
  return option->nonpositional() && name != "help" && name != "version";
}

bool is_flag(const CLI::Option* option) { return option->get_items_expected_max() == 0; }

/// The files that exist, the most important first.
std::vector<fs::path> files() {
  std::vector<fs::path> out;
  std::error_code none;
  const auto add = [&](const fs::path& path) {
    if (fs::is_regular_file(path, none)) out.push_back(path);
  };
  // What stands in a folder of somebody else must not steer this user's command.
  struct stat s {};
  if (stat("zeus.toml", &s) == 0 && (s.st_uid == geteuid() || s.st_uid == 0)) add("zeus.toml");
  const auto xdg = environment("XDG_CONFIG_HOME");
  const auto home = environment("HOME");
  if (xdg && !xdg->empty()) {
    add(fs::path(*xdg) / "zeus/zeus.toml");
  } else if (home && !home->empty()) {
    add(fs::path(*home) / ".config/zeus/zeus.toml");
  }
  add("/etc/zeus/zeus.toml");
  return out;
}

class File {
 public:
  explicit File(const fs::path& path) : path_(path.string()) {
    std::ifstream in(path);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in) throw UsageError(fmt::format("cannot read {}; make it readable or remove it", path_));
    auto parsed = toml::parse(text.str(), path_);
    if (!parsed) {
      throw UsageError(fmt::format("cannot read {}, line {}: {}", path_,
                                   parsed.error().source().begin.line,
                                   parsed.error().description()));
    }
    table_ = std::move(parsed).table();
  }

  /// Fails on the first key that no verb knows, or whose value has the wrong type.
  void check(const CLI::App& app) const { check(table_, app, ""); }

  /// The setting of `option` of `app`, which stands in the tables `path`.
  std::optional<Setting> find(const std::vector<std::string>& path, const CLI::Option* o) const {
    const toml::table* table = &table_;
    for (const std::string& name : path) {
      table = (*table)[name].as_table();
      if (table == nullptr) return std::nullopt;
    }
    const toml::node* node = table->get(o->get_single_name());
    if (node == nullptr) return std::nullopt;
    return Setting{words(*node, o), fmt::format("{} line {}", path_, node->source().begin.line)};
  }

 private:
  void check(const toml::table& table, const CLI::App& app, const std::string& where) const {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (const toml::table* inner = node.as_table()) {
        const auto subs = app.get_subcommands([](const CLI::App*) { return true; });
        const auto sub = std::find_if(subs.begin(), subs.end(),
                                      [&](const CLI::App* s) { return s->get_name() == name; });
        if (sub == subs.end()) unknown(key, node, app, where);
        check(*inner, **sub, where + name + ".");
        continue;
      }
      const CLI::Option* option = app.get_option_no_throw("--" + name);
      if (option == nullptr || !settable(option)) unknown(key, node, app, where);
      (void)words(node, option);
    }
  }

  [[noreturn]] void unknown(const toml::key& key, const toml::node& node, const CLI::App& app,
                            const std::string& where) const {
    std::vector<std::string> known;
    for (const CLI::Option* o : app.get_options()) {
      if (settable(o)) known.push_back(o->get_single_name());
    }
    throw UsageError(fmt::format("{}, line {}: there is no key \"{}{}\"; known there: {}", path_,
                                 node.source().begin.line, where, key.str(),
                                 fmt::join(known, ", ")));
  }

  std::vector<std::string> words(const toml::node& node, const CLI::Option* option) const {
    const std::string type = option->get_type_name();
    if (is_flag(option)) {
      if (const auto flag = node.value_exact<bool>()) {
        return *flag ? std::vector<std::string>{"true"} : std::vector<std::string>{};
      }
      wrong(node, option, "true or false");
    }
    const auto integer = node.value_exact<std::int64_t>();
    if (type == "INT") {
      if (!integer) wrong(node, option, "a whole number");
      return {std::to_string(*integer)};
    }
    if (type == "LIST" && node.is_array()) {
      std::vector<std::string> items;
      for (const toml::node& item : *node.as_array()) items.push_back(list_item(item, option));
      return {fmt::format("{}", fmt::join(items, ","))};
    }
    if (type == "LIST") return {list_item(node, option)};
    if (type == "DURATION" || type == "NUMBER") {
      if (integer) return {std::to_string(*integer)};
      if (const auto real = node.value_exact<double>()) return {fmt::format("{}", *real)};
    }
    if (const auto text = node.value_exact<std::string>()) return {*text};
    wrong(node, option,
          type == "DURATION" ? "a duration like \"100ms\""
          : type == "NUMBER" ? "a number"
                             : "a text in quotes");
  }

  std::string list_item(const toml::node& node, const CLI::Option* option) const {
    if (const auto i = node.value_exact<std::int64_t>()) return std::to_string(*i);
    if (const auto text = node.value_exact<std::string>()) return *text;
    wrong(node, option, "a list like \"0,2\" or [0, 2]");
  }

  [[noreturn]] void wrong(const toml::node& node, const CLI::Option* option,
                          std::string_view wanted) const {
    throw UsageError(fmt::format("{}, line {}: \"{}\" must be {}", path_, node.source().begin.line,
                                 option->get_single_name(), wanted));
  }

  std::string path_;
  toml::table table_;
};

std::optional<Setting> from_environment(const CLI::Option* option) {
  std::string name = "ZEUS_" + option->get_single_name();
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  const auto value = environment(name.c_str());
  if (!value || value->empty()) return std::nullopt;
  if (!is_flag(option)) return Setting{{*value}, name};
  static constexpr std::string_view kYes[] = {"1", "true", "yes", "on"};
  static constexpr std::string_view kNo[] = {"0", "false", "no", "off"};
  if (std::find(std::begin(kYes), std::end(kYes), *value) != std::end(kYes)) {
    return Setting{{"true"}, name};
  }
  if (std::find(std::begin(kNo), std::end(kNo), *value) != std::end(kNo)) return Setting{{}, name};
  throw UsageError(fmt::format("{} must be 1 or 0, not \"{}\"", name, *value));
}

void fill(CLI::App& app, const std::vector<std::string>& path, const std::vector<File>& from,
          Globals& globals) {
  for (CLI::Option* option : app.get_options()) {
    if (!settable(option) || option->count() > 0) continue;
    std::optional<Setting> setting = from_environment(option);
    for (std::size_t i = 0; i < from.size() && !setting; ++i) setting = from[i].find(path, option);
    if (!setting || setting->words.empty()) continue;
    globals.sources[option->get_single_name()] = setting->source;
    try {
      option->add_result(setting->words);
      option->run_callback();
    } catch (const CLI::ParseError& e) {
      throw UsageError(fmt::format("{}: {}", setting->source, e.what()));
    }
  }
}

}  // namespace

void apply_settings(CLI::App& app, Globals& globals) {
  std::vector<File> from;
  for (const fs::path& path : files()) from.emplace_back(path).check(app);
  std::vector<std::string> path;
  for (CLI::App* at = &app;;) {
    fill(*at, path, from, globals);
    const auto subs = at->get_subcommands();
    if (subs.empty()) return;
    at = subs.front();
    path.push_back(at->get_name());
  }
}

}  // namespace zeus::cli
