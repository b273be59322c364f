#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "device/select.h"

// Which GPUs a CUDA program would see. The rules are the driver's own; they are not written down in
// one place: NVIDIA's CUDA and MIG guides give the forms, and PyTorch's torch/cuda/__init__.py, a
// parser that follows the driver, gives what happens to lists that are not valid.

namespace zeus {
namespace {

using Devices = std::vector<const Device*>;
constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";
constexpr std::size_t kMostGpus = 1024;  // Of a node, so that "0-4000000000" ends.
constexpr std::string_view kGpu = "GPU-", kPartition = "MIG-";

/// One thing that CUDA can run on: a GPU, or a partition of one.
struct Target {
  const Device* device;
  std::string partition{};  ///< Its id; empty: the whole GPU.
};

/// In the order in which CUDA counts: whole GPUs, then the first partition of all.
std::vector<Target> enumerate(const Devices& gpus) {
  std::vector<Target> targets;
  for (const Device* d : gpus) {
    if (!d->info.partitioned) targets.push_back({d});
  }
  const auto cut = std::find_if(gpus.begin(), gpus.end(),
                                [](const Device* d) { return !d->info.partitions.empty(); });
  if (cut != gpus.end()) targets.push_back({*cut, (*cut)->info.partitions.front()});
  return targets;
}

/// The number that an entry begins with, as strtoul reads it: "1gpu" is 1, "+1" is 1.
std::optional<unsigned> number(std::string_view entry) {
  if (entry.starts_with('+')) entry.remove_prefix(1);
  unsigned value = 0;
  const auto [end, ec] = std::from_chars(entry.data(), entry.data() + entry.size(), value);
  return ec == std::errc{} ? std::optional(value) : std::nullopt;
}

bool alike(const Devices& gpus) {
  return std::all_of(gpus.begin(), gpus.end(),
                     [&](const Device* d) { return d->info.model == gpus.front()->info.model; });
}

bool mixed(const Devices& gpus) {
  const auto cut =
      std::count_if(gpus.begin(), gpus.end(), [](const Device* d) { return d->info.partitioned; });
  return cut != 0 && cut != static_cast<std::ptrdiff_t>(gpus.size());
}

class Reader {
 public:
  Reader(const Machine& machine, const Environment& environment) : environment_(environment) {
    for (const Device& d : machine.devices) {
      if (d.info.kind != DeviceInfo::Kind::gpu) continue;
      (d.info.backend == "nvml" ? gpus_ : others_).push_back(&d);
    }
  }

  Selection run() {
    if (const auto list = environment_(kVariable)) {
      read_cuda(*list);
    } else if (!read_slurm("SLURM_STEP_GPUS") && !read_slurm("SLURM_JOB_GPUS")) {
      out_.source = "all GPUs";
      for (const Target& t : enumerate(gpus_)) take(t);
      warn_about_order();
    }
    for (const Device* d : others_) choose(out_, *d, false);  // Not CUDA's to hide.
    return std::move(out_);
  }

 private:
  void problem(Errc code, std::string detail) {
    out_.problems.push_back({source_, {code, 0, std::move(detail)}});
  }

  void take(const Target& target) {
    const Device& device = *target.device;
    const std::string& asked = target.partition.empty() ? device.info.id : target.partition;
    const bool shared = device.info.partitioned || asked != device.info.id;
    choose(out_, device, shared);
    if (shared) out_.problems.push_back({out_.source, shared_by(asked, device)});
  }

  void read_cuda(const std::string& list) {
    source_ = kVariable;
    out_.source = source_ + '=' + list;
    const auto asked = entries(list);
    const bool by_name = asked[0].starts_with(kGpu) || asked[0].starts_with(kPartition);
    const auto targets = by_name ? read_names(asked) : read_numbers(asked);
    for (const Target& target : targets) take(target);
    if (!by_name && !targets.empty()) {
      warn_about_order();
      warn_about_mix();
    }
    if (targets.empty() && !gpus_.empty() && out_.problems.empty()) {
      problem(Errc::absent, out_.source + " leaves no GPU to be measured; name some, or unset it");
    }
  }

  std::vector<Target> read_numbers(const std::vector<std::string>& asked) {
    const auto all = enumerate(gpus_);
    std::vector<unsigned> numbers;
    for (const std::string& entry : asked) {
      const auto n = number(entry);
      if (!n) {
        // A "-1" and an empty entry are how one ends a list on purpose.
        if (!entry.empty() && entry[0] != '-' && entry != "NoDevFiles") tell_end(entry);
        break;
      }
      if (std::find(numbers.begin(), numbers.end(), *n) != numbers.end()) return twice(entry);
      numbers.push_back(*n);
    }
    std::vector<Target> taken;
    for (const unsigned n : numbers) {
      if (n >= all.size()) {
        tell_end(std::to_string(n));
        break;
      }
      taken.push_back(all[n]);
    }
    return taken;
  }

