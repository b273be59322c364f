#include <gtest/gtest.h>

#include <map>

#include "support/gpus.h"
#include "zeus/device.h"

namespace zeus {
namespace {

using test::four_gpus;
using test::gpu;
using Variables = std::map<std::string, std::string>;
using Indices = std::vector<unsigned>;

Selection visible(const Machine& machine, Variables variables) {
  return visible_gpus(machine, [&](const char* name) -> std::optional<std::string> {
    const auto it = variables.find(name);
    return it == variables.end() ? std::nullopt : std::optional(it->second);
  });
}

Indices indices(const Machine& machine, const Selection& selection) {
  Indices out;
  for (const std::string& id : selection.ids) out.push_back(machine.find(id)->info.index);
  return out;
}

Indices cuda(const Machine& machine, const std::string& list) {
  return indices(machine, visible(machine, {{"CUDA_VISIBLE_DEVICES", list},
                                            {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}));
}

bool tells(const Selection& selection, const std::string& part) {
  for (const Problem& p : selection.problems) {
    if (p.error.detail.find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(VisibleGpus, AreAllWithoutAnyVariable) {
  const Machine machine = four_gpus();
  const auto all = visible(machine, {});
  EXPECT_EQ(indices(machine, all), (Indices{0, 1, 2, 3}));
  EXPECT_EQ(all.source, "all GPUs");
  EXPECT_TRUE(all.problems.empty());
}

// field failure 77: what CUDA does with these five strings, and what PyTorch's parser, which
// follows the driver, does with the others.
TEST(VisibleGpus, FollowTheDriverInListsThatAreNotValid) {
  const Machine machine = four_gpus();
  const std::pair<const char*, Indices> cases[] = {
      {"-1", {}},
      {"0,-1,1", {0}},
      {"0,", {0}},
      {"0,0", {}},
      {"9", {}},
      {"0,2", {0, 2}},
      {"2,0", {2, 0}},
      {" 3 , 1", {3, 1}},
      {"1,9,0", {1}},
      {"0,1,0", {}},
      {",0", {}},
      {"1gpu2,2ampere", {1, 2}},
      {"+1", {1}},
      {"x", {}},
      {"0,x,1", {0}},
      {"0,GPU-33333333", {0}},  // The first entry decides the form.
      {"GPU-33333333,0", {3}},
      {"99999999999999999999", {}},
  };
  for (const auto& [list, expected] : cases) EXPECT_EQ(cuda(machine, list), expected) << list;
}

// field failure 76
TEST(VisibleGpus, AreNamedByUuidOrAPrefixThatFitsOneOnly) {
  const Machine machine = four_gpus();
  const std::pair<const char*, Indices> cases[] = {
      {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", {0}},
      {"GPU-8932f937", {0}},
      {"GPU-1111", {}},  // Two begin so.
      {"GPU-11111", {1}},
      {"GPU-33333333,GPU-8932f937", {3, 0}},
      {"GPU-33333333,GPU-1111,GPU-8932f937", {3}},
      {"GPU-33333333,GPU-3333", {}},  // One GPU by two names is one GPU twice.
      {"0,MIG-aaaa", {0}},
      {"NoDevFiles", {}},
  };
  for (const auto& [list, expected] : cases) EXPECT_EQ(cuda(machine, list), expected) << list;
}

// field failure 78
TEST(VisibleGpus, AreNoneForAnEmptyVariableAndThatIsSaidOnce) {
  const Machine machine = four_gpus();
  for (const char* list : {"", "-1", "NoDevFiles"}) {
    const auto none = visible(machine, {{"CUDA_VISIBLE_DEVICES", list}});
    EXPECT_TRUE(none.ids.empty());
    ASSERT_EQ(none.problems.size(), 1u) << list;
    EXPECT_EQ(none.problems[0].error.code, Errc::absent);
    EXPECT_EQ(none.source, std::string("CUDA_VISIBLE_DEVICES=") + list);
  }
}

TEST(VisibleGpus, TellAtWhichEntryAListEnded) {
  const auto cut = visible(four_gpus(), {{"CUDA_VISIBLE_DEVICES", "0,9,1"}});
  ASSERT_EQ(cut.problems.size(), 1u);
  EXPECT_EQ(cut.problems[0].error.detail,
            "CUDA stops reading CUDA_VISIBLE_DEVICES=0,9,1 at \"9\", which is none of its GPUs (4 "
            "here); what follows is not measured");
}

Machine sliced() {
  Machine machine;
  machine.devices = {
      gpu(0, "GPU-aaaaaaaa-0000-4000-8000-000000000000", "A100",
          {"MIG-377e0049-0000-5000-8000-000000000001", "MIG-4e81b2d7-0000-5000-8000-000000000002"}),
      gpu(1, "GPU-bbbbbbbb-0000-4000-8000-000000000000", "A100")};
  return machine;
}

// field failure 75, field failure 79
TEST(VisibleGpus, OfferTheParentOfASliceAndSayThatItIsShared) {
  const Machine machine = sliced();
  for (const char* list : {"MIG-377e0049-0000-5000-8000-000000000001", "MIG-377e0049",
                           "MIG-GPU-aaaaaaaa-0000-4000-8000-000000000000/1/0"}) {
    const auto one = visible(machine, {{"CUDA_VISIBLE_DEVICES", list}});
    EXPECT_EQ(indices(machine, one), Indices{0}) << list;
    EXPECT_EQ(one.shared, one.ids);
    EXPECT_TRUE(tells(one, "does not exist in hardware")) << list;
  }
  EXPECT_EQ(cuda(machine, "MIG-ffffffff"), Indices{});
  EXPECT_EQ(cuda(machine, "MIG-377e0049,MIG-377e0049"), Indices{});
  EXPECT_EQ(cuda(machine, "MIG-377e0049,MIG-4e81b2d7"), Indices{0});
}

// field failure 83
TEST(VisibleGpus, CountWholeGpusFirstAndThenTheFirstSliceOfAll) {
  const Machine machine = sliced();
  const auto all = visible(machine, {});
  EXPECT_EQ(indices(machine, all), (Indices{1, 0}));
  EXPECT_EQ(all.shared, std::vector{machine.devices[0].info.id});
  EXPECT_EQ(cuda(machine, "0"), Indices{1});
  EXPECT_EQ(cuda(machine, "1"), Indices{0});
  EXPECT_TRUE(tells(visible(machine, {{"CUDA_VISIBLE_DEVICES", "0"}}), "name GPUs by UUID"));
}

// field failure 81
TEST(VisibleGpus, WarnThatAnIndexMayMeanAnotherGpuWhereModelsDiffer) {
  Machine machine;
  machine.devices = {gpu(0, "GPU-a", "T1000"), gpu(1, "GPU-b", "A100")};
  const std::string warning = "CUDA_DEVICE_ORDER=PCI_BUS_ID";
  EXPECT_TRUE(tells(visible(machine, {{"CUDA_VISIBLE_DEVICES", "0"}}), warning));
  EXPECT_TRUE(tells(
      visible(machine, {{"CUDA_VISIBLE_DEVICES", "0"}, {"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}),
      warning));
  EXPECT_FALSE(
      tells(visible(machine, {{"CUDA_VISIBLE_DEVICES", "0"}, {"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}),
            warning));
  EXPECT_FALSE(tells(visible(machine, {{"CUDA_VISIBLE_DEVICES", "GPU-a"}}), warning));
  EXPECT_FALSE(tells(visible(four_gpus(), {{"CUDA_VISIBLE_DEVICES", "0"}}), warning));
}

// field failure 80
TEST(VisibleGpus, AreThoseOfTheJobAndSayWhichVariableDecided) {
  const Machine machine = four_gpus();
  const std::tuple<Variables, Indices, const char*> cases[] = {
      {{{"CUDA_VISIBLE_DEVICES", "3"}}, {3}, "CUDA_VISIBLE_DEVICES=3"},
      {{{"SLURM_JOB_GPUS", "3"}}, {3}, "SLURM_JOB_GPUS=3"},
      {{{"SLURM_JOB_GPUS", "0,3"}, {"SLURM_STEP_GPUS", "0"}}, {0}, "SLURM_STEP_GPUS=0"},
      {{{"SLURM_JOB_GPUS", "1-2"}}, {1, 2}, "SLURM_JOB_GPUS=1-2"},
      {{{"SLURM_JOB_GPUS", "3"}, {"CUDA_VISIBLE_DEVICES", "1"}}, {1}, "CUDA_VISIBLE_DEVICES=1"},
  };
  for (const auto& [variables, expected, source] : cases) {
    const auto chosen = visible(machine, variables);
    EXPECT_EQ(indices(machine, chosen), expected) << source;
    EXPECT_EQ(chosen.source, source);
  }
}

TEST(VisibleGpus, AreCountedAnewWhereACgroupHidesTheOthersOfTheNode) {
  Machine machine;
  machine.devices = {gpu(0, "GPU-a")};  // Number 3 of the node.
  const auto mine = visible(machine, {{"SLURM_JOB_GPUS", "3"}});
  EXPECT_EQ(indices(machine, mine), Indices{0});
  EXPECT_TRUE(mine.problems.empty());
  const Machine four = four_gpus();
  const auto unclear = visible(four, {{"SLURM_JOB_GPUS", "7"}});
  EXPECT_EQ(unclear.ids.size(), 4u);
  EXPECT_TRUE(tells(unclear, "does not fit the 4 GPUs"));
}

TEST(VisibleGpus, LeaveTheGpusOfOtherVendorsAlone) {
  Machine machine = four_gpus();
  machine.devices.push_back(gpu(0, "0000:c1:00.0", "MI300X"));
  machine.devices.back().info.backend = "amdsmi";
  const auto chosen = visible(machine, {{"CUDA_VISIBLE_DEVICES", "1"}});
  EXPECT_EQ(chosen.ids, (std::vector<std::string>{machine.devices[1].info.id, "0000:c1:00.0"}));
}

}  // namespace
}  // namespace zeus
