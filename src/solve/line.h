#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace zeus::solve {

/// A straight line through points by least squares, without keeping them.
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

}  // namespace zeus::solve
