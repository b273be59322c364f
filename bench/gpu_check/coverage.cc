#include "gpu_check/coverage.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "solve/statistics.h"

namespace zeus::check {
namespace {

constexpr double kFull = 0.95, kConfidence = 0.95;
constexpr std::size_t kFewest = 6, kParameters = 4;
constexpr double kLeastSwing = 0.05;  // Of the high level: below, there is no load to speak of.
// Between these shares of the steady swing a load has followed its schedule.
constexpr double kSwingLow = 0.25, kSwingHigh = 1.25;
constexpr int kWindows = 100, kDelays = 400;  // The grid, over one period each.

double sinc(double x) noexcept {
  const double y = std::numbers::pi * x;
  return y == 0 ? 1 : std::sin(y) / y;
}

// Time in [0, x) in which the wave is high; x may be negative.
double high_time(double x, double duty) noexcept {
  const double whole = std::floor(x);
  return whole * duty + std::min(x - whole, duty);
}

double mean(std::span<const double> x) noexcept {
  double sum = 0;
  for (const double v : x) sum += v;
  return sum / static_cast<double>(x.size());
}

// The runs without their mean, and a straight line in time that can be taken off anything.
class Data {
 public:
  explicit Data(std::span<const PhaseRun> runs) : runs_(runs), residual_(runs.size()) {
    for (const PhaseRun& r : runs) {
      watts_.push_back(r.watts);
      times_.push_back(r.at_s);
      resolution_ += r.u_w * r.u_w / static_cast<double>(runs.size());
    }
    mean_ = mean(watts_);
    const double middle = mean(times_);
    for (double& t : times_) {
      t -= middle;
      square_ += t * t;
    }
  }
  double mean_w() const noexcept { return mean_; }
  double resolution() const noexcept { return resolution_; }

  // Sum of squares that a swing of that window and delay leaves.
  double left(double swing_w, double window, double delay, double duty) noexcept {
    double shares = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      residual_[i] = high_share(runs_[i].phase - delay, window, duty);
      shares += residual_[i] / static_cast<double>(runs_.size());
    }
    double slope = 0, sum = 0;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      residual_[i] = watts_[i] - mean_ - swing_w * (residual_[i] - shares);
      slope += residual_[i] * times_[i];
    }
    if (square_ > 0) slope /= square_;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const double r = residual_[i] - slope * times_[i];
      sum += r * r;
    }
    return sum;
  }

 private:
  std::span<const PhaseRun> runs_;
  std::vector<double> watts_, times_, residual_;
  double mean_ = 0, square_ = 0, resolution_ = 0;
};

// Mean, drift, cosine and sine over the phase by least squares: the amplitude of the latter two in
// watts and its standard uncertainty. Zero and infinity where the phases do not tell.
std::array<double, 2> harmonic(std::span<const PhaseRun> runs) {
  constexpr std::size_t kN = kParameters;
  double matrix[kN][kN + 1] = {}, middle = 0, length = 1;
  for (const PhaseRun& r : runs) middle += r.at_s / static_cast<double>(runs.size());
  for (const PhaseRun& r : runs) length = std::max(length, std::abs(r.at_s - middle));
  const auto row = [&](const PhaseRun& r) {
    const double turn = 2 * std::numbers::pi * r.phase;
    return std::array<double, kN>{1, (r.at_s - middle) / length, std::cos(turn), std::sin(turn)};
  };
  for (const PhaseRun& r : runs) {
    const auto x = row(r);
    for (std::size_t i = 0; i < kN; ++i) {
      for (std::size_t j = 0; j < kN; ++j) matrix[i][j] += x[i] * x[j];
      matrix[i][kN] += x[i] * r.watts;
    }
  }
  for (std::size_t i = 0; i < kN; ++i) {  // Gauss-Jordan: the matrix is positive definite.
    const double pivot = matrix[i][i];
    if (pivot < 1e-6) return {0, std::numeric_limits<double>::infinity()};
    for (double& v : matrix[i]) v /= pivot;
    for (std::size_t k = 0; k < kN; ++k) {
      const double factor = matrix[k][i];
      for (std::size_t j = 0; k != i && j <= kN; ++j) matrix[k][j] -= factor * matrix[i][j];
    }
  }
  double squares = 0;
  for (const PhaseRun& r : runs) {
    const auto x = row(r);
    double residual = r.watts;
    for (std::size_t i = 0; i < kN; ++i) residual -= matrix[i][kN] * x[i];
    squares += residual * residual;
  }
  const auto n = static_cast<double>(runs.size());
  const double sd = std::sqrt(squares / (n - static_cast<double>(kN)));
  return {std::hypot(matrix[2][kN], matrix[3][kN]), sd * std::sqrt(2 / n)};
}

