#include "measure/calibration.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/csv.h"

namespace zeus {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

/// A straight line through points, by least squares.
class Line {
 public:
  void add(double x, double y) noexcept {
    ++n_;
    const auto n = static_cast<double>(n_);
    const double dx = x - mean_x_, dy = y - mean_y_;
    mean_x_ += dx / n;
    mean_y_ += dy / n;
    xx_ += dx * (x - mean_x_);
    xy_ += dx * (y - mean_y_);
    yy_ += dy * (y - mean_y_);
  }
  double slope() const noexcept { return xx_ > 0 ? xy_ / xx_ : 0; }
  double intercept() const noexcept { return mean_y_ - slope() * mean_x_; }
  double squares() const noexcept { return std::max(0.0, yy_ - slope() * xy_); }
  double variation() const noexcept { return yy_; }
  /// Standard uncertainties of slope and intercept.
  std::pair<double, double> u() const noexcept {
    const double variance = squares() / std::max(1.0, static_cast<double>(n_) - 2);
    const double of_mean = variance / static_cast<double>(n_);
    return {std::sqrt(variance / xx_), std::sqrt(of_mean + mean_x_ * mean_x_ * variance / xx_)};
  }

 private:
  std::size_t n_ = 0;
  double mean_x_ = 0, mean_y_ = 0, xx_ = 0, xy_ = 0, yy_ = 0;
};

/// A change between two polls, by their places.
struct Change {
  std::size_t before, after;
};

std::vector<Change> changes_of(std::span<const Sample> polls) {
  std::vector<Change> out;
  std::size_t last = polls.size();
  for (std::size_t i = 0; i < polls.size(); ++i) {
    if (!polls[i].ok()) continue;
    if (last < i && polls[i].raw() != polls[last].raw()) out.push_back({last, i});
    last = i;
  }
  return out;
}

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

/// Stretches in which the meter is steady, and has been for a settling time.
class Steady {
 public:
  static constexpr double kStretch = 0.5;

  Steady(const StepTrace& readings, const StepTrace& meter) {
    double since = meter.begin_s(), low = kInfinity, high = -kInfinity;
    const double end = std::min(meter.end_s(), readings.end_s());
    double used = std::max(meter.begin_s(), readings.begin_s());
    for (double t = meter.begin_s(); t + kSlice <= end; t += kSlice) {
      const double w = meter.mean(t, t + kSlice);
      low = std::min(low, w);
      high = std::max(high, w);
      if (high - low > std::max(3.0, 0.04 * high)) {
        since = t + kSlice;  // The slice itself may hold the step.
        low = kInfinity;
        high = -kInfinity;
      }
      // A slice more ahead: the clocks of meter and sensor differ by less.
      const double from = std::max(used, since + kSettle), to = t - kSlice;
      if (to - from < kStretch) continue;
      pairs.emplace_back(meter.mean(from, from + kStretch), readings.mean(from, from + kStretch));
      used = from + kStretch;
    }
  }
  std::vector<std::pair<double, double>> pairs;  // Meter, sensor.

 private:
  static constexpr double kSlice = 0.1, kSettle = 1.5;
};

std::string_view fact(const DeviceInfo& device, std::string_view name) {
  for (const auto& [key, value] : device.facts) {
    if (key == name) return value;
  }
  return {};
}

std::string number(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
  return {text, end.ptr};
}

constexpr std::string_view kHeader =
    "uuid,driver_min,driver_max,field,kind,update_ms,window_ms,tau_ms,tau_u_ms,coverage,gain,"
    "offset_w,gain_u,offset_u_w,gain_class,source";

/// uuid, driver and field of a row.
using Key = std::tuple<std::string, std::string, std::string>;
std::optional<Key> key_of(std::string_view row) {
  const auto cells = csv_cells(row);
  if (!cells || cells->size() < 4) return std::nullopt;
  return Key{(*cells)[0], (*cells)[1], (*cells)[3]};
}

}  // namespace

