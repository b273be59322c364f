/* The C API of Zeus: stable from version 1.0 on. Structures grow at their end only; the caller says
 * how long his are. Every function may be called from any thread; a window belongs to the thread
 * that uses it. Nothing here prints, exits, installs a signal handler or reads the environment. */
#ifndef ZEUS_ZEUS_H
#define ZEUS_ZEUS_H

#include <stddef.h>
#include <stdint.h>

/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming): C's own ways. */

#define ZEUS_C_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** What a call came to. The same meanings as zeus::Errc. */
typedef enum zeus_status {
  ZEUS_OK = 0,
  ZEUS_ABSENT = 1,      /**< The hardware or its driver is not on this machine. */
  ZEUS_DENIED = 2,      /**< It is there, but this process may not touch it. */
  ZEUS_UNSUPPORTED = 3, /**< It is there, but this model cannot do that. */
  ZEUS_LOST = 4,        /**< It was there and has gone. */
  ZEUS_BUSY = 5,        /**< It may work if tried again. */
  ZEUS_INVALID = 6,     /**< The caller asked for something meaningless. */
  ZEUS_MALFORMED = 7    /**< The hardware answered something that cannot be read. */
} zeus_status;

typedef struct zeus_monitor zeus_monitor; /**< A machine that is being watched. */
typedef struct zeus_window zeus_window;   /**< A stretch being measured. */
typedef struct zeus_record zeus_record;   /**< What one window read; reused without allocation. */

/** How to open a machine. Zero it, set `size`, then what differs from the default. */
typedef struct zeus_options {
  size_t size; /**< sizeof(zeus_options). */
  /** Which GPUs: "0,2", UUIDs, PCI addresses, "all", "none". Null: see `environment`. */
  const char* gpus;
  /** Which CPU packages, in the same way. Null: all. */
  const char* cpus;
  /** Pass `getenv` and, where `gpus` is null, CUDA_VISIBLE_DEVICES and its kin choose the GPUs as
   * they would for a CUDA program; and the user's tables of sensors are read, what `zeus calibrate`
   * wrote among them. Null: all GPUs, and the table that is compiled in. */
  char* (*environment)(const char* name);
  /** Seconds between two samples of the sampler; 0: as seldom as the sensors allow. */
  double period_s;
  /** 1: zeus_begin() waits for counters to tick, zeus_end() for the ticks after; for short windows
   * with quiet devices around. 0: neither waits. */
  int align_to_ticks;
} zeus_options;

/**
 * Opens the machine at `address` ("local:", "sim:h100x8", "zeusd:node1") and watches its energy.
 * Null is "local:" or, with `environment`, what the daemon that ZEUSD_SOCK_PATH or ZEUSD_HOST_PORT
 * names serves of it: one that does not answer is an error. ZEUSD_TOKEN is what it may ask for.
 * `options` may be null. On success `*out` is a monitor, to be closed by zeus_close().
 * On failure zeus_error() has one sentence for a person.
 */
ZEUS_C_API zeus_status zeus_open(const char* address, const zeus_options* options,
                                 zeus_monitor** out);
/** Ends the monitor; all its windows must have ended. Records stay valid. Null is allowed. */
ZEUS_C_API void zeus_close(zeus_monitor* monitor);
/** Why the last call of this thread failed: one sentence. Valid until its next call. */
ZEUS_C_API const char* zeus_error(void);

/** One domain of energy: a GPU, a CPU package, its DRAM ... */
typedef struct zeus_domain_info {
  size_t size;        /**< Set by the caller: sizeof(zeus_domain_info). */
  const char* domain; /**< "gpu:0", "package:1". */
  const char* device; /**< Stable id: a UUID, "package-0". */
  const char* model;  /**< "NVIDIA H200". */
  const char* sensor; /**< "energy", "power_instant". */
  /** 1 where the total contains it as a part of its own; 0 where another domain covers it. */
  int in_total;
} zeus_domain_info;

ZEUS_C_API size_t zeus_domain_count(const zeus_monitor* monitor);
/** The strings belong to the monitor. ZEUS_INVALID if `index` is out of range. */
ZEUS_C_API zeus_status zeus_domain(const zeus_monitor* monitor, size_t index,
                                   zeus_domain_info* out);
/** What could not be measured, one sentence each; null past the last. */
ZEUS_C_API const char* zeus_problem(const zeus_monitor* monitor, size_t index);
/** The name of the scenario where the machine is simulated; null where it is real. */
ZEUS_C_API const char* zeus_simulation(const zeus_monitor* monitor);

