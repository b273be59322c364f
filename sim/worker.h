#pragma once

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace zeus::sim {

/// A thread that does something again and again until it is destroyed. Takes no signals.
class Worker {
 public:
  Worker(std::chrono::milliseconds period, std::function<void()> work)
      : thread_([this, period, work = std::move(work)] { run(period, work); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

 private:
  void run(std::chrono::milliseconds period, const std::function<void()>& work) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    auto next = std::chrono::steady_clock::now();
    std::unique_lock lock(mutex_);
    while (!stop_) {
      lock.unlock();
      work();
      lock.lock();
      next += period;
      if (const auto now = std::chrono::steady_clock::now(); next < now) next = now;
      wake_.wait_until(lock, next, [this] { return stop_; });
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;  // Last: it uses the others.
};

}  // namespace zeus::sim