StepTrace::StepTrace(std::span<const Point> points) {
  for (const Point& p : points) {
    if (!points_.empty() && p.t_s <= points_.back().t_s) continue;
    sums_.push_back(
        points_.empty() ? 0 : sums_.back() + points_.back().value * (p.t_s - points_.back().t_s));
    points_.push_back(p);
  }
}

std::size_t StepTrace::place(double t_s) const noexcept {
  const auto after = std::upper_bound(points_.begin(), points_.end(), t_s,
                                      [](double t, const Point& p) { return t < p.t_s; });
  return after == points_.begin() ? 0 : static_cast<std::size_t>(after - points_.begin()) - 1;
}

double StepTrace::integral(double t_s) const noexcept {
  const std::size_t i = place(t_s);
  return sums_[i] + points_[i].value * (t_s - points_[i].t_s);
}

double StepTrace::mean(double from_s, double to_s) const noexcept {
  if (to_s <= from_s) return points_[place(to_s)].value;
  return (integral(to_s) - integral(from_s)) / (to_s - from_s);
}

FirstOrder::FirstOrder(const StepTrace& p, double tau_s) : p_(p), tau_s_(tau_s) {
  for (const StepTrace::Point& point : p.points()) {
    shown_.push_back(shown_.empty() ? point.value : after(shown_.size() - 1, point.t_s));
  }
}

double FirstOrder::after(std::size_t i, double t_s) const noexcept {
  const StepTrace::Point& point = p_.points()[i];
  return point.value +
         (shown_[i] - point.value) * std::exp(-std::max(0.0, t_s - point.t_s) / tau_s_);
}

double FirstOrder::at(double t_s) const noexcept { return after(p_.place(t_s), t_s); }

std::vector<Publication> publications(const SensorInfo& sensor, std::span<const Sample> polls,
                                      const Comb& comb, Instant origin) {
  constexpr std::size_t kBlock = 40;  // Combs slip: a phase is told from that many changes.
  const std::vector<Change> changes = changes_of(polls);
  const double period = comb.period_s;
  const bool counter = sensor.quantity == Quantity::energy;
  std::vector<Publication> out;
  double before_s = -kInfinity, before_j = 0;
  Comb near;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    if (i % kBlock == 0 && comb.accepted) {
      const auto last = std::min(i + kBlock, changes.size()) - 1;
      near = fit_phase(
          polls.subspan(changes[i].before, changes[last].after - changes[i].before + 1), period);
    }
    const Sample &before = polls[changes[i].before], &after = polls[changes[i].after];
    const double half = seconds(after.at() - before.at()) / 2;
    const double u = half / std::sqrt(3.0);
    double t = seconds(before.at() - origin) + half;
    if (near.accepted) {
      const double phase = seconds(near.origin - origin) + near.phase_s;
      const double tick = phase + std::round((t - phase) / period) * period;
      if (std::abs(tick - t) <= half + period / 50) t = tick;
    }
    const double value = static_cast<double>(after.raw()) * sensor.scale;
    if (!counter) {
      out.push_back({t, u, value});
    } else {
      const double dt = t - before_s;
      if (after.raw() > before.raw() && std::abs(dt - period) < period / 4) {
        out.push_back({t, u, (value - before_j) / (near.accepted ? period : dt)});
      }
      before_s = t;
      before_j = value;
    }
  }
  return out;
}

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