/** Begins a window. Windows nest and overlap freely. Null only where memory ran out. */
ZEUS_C_API zeus_window* zeus_begin(zeus_monitor* monitor, const char* name);
/** Ends a window of this monitor; `record` receives what was read. */
ZEUS_C_API zeus_status zeus_end(zeus_monitor* monitor, zeus_window* window, zeus_record* record);
/** An iteration of a periodic load begins now: tells whether it runs in step with a sensor. */
ZEUS_C_API void zeus_mark(zeus_monitor* monitor);
/** Abandons a window. Null is allowed. */
ZEUS_C_API void zeus_abandon(zeus_window* window);

/** An empty record, to be freed by zeus_record_free(). Null where memory ran out. */
ZEUS_C_API zeus_record* zeus_record_new(void);
ZEUS_C_API void zeus_record_free(zeus_record* record);
/** Length of the window in seconds, by the monotonic clock. */
ZEUS_C_API double zeus_seconds(const zeus_record* record);

/** Bits of zeus_estimate.flags: those of zeus::Flag. */
#define ZEUS_FLAG_MISSING 1u            /**< Nothing was read: the value is NaN, never zero. */
#define ZEUS_FLAG_SHORT_WINDOW 2u       /**< The edges cost more than 1 % of the energy. */
#define ZEUS_FLAG_GAP 4u                /**< A wrap, or a stretch of power, may have been missed. */
#define ZEUS_FLAG_RESET 8u              /**< The counter started anew or jumped. */
#define ZEUS_FLAG_GAIN_UNKNOWN 16u      /**< u_abs cannot include the sensor's gain. */
#define ZEUS_FLAG_RANGE_UNKNOWN 32u     /**< There is no hard bound above. */
#define ZEUS_FLAG_INTEGRATED 64u        /**< From samples of power. */
#define ZEUS_FLAG_BELOW_RESOLUTION 128u /**< The counter did not move in so short a window. */
#define ZEUS_FLAG_STALLED 256u          /**< The counter did not move although it should have. */
#define ZEUS_FLAG_SHARED 512u           /**< Others' use of the device is in it. */
#define ZEUS_FLAG_DISAGREE 1024u        /**< Counter and power contradict each other. */
#define ZEUS_FLAG_PARTIAL_COVERAGE (1u << 11)    /**< It looks at less than 95 % of the time. */
#define ZEUS_FLAG_COVERAGE_UNVERIFIED (1u << 12) /**< What it does not see is not proven. */
#define ZEUS_FLAG_ALIASED (1u << 13)             /**< The load runs in step with the sensor. */
#define ZEUS_FLAG_NO_PAD (1u << 14)              /**< A running mean without quiet power around. */
#define ZEUS_FLAG_PROFILE_MISMATCH (1u << 15)    /**< It does not behave as its profile says. */
#define ZEUS_FLAG_MISSED_TICKS (1u << 16)        /**< Readings were missed. */
#define ZEUS_FLAG_UNCALIBRATED_GAIN (1u << 17)   /**< Its gain is a prior of other devices. */
#define ZEUS_FLAG_UNIT_SUSPECT (1u << 18)        /**< Two sensors differ as two units do. */
#define ZEUS_FLAG_MODELLED (1u << 19)            /**< Computed by a model, not measured. */

/** Joules with what is known about their error. Standard uncertainties are k = 1. */
typedef struct zeus_estimate {
  size_t size;          /**< Set by the caller: sizeof(zeus_estimate). */
  double energy_j;      /**< NaN where there is no number. */
  double u_abs_j;       /**< Of the value. */
  double u_cmp_j;       /**< For comparing windows of one sensor: without its gain. */
  double low_j, high_j; /**< Hard bound; infinite above where none is known. */
  uint32_t flags;       /**< ZEUS_FLAG_... */
  /** How far comparisons may rely on it: 'A' to 'D', or 'R': refused, there is no number. */
  char quality, quality_abs;
  int refusal;                            /**< 0, or n: the reason Rn. */
  double interval_low_j, interval_high_j; /**< Twice the standard uncertainty, within the bound. */
  double coverage;                        /**< Share of the time looked at; NaN: unknown. */
  /** What u is made of, in joules (k = 1). */
  double u_edges_j, u_quantum_j, u_timing_j, u_coverage_j, u_lag_j, u_gain_j, u_offset_j;
} zeus_estimate;

/** Instead of a domain's index: the whole machine, each joule once. */
#define ZEUS_TOTAL ((size_t)-1)

/** The energy of a domain (by its index in the monitor that made the record) or ZEUS_TOTAL. */
ZEUS_C_API zeus_status zeus_energy(const zeus_record* record, size_t domain, zeus_estimate* out);

/** "0.1.0" */
ZEUS_C_API const char* zeus_version(void);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */

#endif
