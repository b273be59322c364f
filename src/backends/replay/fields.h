#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/replay/samples.h"
#include "backends/replay/wire.h"
#include "zeus/recording.h"

// Structures as bytes: docs/reference/record-format.md, "Structures". What a structure consists of
// stands once, in the list of its fields below, for writing and for reading alike. A new field goes
// to the end of its list: an older file ends before it, and then it keeps its default.

namespace zeus::replay {

/// One sensor of a device, and which others are read with it.
struct SensorRecord {
  SensorInfo info{};
  std::uint32_t source = 0;
};
struct DeviceRecord {
  DeviceInfo info{};
  std::vector<SensorRecord> sensors{};
};
/// What was there to be recorded.
struct MachineRecord {
  std::vector<DeviceRecord> devices{};
  std::vector<Problem> problems{};
  Selections selections{};
};
/// What the monitor made of it: its sensors, their places among the machine's, its domains.
struct SubjectRecord {
  std::vector<SensorInfo> sensors{};
  std::vector<std::uint32_t> places{};
  std::vector<DomainId> domains{};
};
struct EndRecord {
  std::uint64_t lost = 0;
};

/// The greatest value of each enumeration. What lies beyond was written by a later version.
template <class E>
inline constexpr E kLast = E{};
template <>
inline constexpr Errc kLast<Errc> = Errc::malformed;
template <>
inline constexpr Scope kLast<Scope> = Scope::partition;
template <>
inline constexpr Quantity kLast<Quantity> = Quantity::state;
template <>
inline constexpr SensorKind kLast<SensorKind> = SensorKind::model;
template <>
inline constexpr GainClass kLast<GainClass> = GainClass::unit;
template <>
inline constexpr DeviceInfo::Kind kLast<DeviceInfo::Kind> = DeviceInfo::Kind::board;

/// Times are within a hundred years of their epoch, so that no difference of two overflows.
inline constexpr std::int64_t kMostNs = std::int64_t{1} << 61;

template <class T>
inline constexpr bool kIsTime = false;
template <class R, class P>
inline constexpr bool kIsTime<std::chrono::duration<R, P>> = true;
template <class C, class D>
inline constexpr bool kIsTime<std::chrono::time_point<C, D>> = true;

inline std::int64_t nanoseconds(Duration d) { return d.count(); }
template <class C, class D>
std::int64_t nanoseconds(std::chrono::time_point<C, D> t) {
  return std::chrono::duration_cast<Duration>(t.time_since_epoch()).count();
}

// --- the fields ---

template <class Io>
void fields(Io& io, typename Io::template Of<Simulation> s) {
  io(s.scenario, s.session, s.files);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Replay> r) {
  io(r.file, r.hostname, r.recorded);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Provenance> p) {
  io(p.version, p.build, p.hostname, p.kernel, p.address, p.wall, p.at, p.simulation, p.replay);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Error> e) {
  io(e.code, e.vendor, e.detail);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Problem> p) {
  io(p.where, p.error);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Selection> s) {
  io(s.ids, s.shared, s.source, s.problems);
}
template <class Io>
void fields(Io& io, typename Io::template Of<DomainId> d) {
  io(d.scope, d.unit, d.part);
}
template <class Io>
void fields(Io& io, typename Io::template Of<SensorProfile> p) {
  io(p.id, p.update, p.power_max_w, p.gain_u, p.window, p.kind, p.delay, p.tau, p.tau_u, p.coverage,
     p.power_min_w, p.gain, p.offset_w, p.offset_u_w, p.gain_class, p.source);
}
template <class Io>
void fields(Io& io, typename Io::template Of<SensorInfo> s) {
  io(s.name, s.quantity, s.scale, s.wrap, s.domain, s.lineage, s.shared, s.profile, s.by_index);
}
template <class Io>
void fields(Io& io, typename Io::template Of<DeviceInfo> d) {
  io(d.kind, d.backend, d.model, d.id, d.index, d.pci, d.lost, d.partitioned, d.partitions,
     d.facts);
}
template <class Io>
void fields(Io& io, typename Io::template Of<SensorRecord> s) {
  io(s.info, s.source);
}
template <class Io>
void fields(Io& io, typename Io::template Of<DeviceRecord> d) {
  io(d.info, d.sensors);
}
template <class Io>
void fields(Io& io, typename Io::template Of<MachineRecord> m) {
  io(m.devices, m.problems, m.selections);
}
template <class Io>
void fields(Io& io, typename Io::template Of<SubjectRecord> s) {
  io(s.sensors, s.places, s.domains);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Edge> e) {
  io(e.sample, e.slack);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Track> t) {
  io(t.at, t.raw, t.total, t.rough, t.least, t.greatest, t.unseen, t.polls, t.failures, t.resets,
     t.gaps);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Tick> t) {
  io(t.before, t.after, t.raw);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Measurement::Series> s) {
  io(s.begin, s.end, s.before_begin, s.before_end, s.first, s.count, s.earlier, s.later, s.lead,
     s.tail);
}
template <class Io>
void fields(Io& io, typename Io::template Of<Recording::Window> w) {
  // The subject is the recording's.
  auto& m = w.measurement;
  io(m.name, m.wall, m.begin, m.end, m.self_cost, w.from, m.series, m.between, m.marks, m.aligned);
}
template <class Io>
void fields(Io& io, typename Io::template Of<EndRecord> e) {
  io(e.lost);
}

// --- writing ---

class Writer {
 public:
  template <class T>
  using Of = const T&;