StepTrace readings(const SensorInfo& sensor, std::span<const Sample> polls, Instant origin) {
  std::vector<StepTrace::Point> points;
  if (sensor.quantity != Quantity::energy) {
    for (const Sample& s : polls) {
      if (!s.ok()) continue;
      points.push_back({seconds(s.at() - origin), static_cast<double>(s.raw()) * sensor.scale});
    }
    return StepTrace(points);
  }
  const std::vector<Change> changes = changes_of(polls);
  for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
    const auto middle = [&](const Change& c) {
      return (seconds(polls[c.before].at() - origin) + seconds(polls[c.after].at() - origin)) / 2;
    };
    const std::uint64_t from = polls[changes[i].after].raw(),
                        to = polls[changes[i + 1].after].raw();
    const double begin = middle(changes[i]), end = middle(changes[i + 1]);
    if (to <= from || end <= begin) continue;
    points.push_back({begin, static_cast<double>(to - from) * sensor.scale / (end - begin)});
  }
  if (!points.empty()) {
    const Change& last = changes.back();
    points.push_back({seconds(polls[last.after].at() - origin), points.back().value});
  }
  return StepTrace(points);
}

Result<GainFit> fit_gain(const StepTrace& readings, const StepTrace& meter, double meter_u) {
  const auto no = [](const char* why) {
    return Error{Errc::unsupported, 0, std::string("cannot tell the gain: ") + why};
  };
  if (readings.empty() || meter.empty()) return no("there are no readings, or none of the meter");
  const auto pairs = Steady(readings, meter).pairs;
  if (pairs.empty()) {
    return no("the meter was never steady for two seconds; let the load hold its level");
  }
  GainFit fit{.low_w = kInfinity, .high_w = -kInfinity, .stretches = pairs.size()};
  Line line;
  for (const auto& [power, shown] : pairs) {
    line.add(power, shown);
    fit.low_w = std::min(fit.low_w, power);
    fit.high_w = std::max(fit.high_w, power);
  }
  if (fit.low_w > 0.75 * fit.high_w || pairs.size() < 4) {
    return no("there was one steady level only; it takes two, one a quarter below the other");
  }
  fit.gain = line.slope();
  fit.offset_w = line.intercept();
  const auto [slope_u, intercept_u] = line.u();
  if (!(fit.gain > 0.01)) return no("the sensor does not follow the meter; is it this device's?");
  fit.gain_u = std::hypot(slope_u / fit.gain, meter_u);
  fit.offset_u_w = intercept_u;
  return fit;
}

Calibration calibrate(const SensorInfo& sensor, std::span<const Sample> polls,
                      const Stimulus& stimulus) {
  Calibration out;
  out.comb = infer_comb(polls);
  if (!out.comb.accepted) {
    out.missing.emplace_back(
        "its update period: the reading did not change often or regularly enough");
  }
  const double update = out.comb.accepted ? out.comb.period_s : seconds(sensor.profile.update);
  const bool metered = !stimulus.meter.empty();
  const StepTrace& did = metered ? stimulus.meter : stimulus.load;
  if (did.empty()) {
    out.missing.emplace_back("its window and gain: that takes a load or a meter");
    return out;
  }
  out.shape = fit_shape(publications(sensor, polls, out.comb, stimulus.origin), did, update);
  if (!out.shape) {
    out.missing.emplace_back("its window: the readings do not follow the " +
                             std::string(metered ? "meter" : "load") +
                             ", or any window would do; it takes power that switches");
  } else if (!metered) {
    // Power is not as square as a load: windows come out up to a fifth wrong (B3).
    out.shape->window_u_s =
        std::hypot(out.shape->window_u_s, 0.2 * out.shape->window_s / std::sqrt(3.0));
  }
  if (out.shape && sensor.quantity == Quantity::energy) {
    const double share = out.shape->window_s / update, u = out.shape->window_u_s / update;
    out.coverage = std::abs(share - 1) <= std::max(2 * u, 0.05) ? 1 : std::min(1.0, share);
  }
  if (metered) {
    auto gain =
        fit_gain(readings(sensor, polls, stimulus.origin), stimulus.meter, stimulus.meter_u);
    if (gain) {
      out.gain = *gain;
    } else {
      out.missing.push_back(gain.error().detail);
    }
  }
  return out;
}

