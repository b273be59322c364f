#include "report/verify.h"

#include <fmt/format.h>
#include <unistd.h>

#include <vector>

#include "options.h"
#include "output.h"
#include "version.h"

namespace zeus::cli {
namespace {

/// A file that is none is a mistake of the user; one that is damaged is not.
Result<report::Verification> verify_file(const std::string& file) {
  auto recording = Recording::read(file);
  if (recording) return report::verify(*recording, file, build_id());
  if (recording.error().code != Errc::malformed) throw UsageError(recording.error().detail);
  return recording.error();
}

int verify(const Globals& globals, const std::vector<std::string>& files) {
  std::optional<OutputFile> out;
  if (!globals.output.empty()) {
    auto opened = OutputFile::open(globals.output);
    if (!opened) throw UsageError(opened.error().detail);
    out.emplace(std::move(*opened));
  }
  const report::Style style = out ? report::Style{} : globals.style(STDOUT_FILENO);
  report::Json json = {{"schema", "zeus.verify/1"}, {"zeus", kVersion}};
  json["files"] = report::Json::array();
  std::string text;
  bool holds = true;
  for (const std::string& file : files) {
    const auto result = verify_file(file);
    if (!result) {
      complain(result.error().detail);
      holds = false;
      continue;
    }
    if (!result->damage.empty()) {
      complain(fmt::format("cannot verify {}: {}", file, result->damage));
    }
    holds = holds && result->holds();
    text += report::to_text(*result, style);
    json["files"].push_back(report::to_json(*result));
  }
  json["holds"] = holds;
  if (globals.json) text = report::dump(json, true);
  if (out) {
    Status written = out->write(text);
    if (written) written = out->commit();
    if (!written) throw UsageError(written.error().detail);
  } else if (write_all(STDOUT_FILENO, text) != 0) {
    return kFailed;
  }
  return holds ? 0 : kFailed;
}

}  // namespace

void add_verify(CLI::App& app, const Globals& globals, Verbs& verbs) {
  auto* verb =
      app.add_subcommand("verify", "Judge recordings again, and compare with their result");
  const auto files = std::make_shared<std::vector<std::string>>();
  verb->add_option("FILES", *files, "Recordings of zeus record")->required()->type_name("");
  verb->footer(
      "Examples:\n"
      "  zeus verify a.zeus\n"
      "  zeus verify --json *.zeus\n"
      "Results of the same build must be equal bit for bit, those of another to 1e-12, relative.\n"
      "The exit status is 0 if all match, 1 if something does not or a file is damaged.");
  verbs.emplace_back(verb, [&globals, files] { return verify(globals, *files); });
}

}  // namespace zeus::cli
