#pragma once

#include <memory>
#include <mutex>
#include <utility>

namespace zeus::zeusd {

/// What an administrator may exchange while the daemon serves. Whoever has taken it keeps what he
/// took.
template <class T>
class Live {
 public:
  explicit Live(std::shared_ptr<const T> value) : value_(std::move(value)) {}
  std::shared_ptr<const T> get() const {
    const std::lock_guard lock(mutex_);
    return value_;
  }
  void set(std::shared_ptr<const T> value) {
    const std::lock_guard lock(mutex_);
    value_ = std::move(value);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const T> value_;
};

}  // namespace zeus::zeusd