Result<StepTrace> parse_meter(std::string_view csv, std::string_view name, double start_unix_s,
                              double origin_unix_s) {
  CsvLines lines(csv);
  const auto wrong = [&](std::string_view what) {
    return Error{
        Errc::invalid, 0,
        std::string(name) + ':' + std::to_string(lines.number()) + ": " + std::string(what)};
  };
  const auto head = lines.next();
  const auto columns = head ? csv_cells(*head) : std::nullopt;
  if (!columns) return wrong("it is empty; its first line must name columns t_s, power_w");
  std::size_t time = columns->size(), power = columns->size();
  double unit = 1;
  for (std::size_t i = 0; i < columns->size(); ++i) {
    if ((*columns)[i] == "t_s" || (*columns)[i] == "t_ms") {
      time = i;
      unit = (*columns)[i] == "t_ms" ? 1e-3 : 1;
    }
    if ((*columns)[i] == "power_w") power = i;
  }
  if (time == columns->size() || power == columns->size()) {
    return wrong("it must have a column t_s or t_ms, and one power_w");
  }
  std::vector<StepTrace::Point> points;
  while (const auto line = lines.next()) {
    const auto cells = csv_cells(*line);
    if (!cells || cells->size() != columns->size()) return wrong("it has too few or many cells");
    const auto t = parse_real((*cells)[time]), w = parse_real((*cells)[power]);
    if (!t || !w) return wrong("its time or its power is no number");
    points.push_back({*t * unit + start_unix_s - origin_unix_s, *w});
  }
  if (points.size() < 2) return wrong("it holds no readings");
  return StepTrace(points);
}

std::string calibration_row(const DeviceInfo& device, const SensorInfo& sensor,
                            const Calibration& found, std::string_view source) {
  const std::string driver(fact(device, "driver"));
  std::vector<std::string> cells = {device.id, driver, driver, sensor.profile.id};
  const bool counter = sensor.quantity == Quantity::energy;
  const bool exponential = found.shape && found.shape->kind == SensorKind::exponential;
  const auto ms = [](double s) { return number(s * 1e3); };
  const auto put = [&cells](bool known, const std::string& text) {
    cells.push_back(known ? text : "");
  };
  const bool shape = found.shape.has_value();
  put(shape, counter ? "counter" : shape ? to_string(found.shape->kind) : "");
  put(found.comb.accepted, ms(found.comb.period_s));
  put(shape && !counter && !exponential, shape ? ms(found.shape->window_s) : "");
  put(exponential && !counter, shape ? ms(found.shape->window_s) : "");
  put(exponential && !counter, shape ? ms(found.shape->window_u_s) : "");
  put(found.coverage.has_value(), number(found.coverage.value_or(0)));
  const GainFit gain = found.gain.value_or(GainFit{});
  put(found.gain.has_value(), number(gain.gain));
  put(found.gain.has_value(), number(gain.offset_w));
  put(found.gain.has_value(), number(gain.gain_u));
  put(found.gain.has_value(), number(gain.offset_u_w));
  put(found.gain.has_value(), "unit");
  cells.push_back(csv_cell(source));
  std::string out;
  for (const std::string& cell : cells) out += (out.empty() ? "" : ",") + cell;
  return out;
}

Result<std::string> with_calibrations(std::string_view text, std::span<const std::string> rows,
                                      std::span<const std::string> forget) {
  std::string out(kHeader);
  out += '\n';
  CsvLines lines(text);
  if (const auto head = lines.next(); head && *head != kHeader) {
    return Error{
        Errc::invalid, 0,
        "its first line is not that of zeus calibrate; move it away, or into profiles.csv"};
  }
  const auto replaced = [&](const Key& key) {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& r) { return key_of(r) == key; }) ||
           std::find(forget.begin(), forget.end(), std::get<0>(key)) != forget.end();
  };
  while (const auto line = lines.next()) {
    const auto key = key_of(*line);
    if (key && replaced(*key)) continue;
    out += std::string(*line) + '\n';
  }
  for (const std::string& row : rows) out += row + '\n';
  return out;
}

}  // namespace zeus
