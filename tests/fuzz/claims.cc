#include <string>

#include "fuzz/fuzz.h"
#include "report/json.h"
#include "report/truth.h"

// Reports of `zeus run --json`, as `zeus sim truth` reads them.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  using zeus::report::Json;
  const Json report = Json::parse(zeus::fuzz::text_of(data, size), nullptr, false);
  auto claims = zeus::report::read_claims(report);
  if (!claims) {
    require(claims.error().code == zeus::Errc::invalid && !claims.error().detail.empty());
    return 0;
  }
  require(claims->begin_ns >= 0 && claims->begin_ns <= claims->end_ns && !claims->session.empty());
  for (auto& c : claims->domains) {
    if (c.scope == "gpu") c.truth_j = c.energy_j;
  }
  const auto verdict = zeus::report::compare(*claims);
  require(verdict.domains.size() == claims->domains.size());
  require(!zeus::report::to_text(verdict, {}).empty());
  const Json out = zeus::report::to_json(verdict);
  require(out.at("domains").size() == verdict.domains.size());
  require(!zeus::report::dump(out, true).empty());
  return 0;
}
