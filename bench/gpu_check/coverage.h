#pragma once

// Whether a sensor looks at all of the time, told without a meter from a load that runs in step
// with its publications: specification of accuracy, section 8, Q1. Pure functions.

#include <span>
#include <string>
#include <string_view>

namespace zeus::check {

/// Share of the time in which a wave that is high in [0, `duty`) of each period is high within
/// [phase - window, phase]; all in periods. As a function of the phase: a trapezoid.
double high_share(double phase, double window, double duty) noexcept;

/// Amplitude of the first Fourier component of high_share over the phase, of a swing from -1 to 1:
/// (4 / pi) |sin(pi duty) sinc(window)|, with sinc(x) = sin(pi x) / (pi x).
double first_harmonic(double window, double duty) noexcept;

/// One run of the square load at one start phase.
struct PhaseRun {
  double phase = 0;  ///< Of the sensor's publications after the load's rise, in periods.
  double watts = 0;  ///< Mean over the run as the sensor tells it.
  double u_w = 0;    ///< What is known of its standard uncertainty: resolution.
  double at_s = 0;   ///< Middle of the run, after any origin.
};

/// What the sensor shows of the steady load and without it, in watts.
struct Levels {
  double high_w = 0, low_w = 0;
};

enum class Verdict { unknown, full, sampled };
std::string_view to_string(Verdict verdict) noexcept;

struct Coverage {
  Verdict verdict = Verdict::unknown;
  std::string why;  ///< One sentence.
  /// Window of the sensor in periods, at most 1, and its 95 % interval.
  double window = 0, low = 0, high = 0;
  double mean_w = 0;      ///< Over the runs.
  double expected_w = 0;  ///< duty high_w + (1 - duty) low_w.
  double swing_w = 0;     ///< Between the load's halves while it runs; see tell_coverage().
  /// First Fourier component over the phases, of (high_w - low_w) / 2, and its standard
  /// uncertainty.
  double amplitude = 0, u_amplitude = 0;
};

/// Fits the runs with mean + drift t + swing (high_share(phase - delay, window) - duty) by least
/// squares over delay and window <= 1. Drift takes warming up off. The swing is not that of the
/// levels: between bursts a GPU stays above its idle power. It follows from the mean, which is the
/// load's whatever the sensor looks at: swing = (high_w - mean) / (1 - duty).
///
/// A window lies in the 95 % interval where its best sum of squares exceeds the least one by no
/// more than t^2 s^2, with s^2 the greater of the residuals' variance and that of the resolution,
/// t of Student with n - 4 degrees. `full`: the interval lies above 0.95; `sampled`: below.
/// Unknown, and why, for fewer than six runs, or a load that cannot be seen or did not follow.
Coverage tell_coverage(std::span<const PhaseRun> runs, const Levels& levels, double duty);

}  // namespace zeus::check
