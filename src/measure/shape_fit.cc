#include "measure/shape_fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/numbers.h"
#include "solve/line.h"

namespace zeus {
namespace {

using solve::Line;

/// A mean over `width` seconds of p, whose middle is asked for.
class Mean {
 public:
  Mean(const StepTrace& p, double width) : p_(p), half_(width / 2) {}
  double operator()(double t) const noexcept { return p_.mean(t - half_, t + half_); }
  static double delay_of_middle(double width) noexcept { return width / 2; }

 private:
  const StepTrace& p_;
  double half_;
};

/// A first-order response of time constant `width` to p. Its middle is tau ago.
class Decay {
 public:
  Decay(const StepTrace& p, double width) : shown_(p, width), tau_(width) {}
  double operator()(double t) const noexcept { return shown_.at(t + tau_); }
  static double delay_of_middle(double width) noexcept { return width; }

 private:
  FirstOrder shown_;
  double tau_;
};

struct Point {
  double width, shift, squares;
};

/// The search for the best width and shift. The shift is that of the middle: so the two are nearly
/// independent.
template <class Response>
class Search {
 public:
  Search(std::span<const Publication> ticks, const StepTrace& p) : ticks_(ticks), p_(p) {}

  Point best() const {
    Point best{0, 0, kInfinity};
    for (double width = kLeastWidth; width < kMostWidth; width *= 1.3) {
      const Response response(p_, width);
      const double middle = Response::delay_of_middle(width);
      for (double delay = -0.03; delay <= 0.08; delay += std::max(0.005, width / 16)) {
        take(best, response, width, middle + delay);
      }
    }
    double step_w = 0.3 * best.width, step_s = std::max(0.005, best.width / 16);
    for (int round = 0, halved = 0; round < 60 && halved < 10; ++round) {
      const Point at = best;
      for (const double w : {-step_w, 0.0, step_w}) {
        if (at.width + w < kLeastWidth / 4) continue;
        const Response response(p_, at.width + w);
        for (const double s : {-step_s, 0.0, step_s}) {
          take(best, response, at.width + w, at.shift + s);
        }
      }
      if (best.squares < at.squares) continue;  // On, along the ridge.
      step_w /= 2;
      step_s /= 2;
      ++halved;
    }
    return best;
  }

  /// How far the width may be off (k = 1): the squares rise by one variance.
  double width_u(const Point& best) const {
    const double variance = best.squares / (static_cast<double>(ticks_.size()) - 4);
    const double h = 0.1 * best.width;
    const double rise = (least_at(best.width + h, best) + least_at(best.width - h, best)) / 2;
    return rise > best.squares ? h * std::sqrt(variance / (rise - best.squares)) : kInfinity;
  }

  /// How many ticks say anything of the width: those with a step of p at the ends of their window.
  std::size_t telling(const Point& best) const {
    const Response narrow(p_, 0.9 * best.width), wide(p_, 1.1 * best.width);
    std::vector<double> differences;
    double greatest = 0;
    for (const Publication& k : ticks_) {
      const double t = k.t_s - best.shift;
      differences.push_back(std::abs(wide(t) - narrow(t)));
      greatest = std::max(greatest, differences.back());
    }
    return static_cast<std::size_t>(
        std::count_if(differences.begin(), differences.end(),
                      [greatest](double d) { return d > 0.2 * greatest; }));
  }

 private:
  static constexpr double kLeastWidth = 2e-3, kMostWidth = 2.5;

  double squares(const Response& response, double shift) const {
    Line line;
    for (const Publication& k : ticks_) line.add(response(k.t_s - shift), k.power_w);
    return line.squares();
  }
  void take(Point& best, const Response& response, double width, double shift) const {
    const double s = squares(response, shift);
    if (s < best.squares) best = {width, shift, s};
  }
  double least_at(double width, const Point& best) const {
    const Response response(p_, width);
    double least = kInfinity;
    for (int i = -4; i <= 4; ++i) {
      least = std::min(least, squares(response, best.shift + i * 0.02 * best.width));
    }
    return least;
  }

  std::span<const Publication> ticks_;
  const StepTrace& p_;
};

/// The ticks inside the stimulus, thinned where there are more than a fit needs.
std::vector<Publication> inside(std::span<const Publication> ticks, const StepTrace& p) {
  constexpr std::size_t kEnough = 300;
  // What the device did before is not known: no window may reach that far back.
  const double begin = p.begin_s() + (p.end_s() - p.begin_s()) / 20;
  std::vector<Publication> out;
  for (const Publication& k : ticks) {
    if (k.t_s > begin && k.t_s < p.end_s()) out.push_back(k);
  }
  const std::size_t step = out.size() / kEnough + 1;
  std::size_t n = 0;
  for (std::size_t i = 0; i < out.size(); i += step) out[n++] = out[i];
  out.resize(n);
  return out;
}

}  // namespace

std::optional<ShapeFit> fit_shape(std::span<const Publication> ticks, const StepTrace& stimulus,
                                  double update_s) {
  if (stimulus.empty() || update_s <= 0) return std::nullopt;
  const std::vector<Publication> used = inside(ticks, stimulus);
  if (used.size() < 30) return std::nullopt;
  const Search<Mean> means(used, stimulus);
  Point best = means.best();
  double width_u = means.width_u(best);
  std::size_t telling = means.telling(best);
  // A mean within one update remembers nothing of the one before: that is no first-order response.
  bool exponential = false;
  if (best.width > 1.25 * update_s) {
    const Search<Decay> decays(used, stimulus);
    const Point decay = decays.best();
    exponential = decay.squares < best.squares;
    if (exponential) {
      best = decay;
      width_u = decays.width_u(decay);
      telling = decays.telling(decay);
    }
  }
  Line all;
  std::vector<double> times_u;
  for (const Publication& k : used) {
    all.add(k.t_s, k.power_w);
    times_u.push_back(k.t_u_s);
  }
  std::nth_element(times_u.begin(),
                   times_u.begin() + static_cast<std::ptrdiff_t>(times_u.size() / 2),
                   times_u.end());
  ShapeFit fit;
  fit.ticks = used.size();
  fit.r2 = 1 - best.squares / all.variation();
  fit.window_s = best.width;
  // A tick that comes so much earlier or later makes the ramp at either end longer or shorter.
  const double tick_u = times_u[used.size() / 2];
  fit.window_u_s = std::hypot(width_u, 2 * tick_u / std::sqrt(static_cast<double>(telling)));
  fit.delay_s = best.shift - (exponential ? Decay::delay_of_middle(best.width)
                                          : Mean::delay_of_middle(best.width));
  fit.kind = exponential                    ? SensorKind::exponential
             : best.width > 1.25 * update_s ? SensorKind::running
                                            : SensorKind::boxcar;
  if (!(fit.r2 > 0.9) || !(fit.window_u_s < 0.5 * fit.window_s)) return std::nullopt;
  return fit;
}

}  // namespace zeus
