#include "net/discovery.h"

#include <gtest/gtest.h>

namespace zeus::net {
namespace {

std::string fault(std::string_view json) {
  const auto d = parse_discovery(json);
  if (d) return "none";
  EXPECT_EQ(d.error().code, Errc::malformed);
  return d.error().detail;
}

TEST(Discovery, ReadsVersion03WhichKnowsNoGroups) {
  const auto d =
      parse_discovery(R"({"gpu_ids":[0,1],"cpu_ids":[0,1],"dram_available":[true,false]})").value();
  ASSERT_EQ(d.gpus.size(), 2u);
  EXPECT_EQ(d.gpus[1].id, 1);
  EXPECT_FALSE(d.gpus[1].cumulative_energy_available);
  EXPECT_EQ(d.cpus, (std::vector<Discovery::Cpu>{{0, true}, {1, false}}));
  for (const Group g : kGroups) EXPECT_TRUE(d.enables(g));
  EXPECT_FALSE(d.auth_required);
}

TEST(Discovery, ReadsVersion04WithItsGroups) {
  const auto d = parse_discovery(R"({"gpu_ids":[0],"cpu_ids":[],"dram_available":[],)"
                                 R"("enabled_api_groups":["gpu-read"],"auth_required":true})")
                     .value();
  EXPECT_TRUE(d.enables(Group::gpu_read));
  EXPECT_FALSE(d.enables(Group::gpu_control));
  EXPECT_TRUE(d.auth_required);
}

TEST(Discovery, ReadsVersion05WhichHasNoAddresses) {
  const auto d = parse_discovery(R"({"gpus":[{"id":0,"name":"NVIDIA H200"}],)"
                                 R"("cpus":[{"id":0,"dram_available":true}],)"
                                 R"("enabled_api_groups":["gpu-read"],"auth_required":false})")
                     .value();
  EXPECT_EQ(d.gpus, (std::vector<Discovery::Gpu>{{.id = 0, .name = "NVIDIA H200"}}));
  EXPECT_EQ(d.protocol, std::nullopt);
}

TEST(Discovery, ReadsUpstreamsMasterByItsWorkedExample) {
  const auto d = parse_discovery(R"({"gpus":[{"id":0,"name":"NVIDIA H200",)"
                                 R"("pci_address":"0000:19:00.0",)"
                                 R"("cumulative_energy_available":true}],)"
                                 R"("cpus":[{"id":0,"dram_available":true}],"enabled_api_groups":)"
                                 R"(["gpu-control","gpu-read","cpu-read"],"auth_required":false})")
                     .value();
  EXPECT_EQ(d.gpus[0].pci_address, "0000:19:00.0");
  EXPECT_EQ(d.gpus[0].cumulative_energy_available, true);
}

TEST(Discovery, SaysItselfInAFixedOrderWithTheOldArraysBeside) {
  Discovery d;
  d.gpus = {{2, "NVIDIA H200", "0000:19:00.0", true, "GPU-1"}};
  d.cpus = {{0, true}, {1, false}};
  d.enabled_api_groups = {Group::gpu_read, Group::cpu_read};
  d.auth_required = true;
  d.version = "0.1.0";
  d.protocol = 1;
  d.instance = "a1";
  d.features = {"heartbeat", "partial"};
  d.simulation = "h100x8";
  EXPECT_EQ(to_json(d),
            R"({"gpus":[{"id":2,"name":"NVIDIA H200","pci_address":"0000:19:00.0",)"
            R"("cumulative_energy_available":true,"uuid":"GPU-1"}],)"
            R"("cpus":[{"id":0,"dram_available":true},{"id":1,"dram_available":false}],)"
            R"("enabled_api_groups":["gpu-read","cpu-read"],"auth_required":true,)"
            R"("gpu_ids":[2],"cpu_ids":[0,1],"dram_available":[true,false],)"
            R"("version":"0.1.0","protocol":1,"instance":"a1",)"
            R"("features":["heartbeat","partial"],"simulation":{"scenario":"h100x8"}})");
  EXPECT_EQ(parse_discovery(to_json(d)).value(), d);
}

TEST(Discovery, OfARealMachineWithoutDevicesHasEmptyArraysAndNoSimulation) {
  EXPECT_EQ(to_json({}),
            R"({"gpus":[],"cpus":[],"enabled_api_groups":[],"auth_required":false,)"
            R"("gpu_ids":[],"cpu_ids":[],"dram_available":[],"version":"","protocol":1,)"
            R"("instance":"","features":[],"simulation":null})");
}

TEST(Discovery, IsWrittenWhateverBytesADriverTakesForAName) {
  Discovery d;
  d.gpus = {{.id = 0, .name = "\xff\"card\n"}};
  EXPECT_EQ(parse_discovery(to_json(d)).value().gpus[0].name, "\xef\xbf\xbd\"card\n");
}

TEST(Discovery, PassesOverKeysAndGroupsThatItDoesNotKnow) {
  const auto d = parse_discovery(R"({"gpus":[{"id":0,"name":"","later":[]}],"x":{},)"
                                 R"("enabled_api_groups":["dpu-read","cpu-read"]})")
                     .value();
  EXPECT_EQ(d.enabled_api_groups, std::vector<Group>{Group::cpu_read});
}

TEST(Discovery, NamesTheValueThatIsNotWhatItMustBe) {
  const auto names = [](std::string_view json, std::string_view where) {
    EXPECT_NE(fault(json).find(where), std::string::npos) << fault(json);
  };
  names("<html>", "it is no JSON object");
  names("[]", "it is no JSON object");
  names("{}", "gpus is no array");
  names(R"({"gpus":{}})", "gpus is no array");
  names(R"({"gpus":[7]})", "gpus[0] is no object");
  names(R"({"gpus":[{"name":"a"}]})", "gpus[0].id is no number from 0 to 65535");
  names(R"({"gpus":[{"id":-1,"name":"a"}]})", "gpus[0].id is no number from 0 to 65535");
  names(R"({"gpus":[{"id":65536,"name":"a"}]})", "gpus[0].id is no number from 0 to 65535");
  names(R"({"gpus":[{"id":0}]})", "gpus[0].name is no text");
  names(R"({"gpus":[{"id":0,"name":"a","uuid":1}]})", "gpus[0].uuid is no text");
  names(R"({"gpus":[{"id":0,"name":"a"},{"id":0,"name":"b"}]})", "gpus is no list of different");
  names(R"({"gpus":[],"cpus":[{"id":0}]})", "cpus[0].dram_available is no true or false");
  names(R"({"gpu_ids":[0.5]})", "gpu_ids[0] is no number from 0 to 65535");
  names(R"({"gpu_ids":[],"cpu_ids":[0],"dram_available":[true,true]})", "one value a CPU");
  names(R"({"gpus":[],"enabled_api_groups":[1]})", "enabled_api_groups[0] is no text");
  names(R"({"gpus":[],"auth_required":"no"})", "auth_required is no true or false");
  names(R"({"gpus":[],"protocol":"1"})", "protocol is no whole number");
  names(R"({"gpus":[],"protocol":99999999999})", "protocol is no whole number");
  names(R"({"gpus":[],"features":["a",1]})", "features[1] is no text");
  names(R"({"gpus":[],"simulation":{}})", "simulation.scenario is no text");
  names(R"({"gpus":[],"simulation":true})", "simulation is no object");
}

}  // namespace
}  // namespace zeus::net
