#include "net/query.h"

#include <cctype>
#include <string>
#include <tuple>

#include "fuzz/fuzz.h"

// Query strings, as the handler of a power limit reads them.

namespace {

using zeus::fuzz::require;

struct Read {
  explicit Read(std::string_view raw) {
    zeus::net::Query query(raw);
    ids = query.text("gpu_ids");
    milliwatts = query.number("power_limit_mw");
    block = query.flag("block");
    lease = query.number_if("lease");
    force = query.flag_if("force");
    note = query.text_if("note");
    fault = query.fault();
  }
  auto values() const { return std::tie(ids, milliwatts, block, lease, force, note); }

  std::string ids, fault;
  std::uint32_t milliwatts = 0;
  bool block = false;
  std::optional<std::uint32_t> lease;
  std::optional<bool> force;
  std::optional<std::string> note;
};

/// The same query with every letter and digit that is no part of an escape as an escape.
std::string rewritten(std::string_view raw) {
  const auto hex = [&](std::size_t i) {
    return i < raw.size() && std::isxdigit(static_cast<unsigned char>(raw[i])) != 0;
  };
  std::string out;
  for (std::size_t i = 0; i < raw.size(); ++i) {
    char escape[4];
    std::snprintf(escape, sizeof escape, "%%%02X", static_cast<unsigned char>(raw[i]));
    if (raw[i] == '%' && hex(i + 1) && hex(i + 2)) {
      out += raw.substr(i, 3);
      i += 2;
    } else if (std::isalnum(static_cast<unsigned char>(raw[i])) != 0) {
      out += escape;
    } else {
      out += raw[i];
    }
  }
  return out;
}

void check_ids(const std::string& list) {
  const auto ids = zeus::net::parse_ids(list);
  if (!ids) {
    require(ids.error().code == zeus::Errc::invalid && !ids.error().detail.empty());
    return;
  }
  std::string again;
  for (std::size_t i = 0; i < ids->size(); ++i) {
    require(i == 0 || (*ids)[i - 1] < (*ids)[i]);
    again += (i == 0 ? "" : ",") + std::to_string((*ids)[i]);
  }
  require(!ids->empty() && *zeus::net::parse_ids(again) == *ids);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view raw = zeus::fuzz::text_of(data, size);
  const Read read(raw), again(rewritten(raw));
  require(read.fault.empty() == again.fault.empty());
  check_ids(std::string(raw));
  if (read.fault.empty()) {
    require(read.values() == again.values());
    require(read.ids.find('\0') == std::string::npos);
    check_ids(read.ids);
    return 0;
  }
  require(read.fault.rfind("Query deserialize error: ", 0) == 0 && read.fault.size() < 300);
  for (const char c : read.fault) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f);
  return 0;
}
