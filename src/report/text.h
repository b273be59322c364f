#pragma once

#include <string>
#include <string_view>

#include "report/run.h"

namespace zeus::report {

struct Style {
  bool color = false;    ///< ANSI escapes: only ever for a terminal.
  bool verbose = false;  ///< Hard bounds, every flag, budgets.
};

/// The report of `zeus run` for people.
std::string to_text(const Run& run, Style style);

/// The table of one window alone: domains, total, what the ± means.
std::string to_text(const WindowResult& window, Style style);

/// "100.3 J ± 0.4 J*", or "not measured: why".
std::string energy_text(const DomainResult& domain);

/// "SIMULATED (scenario h100x8)" in a line of its own; empty for a real machine.
std::string simulated(const std::optional<Simulation>& simulation, Style style);

/// What could not be measured and why; empty if there is nothing.
std::string to_text(const std::vector<Problem>& problems, Style style);

/// "GPUs: 0, 2 (CUDA_VISIBLE_DEVICES=0,2)".
std::string to_text(std::string_view kind, const Selection& selection,
                    const std::vector<DeviceInfo>& devices);

/// What measuring cost, beside `measured_s` seconds of windows whose edges took `edges`.
std::string to_text(const Overhead& overhead, double measured_s, Duration edges);

/// "exit status 3", "killed by signal 9", "still running".
std::string to_text(const Exit& exit);

/// What a flag says is worth a word even where nobody asks for all of them.
bool worth_a_word(Flag flag) noexcept;

/// A number with as many decimals as an uncertainty of two digits leaves it. Never "nan".
std::string rounded(double value, double uncertainty);

/// Without control characters, which a terminal would obey.
std::string printable(std::string_view text);

/// At most so many bytes, "..." instead of what is cut; never within a character.
std::string shortened(std::string text, std::size_t most);

std::string bold(std::string_view text, Style style);

}  // namespace zeus::report
