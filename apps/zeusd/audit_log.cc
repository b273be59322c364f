#include "audit_log.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "daemon.h"

namespace zeus::zeusd {

Result<std::unique_ptr<AuditLog>> AuditLog::open(const std::filesystem::path& file) {
  std::optional<LineFile> lines;
  if (!file.empty()) {
    auto opened = LineFile::open(file);
    if (!opened) {
      const Error& e = opened.error();
      return Error{e.code, e.vendor, e.detail + "; it is named by --audit-log"};
    }
    lines = *std::move(opened);
  }
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(lines)));
}

void AuditLog::add(const Audit& a) {
  nlohmann::ordered_json line = {{"time_ms", unix_ms_now()},  {"who", a.who},   {"gpu", a.gpu},
                                 {"operation", a.operation},  {"from", a.from}, {"to", a.to},
                                 {"status", a.outcome.status}};
  if (!a.lease.empty()) line["lease"] = a.lease.substr(0, 8);
  if (!a.outcome.text.empty()) line["error"] = a.outcome.text.substr(0, 1000);
  const std::string text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  spdlog::info("audit {}", text);
  const std::lock_guard lock(mutex_);
  if (!file_) return;
  const auto written = file_->add(text);
  if (!written && !std::exchange(failing_, true)) {
    spdlog::error("{}; what it lacks is kept, and no write is done until it has it",
                  written.error().detail);
  }
  if (written) failing_ = false;
}

Status AuditLog::ready() {
  const std::lock_guard lock(mutex_);
  if (!file_) return ok();
  if (const auto settled = file_->settle(); !settled) {
    return Error{Errc::lost, settled.error().vendor,
                 fmt::format("nothing was changed, since the audit log must be kept: {}",
                             settled.error().detail)};
  }
  failing_ = false;
  return ok();
}

Status AuditLog::reopen() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return Error{Errc::busy, 0, "the disk of the audit log does not answer"};
  return file_ ? file_->reopen() : ok();
}

}  // namespace zeus::zeusd