  std::vector<Target> read_names(const std::vector<std::string>& asked) {
    const std::string_view form = asked[0].starts_with(kGpu) ? kGpu : kPartition;
    std::vector<Target> taken;
    for (const std::string& entry : asked) {
      if (!entry.starts_with(form)) {
        if (!entry.empty() && entry[0] != '-') tell_end(entry);
        break;
      }
      const bool partition = form == kPartition;
      const Device* device = partition ? parent_of(gpus_, entry) : by_id(gpus_, entry);
      if (device == nullptr) {
        tell_end(entry);
        break;
      }
      const std::string id = partition ? entry : "";
      const bool again = std::any_of(taken.begin(), taken.end(), [&](const Target& t) {
        return t.device == device && t.partition == id;
      });
      if (again) return twice(entry);
      taken.push_back({device, id});
    }
    return taken;
  }

  std::vector<Target> twice(const std::string& entry) {
    problem(Errc::invalid, out_.source + " names " + entry +
                               " twice: CUDA then shows no GPU at all, and none is measured");
    return {};
  }

  void tell_end(const std::string& entry) {
    problem(Errc::invalid, "CUDA stops reading " + out_.source + " at \"" + entry +
                               "\", which is none of its GPUs (" + std::to_string(gpus_.size()) +
                               " here); what follows is not measured");
  }

  void warn_about_order() {
    if (gpus_.size() < 2 || alike(gpus_) || environment_("CUDA_DEVICE_ORDER") == "PCI_BUS_ID") {
      return;
    }
    out_.problems.push_back(
        {"CUDA_DEVICE_ORDER",
         {Errc::invalid, 0,
          "the GPUs differ and CUDA counts the fastest first, so that its numbers may mean other "
          "GPUs than ours; set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID"}});
  }

  void warn_about_mix() {
    if (!mixed(gpus_)) return;
    problem(
        Errc::invalid,
        "some GPUs are partitioned (MIG): CUDA counts the whole ones first, then one partition; "
        "name GPUs by UUID to be sure of the choice");
  }

  /// What the scheduler gave to this job, where nothing was told to CUDA.
  bool read_slurm(const char* variable) {
    const auto list = environment_(variable);
    if (!list || list->empty() || gpus_.empty()) return false;
    Devices chosen;
    std::size_t asked = 0;
    for (const std::string& entry : entries(*list)) {
      const auto first = number(entry);
      if (!first) return false;
      const auto dash = entry.find('-');  // "0-3"
      const auto last =
          dash == std::string::npos ? first : number(std::string_view(entry).substr(dash + 1));
      for (unsigned n = *first; last && n <= *last && asked < kMostGpus; ++n, ++asked) {
        const auto it = std::find_if(gpus_.begin(), gpus_.end(),
                                     [n](const Device* d) { return d->info.index == n; });
        if (it != gpus_.end()) chosen.push_back(*it);
      }
    }
    source_ = variable;
    out_.source = source_ + '=' + *list;
    if (chosen.size() != asked || asked == 0) {
      // The numbers are the node's; a cgroup that hides the other GPUs has these counted anew.
      if (gpus_.size() != asked) {
        problem(Errc::invalid, out_.source + " does not fit the " + std::to_string(gpus_.size()) +
                                   " GPUs that are seen here; all of them are measured");
      }
      chosen = gpus_;
    }
    for (const Device* d : chosen) take({d});
    return true;
  }

  const Environment& environment_;
  Devices gpus_, others_;
  std::string source_ = kVariable;  // The variable that decides.
  Selection out_;
};

}  // namespace

const Device* parent_of(const Devices& devices, std::string_view partition) {
  if (!partition.starts_with(kPartition)) return nullptr;
  if (const auto slash = partition.find('/'); slash != std::string_view::npos) {
    return by_id(devices, partition.substr(kPartition.size(), slash - kPartition.size()));
  }
  const Device* found = nullptr;
  for (const Device* d : devices) {
    for (const std::string& id : d->info.partitions) {
      if (id == partition) return d;
      if (!id.starts_with(partition)) continue;
      if (found != nullptr) return nullptr;
      found = d;
    }
  }
  return found;
}

Error shared_by(const std::string& partition, const Device& parent) {
  return {Errc::unsupported, 0,
          "the power of a MIG slice does not exist in hardware: for " + partition +
              " the whole GPU " + std::to_string(parent.info.index) + " (" + parent.info.id +
              ") is measured, with whatever its other slices use"};
}

Selection visible_gpus(const Machine& machine, const Environment& environment) {
  return Reader(machine, environment).run();
}

}  // namespace zeus