void fit(Data& data, std::size_t runs, double duty, Coverage& out) {
  std::array<double, kWindows> least{};
  for (int w = 0; w < kWindows; ++w) {
    double best = std::numeric_limits<double>::infinity();
    for (int d = 0; d < kDelays; ++d) {
      best = std::min(best, data.left(out.swing_w, (w + 1.0) / kWindows,
                                      static_cast<double>(d) / kDelays, duty));
    }
    least[static_cast<std::size_t>(w)] = best;
  }
  const auto found = std::min_element(least.begin(), least.end());
  const double freedom = static_cast<double>(runs - kParameters);
  const double t = solve::t_quantile(kConfidence, freedom);
  const double limit = *found + t * t * std::max(*found / freedom, data.resolution());
  const auto window = [&](auto place) {
    return static_cast<double>(place - least.begin() + 1) / kWindows;
  };
  out.window = window(found);
  // Not one step of the grid is believed to be excluded beside what fits.
  const auto fits = [&](double squares) { return squares <= limit; };
  out.low =
      std::min(out.window, window(std::find_if(least.begin(), least.end(), fits))) - 1.0 / kWindows;
  const auto last = std::find_if(least.rbegin(), least.rend(), fits);
  out.high = std::min(1.0, window(last.base() - 1) + 1.0 / kWindows);
}

}  // namespace

double high_share(double phase, double window, double duty) noexcept {
  return (high_time(phase, duty) - high_time(phase - window, duty)) / window;
}

double first_harmonic(double window, double duty) noexcept {
  return 4 / std::numbers::pi * std::abs(std::sin(std::numbers::pi * duty) * sinc(window));
}

std::string_view to_string(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::full: return "full";
    case Verdict::sampled: return "sampled";
    case Verdict::unknown: break;
  }
  return "cannot be told";
}

Coverage tell_coverage(std::span<const PhaseRun> runs, const Levels& levels, double duty) {
  Coverage out;
  const double steady_w = levels.high_w - levels.low_w;
  out.expected_w = duty * levels.high_w + (1 - duty) * levels.low_w;
  if (runs.size() < kFewest) {
    out.why = "fewer than six runs could be measured";
    return out;
  }
  if (!(steady_w > kLeastSwing * levels.high_w)) {
    out.why = "the load changes the power by less than 5 %";
    return out;
  }
  Data data(runs);
  out.mean_w = data.mean_w();
  out.swing_w = (levels.high_w - out.mean_w) / (1 - duty);
  const auto [amplitude, u] = harmonic(runs);
  out.amplitude = amplitude / (steady_w / 2);
  out.u_amplitude = u / (steady_w / 2);
  if (!(out.swing_w > kSwingLow * steady_w && out.swing_w < kSwingHigh * steady_w)) {
    out.why = "the load did not follow its schedule: its mean power does not fit its duty";
    return out;
  }
  fit(data, runs.size(), duty, out);
  if (out.low >= kFull - 1e-9) {
    out.verdict = Verdict::full;
    out.why = "the mean does not depend on the phase of the load";
  } else if (out.high < kFull) {
    out.verdict = Verdict::sampled;
    out.why = "the mean depends on the phase of the load";
  } else {
    out.why = "the runs scatter too much to tell a window of 95 % from a whole period";
  }
  return out;
}

}  // namespace zeus::check