  explicit Writer(std::string& out) : out_(out) {}
  template <class... T>
  void operator()(const T&... values) {
    (item(values), ...);
  }

 private:
  template <class T>
  void item(const T& v) {
    if constexpr (std::is_enum_v<T> || std::unsigned_integral<T>) {
      put_varint(out_, static_cast<std::uint64_t>(v));
    } else if constexpr (std::signed_integral<T>) {
      put_varint(out_, zigzag(v));
    } else if constexpr (std::same_as<T, double>) {
      put_fixed(out_, std::bit_cast<std::uint64_t>(v), 8);
    } else if constexpr (kIsTime<T>) {
      put_varint(out_, zigzag(nanoseconds(v)));
    } else {
      std::string inner;
      Writer writer(inner);
      fields(writer, v);
      item(inner);
    }
  }
  void item(const std::string& v) {
    put_varint(out_, v.size());
    out_ += v;
  }
  void item(const Sample& v) {
    item(v.at());
    item(v.raw());
    item(v.error());
  }
  template <class A, class B>
  void item(const std::pair<A, B>& v) {
    item(v.first);
    item(v.second);
  }
  template <class T>
  void item(const std::optional<T>& v) {
    item(v.has_value());
    if (v) item(*v);
  }
  template <class T, std::size_t N>
  void item(const std::array<T, N>& v) {
    for (const T& each : v) item(each);
  }
  template <class T>
  void item(const std::vector<T>& v) {
    put_varint(out_, v.size());
    for (const T& each : v) item(each);
  }
  void item(const std::vector<Sample>& v) { put_run(out_, v); }

  std::string& out_;
};

// --- reading ---

class Reader {
 public:
  template <class T>
  using Of = T&;

  explicit Reader(Bytes& in) : in_(in) {}
  /// What the bytes end before keeps its value.
  template <class... T>
  void operator()(T&... values) {
    ((in_.empty() ? void() : item(values)), ...);
  }

 private:
  template <class T>
  void item(T& v) {
    if constexpr (std::is_enum_v<T>) {
      v = static_cast<T>(up_to(static_cast<std::uint64_t>(kLast<T>)));
    } else if constexpr (std::unsigned_integral<T>) {
      v = static_cast<T>(up_to(std::numeric_limits<T>::max()));
    } else if constexpr (std::signed_integral<T>) {
      const std::int64_t wide = unzigzag(in_.varint());
      v = static_cast<T>(wide);
      if (v != wide) in_.fail();
    } else if constexpr (std::same_as<T, double>) {
      v = std::bit_cast<double>(in_.fixed(8));
    } else if constexpr (kIsTime<T>) {
      const std::int64_t ns = unzigzag(in_.varint());
      if (ns < -kMostNs || ns > kMostNs) return in_.fail();
      v = T(std::chrono::duration_cast<typename duration_of<T>::type>(Duration(ns)));
    } else {
      Bytes inner(in_.take(in_.varint()));
      Reader reader(inner);
      fields(reader, v);
      if (!inner.good()) in_.fail();
    }
  }
  void item(std::string& v) { v = in_.take(in_.varint()); }
  void item(Sample& v) {
    Instant at;
    std::uint64_t raw = 0;
    Errc error{};
    item(at);
    item(raw);
    item(error);
    v = Sample(at, raw, error);
  }
  template <class A, class B>
  void item(std::pair<A, B>& v) {
    item(v.first);
    item(v.second);
  }
  template <class T>
  void item(std::optional<T>& v) {
    bool there = false;
    item(there);
    if (there) item(v.emplace());
  }
  template <class T, std::size_t N>
  void item(std::array<T, N>& v) {
    for (T& each : v) item(each);
  }
  template <class T>
  void item(std::vector<T>& v) {
    v.clear();
    // Each takes a byte at least.
    for (std::uint64_t n = up_to(in_.size()); n > 0 && in_.good(); --n) item(v.emplace_back());
  }
  void item(std::vector<Sample>& v) { v = take_run(in_); }

  template <class T>
  struct duration_of {
    using type = T;
  };
  template <class C, class D>
  struct duration_of<std::chrono::time_point<C, D>> {
    using type = D;
  };
  std::uint64_t up_to(std::uint64_t most) {
    const std::uint64_t v = in_.varint();
    if (v <= most) return v;
    in_.fail();
    return 0;
  }

  Bytes& in_;
};

template <class T>
std::string pack(const T& record) {
  std::string out;
  Writer writer(out);
  fields(writer, record);
  return out;
}

/// False where the bytes cannot be read.
template <class T>
bool unpack(std::string_view bytes, T& record) {
  Bytes in(bytes);
  Reader reader(in);
  fields(reader, record);
  return in.good();
}

}  // namespace zeus::replay
