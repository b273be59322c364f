#include <gtest/gtest.h>

#include "support/gpus.h"
#include "zeus/device.h"

namespace zeus {
namespace {

using Kind = DeviceInfo::Kind;
using test::four_gpus;
using test::gpu;

std::vector<unsigned> named(const Machine& machine, std::string_view list) {
  std::vector<unsigned> out;
  for (const auto& id : named_devices(machine, Kind::gpu, list).value().ids) {
    out.push_back(machine.find(id)->info.index);
  }
  return out;
}

TEST(NamedDevices, AreIndicesIdsPrefixesAndPciAddresses) {
  const Machine machine = four_gpus();
  const std::pair<const char*, std::vector<unsigned>> cases[] = {
      {"0,2", {0, 2}},
      {" 2, 0 ", {2, 0}},
      {"0,0", {0}},
      {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", {0}},
      {"gpu-8932F937", {0}},
      {"0000:31:00.0", {3}},
      {"00000000:31:00.0", {3}},
      {"1,GPU-3333", {1, 3}},
      {"all", {0, 1, 2, 3}},
      {"none", {}},
      {"", {}},
  };
  for (const auto& [list, expected] : cases) EXPECT_EQ(named(machine, list), expected) << list;
}

TEST(NamedDevices, AcceptAPciAddressInAnyCase) {
  Machine machine;
  machine.devices = {gpu(0, "GPU-a"), gpu(1, "GPU-b")};
  machine.devices[1].info.pci = "0000:c1:00.0";
  EXPECT_EQ(named(machine, "00000000:C1:00.0"), std::vector{1u});
}

TEST(NamedDevices, SayWhichEntryFitsNothingAndWhatThereIs) {
  Machine two;
  two.devices = {gpu(0, "GPU-a"), gpu(2, "GPU-b")};
  const std::tuple<Machine, const char*, const char*> cases[] = {
      {four_gpus(), "9", "there is no GPU 9; this machine has 0 to 3"},
      {four_gpus(), "0,9", "there is no GPU 9; this machine has 0 to 3"},
      {four_gpus(), "-1",
       "there is no GPU \"-1\"; this machine has GPU-8932f937-d72c-4106-c12f-"
       "20bd9faed9f6, GPU-11111111-0000-4000-8000-000000000001, "
       "GPU-11112222-0000-4000-8000-000000000002, "
       "GPU-33333333-0000-4000-8000-000000000003"},
      {two, "1", "there is no GPU 1; this machine has 0, 2"},
      {two, "GPU-c", "there is no GPU \"GPU-c\"; this machine has GPU-a, GPU-b"},
      {two, "GPU-", "\"GPU-\" fits more than one GPU: GPU-a, GPU-b"},
      {two, "0,", "a list of GPUs has an empty entry: remove the comma"},
      {Machine{}, "0", "there is no GPU 0; this machine has none"},
  };
  for (const auto& [machine, list, sentence] : cases) {
    const auto chosen = named_devices(machine, Kind::gpu, list);
    ASSERT_FALSE(chosen) << list;
    EXPECT_EQ(chosen.error().code, Errc::invalid);
    EXPECT_EQ(chosen.error().detail, sentence);
  }
}

TEST(NamedDevices, TakeAllDiesOfASocket) {
  Machine machine;
  for (const char* id : {"package-0-die-0", "package-0-die-1"}) {
    machine.devices.push_back({{.kind = Kind::cpu, .backend = "rapl", .id = id}, {}, {}});
  }
  EXPECT_EQ(named_devices(machine, Kind::cpu, "0").value().ids.size(), 2u);
}

// field failure 79
TEST(NamedDevices, TakeTheParentOfASliceAsShared) {
  Machine machine;
  machine.devices = {gpu(0, "GPU-a", "A100", {"MIG-1", "MIG-2"})};
  const auto chosen = named_devices(machine, Kind::gpu, "MIG-2").value();
  EXPECT_EQ(chosen.ids, std::vector<std::string>{"GPU-a"});
  EXPECT_EQ(chosen.shared, chosen.ids);
  EXPECT_EQ(chosen.source, "--gpus MIG-2");
  EXPECT_EQ(chosen.problems.size(), 1u);
}

// field failure 80
TEST(KeepOnly, DropsTheOthersWithTheirDomainsAndKeepsTheOrderOfTheChoice) {
  Machine machine = four_gpus();
  machine.devices.push_back({{.kind = Kind::cpu, .backend = "rapl", .id = "package-0"}, {}, {}});
  auto chosen = named_devices(machine, Kind::gpu, "3,1").value();
  chosen.shared = {machine.devices[1].info.id};
  for (const Device& d : machine.devices) {
    machine.problems.push_back({"nvml " + d.info.id + " energy", {Errc::unsupported, 0, ""}});
  }
  keep_only(machine, Kind::gpu, chosen);
  EXPECT_EQ(machine.problems.size(), 3u);  // Of two GPUs and the CPU.
  ASSERT_EQ(machine.devices.size(), 3u);
  EXPECT_EQ(machine.devices[0].info.index, 3u);
  EXPECT_EQ(machine.devices[1].info.index, 1u);
  EXPECT_EQ(machine.devices[2].info.id, "package-0");
  EXPECT_EQ(machine.domains.all(), (std::vector<DomainId>{{Scope::gpu, 1}, {Scope::gpu, 3}}));
  EXPECT_FALSE(machine.devices[0].sensors[0].info.shared);
  EXPECT_TRUE(machine.devices[1].sensors[0].info.shared);
}

}  // namespace
}  // namespace zeus
