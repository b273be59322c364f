#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "zeus/device.h"

// How devices are named, by people and by variables of the environment.

namespace zeus {

/// The entries between commas, without blanks around them. At least one, which may be empty.
std::vector<std::string> entries(std::string_view list);

/// The parent of a partition, by the partition's id: whole, a prefix that fits one only, or in the
/// old form "MIG-<id of the parent>/1/0". Null if it fits none, or several, or is no partition's.
const Device* parent_of(const std::vector<const Device*>& devices, std::string_view partition);

/// Says that not the partition is measured but its whole parent.
Error shared_by(const std::string& partition, const Device& parent);

/// The device whose id is `name`, or the only one whose id begins with it.
const Device* by_id(const std::vector<const Device*>& devices, std::string_view name);

/// Adds `device` to a choice, once. `shared`: it was asked for by one of its partitions.
void choose(Selection& selection, const Device& device, bool shared);

/// "0 to 3", "0, 2", "none": what there is to choose from.
std::string indices(const std::vector<const Device*>& devices);

}  // namespace zeus
