#include "sim/scenario.h"

#include <cmath>
#include <string>

#include "fuzz/fuzz.h"

// Scenarios of simulated machines: whatever is accepted can be run for an hour.

namespace {

using namespace zeus::sim;  // NOLINT(google-build-using-namespace)
using zeus::fuzz::require;

constexpr Ns kHour = 3'600'000'000'000;

struct Whole final : Truth {
  explicit Whole(const Steps& s) : steps(s) {}
  Piece piece(Ns t) const noexcept override { return steps.piece(t); }
  double joules(Ns a, Ns b) const noexcept override {
    return a <= b ? steps.joules(a, b) : -steps.joules(b, a);
  }
  const Steps& steps;
};

void check_power(const Power& p) {
  require(std::isfinite(p.lowest()) && std::isfinite(p.highest()));
  require(p.lowest() >= 0 && p.lowest() <= p.highest());
  double sum = 0;
  for (const Ns t : {Ns{0}, Ns{1'000'000'000}, kHour / 7, kHour}) {
    const Piece piece = p.steps.piece(t);
    require(piece.begin <= t && t < piece.end);
    require(p.follow || (p.lowest() <= piece.watts && piece.watts <= p.highest()));
    const double joules = p.steps.joules(0, t);
    const double rounding = 1e-6 * (1 + p.highest()) * (1 + seconds(t));
    require(joules >= sum - rounding);  // Energy is never given back.
    require(joules <= p.highest() * seconds(t) + rounding || p.follow);
    sum = joules;
  }
}

void check_counter(const std::optional<Counter>& c, const Whole& truth) {
  if (!c) return;
  require(c->quantum > 0 && c->comb.update > 0);
  const auto first = c->quanta(truth, 1'000'000'000), next = c->quanta(truth, 2'000'000'000);
  require(c->modulus > 0 || c->gain < 0 || next >= first);
  require(std::isfinite(c->read(truth, kHour)));
}

void check_sensor(const std::optional<PowerSensor>& s, const Whole& truth) {
  if (s) require(std::isfinite(s->read(truth, kHour)));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = zeus::fuzz::text_of(data, size);
  // Traces are files of others, and an escape could hide one.
  if (text.find("trace") != std::string_view::npos || text.find('\\') != std::string_view::npos) {
    return 0;
  }
  const auto s = parse_scenario(text, "fuzz.toml", "/nowhere");
  if (!s) {
    require(s.error().code == zeus::Errc::invalid);
    require(s.error().detail.starts_with("fuzz.toml, line "));
    return 0;
  }
  require(s->gpus.size() <= 256 && s->zones.size() <= 256 && s->faults.size() <= 128);
  require(s->gpus.empty() || s->nvml.has_value());
  for (const Gpu& g : s->gpus) {
    check_power(g.power);
    const Whole truth(g.power.steps);
    for (const auto* c : {&g.energy, &g.module_energy}) check_counter(*c, truth);
    for (const auto* p :
         {&g.power_instant, &g.power_average, &g.power_usage, &g.module_power, &g.memory_power}) {
      check_sensor(*p, truth);
    }
    if (&g - s->gpus.data() == 3) break;  // Those of one `count` are alike.
  }
  for (const Zone& z : s->zones) {
    require(!z.path.empty() && z.mode <= 0777);
    require(z.mirror < 0 || static_cast<std::size_t>(z.mirror) < s->zones.size());
    check_power(z.power);
    check_counter(z.counter, Whole(z.power.steps));
  }
  for (const Fault& f : s->faults) {
    const auto devices = f.target == Fault::Target::gpu ? s->gpus.size() : s->zones.size();
    require(f.device < 0 || static_cast<std::size_t>(f.device) < devices);
    require(f.until >= f.from && f.block >= 0);
  }
  return 0;
}
