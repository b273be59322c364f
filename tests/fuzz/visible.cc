#include <map>

#include "fuzz/selections.h"

// Which GPUs a CUDA program would see. An input is an environment, one variable a line.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using zeus::fuzz::require;
  constexpr const char* kCuda = "CUDA_VISIBLE_DEVICES";
  std::map<std::string, std::string, std::less<>> variables;
  std::string_view text = zeus::fuzz::text_of(data, size);
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  const zeus::Environment environment = [&](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  };
  const zeus::Selection s = zeus::visible_gpus(zeus::fuzz::machine(), environment);
  zeus::fuzz::check(s, zeus::DeviceInfo::Kind::gpu);

  const bool told = environment(kCuda).has_value();
  bool named = s.source == "all GPUs" && !told;
  for (const char* name : {kCuda, "SLURM_STEP_GPUS", "SLURM_JOB_GPUS"}) {
    const auto value = environment(name);
    named = named || (value && s.source == std::string(name) + '=' + *value);
  }
  require(named);
  require(told == s.source.starts_with(kCuda));
  require(!s.ids.empty() || (told && !s.problems.empty()));  // Nothing is left out in silence.
  return 0;
}
