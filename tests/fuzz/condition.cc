#include "report/condition.h"

#include <cmath>

#include "fuzz/fuzz.h"

// Conditions of `zeus bench`, as users write them.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  using namespace zeus::report;
  const auto text = zeus::fuzz::text_of(data, size);
  for (const auto& c : {parse_fail_if(text), parse_no_worse_than(text)}) {
    if (!c) {
      require(c.error().code == zeus::Errc::invalid && !c.error().detail.empty());
      continue;
    }
    // No limit that nothing could ever exceed, or everything would.
    require(std::isfinite(c->limit) && c->limit > 0);
    const bool gate = c->kind == Condition::Kind::fails_if;
    const auto again = gate ? parse_fail_if(c->text) : parse_no_worse_than(c->text);
    require(again && again->limit == c->limit && again->metric == c->metric &&
            again->above == c->above && again->relative == c->relative);
  }
  return 0;
}
