#pragma once

#include "access.h"
#include "audit_log.h"
#include "live.h"
#include "options.h"
#include "overrides.h"

namespace zeus::zeusd {

/// What a running daemon reads anew on SIGHUP.
struct Reloaded {
  Access& access;
  Live<Overrides>* overrides;  ///< Null where it was given none.
  AuditLog& audit;
};

/// Reads the signing key and the overrides that the options name, and opens the audit log by its
/// name. What is bad is said in the log, and the former stays in use.
void reload(const ServeOptions& options, const Reloaded& parts);

/// The signing key that the options name. The sentence of an error names the option.
Result<zeus::net::SigningKey> load_key(const ServeOptions& options);
Result<Overrides> load_overrides(const ServeOptions& options);  ///< The same; warnings are logged.

}  // namespace zeus::zeusd
