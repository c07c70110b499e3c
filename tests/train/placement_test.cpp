// Where ranks compute and what carries their collectives, for every wish and every set of hosts.
#include "train/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::test {

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// `ranks` ranks on each of `hosts` hosts with `gpus` GPUs, all of them visible to each rank.
std::vector<RankGpus> cluster(int hosts, int ranks, int gpus) {
  std::vector<RankGpus> all;
  for (int h = 0; h < hosts; ++h) {
    const std::string host = "node" + std::to_string(h);
    for (int r = 0; r < ranks; ++r) {
      RankGpus rank{.host = host, .visible = gpus};
      if (gpus > 0) {
        rank.ordinal = r % gpus;
        rank.gpu = host + "-gpu" + std::to_string(rank.ordinal);
        rank.first = host + "-gpu0";
      }
      all.push_back(rank);
    }
  }
  return all;
}

std::string refusal(DeviceChoice device, CommChoice comm, bool threads,
                    const std::vector<RankGpus>& ranks) {
  std::string text;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    try {
      place_rank(device, comm, threads, ranks, rank);
      ADD_FAILURE() << "rank " << rank << " is placed";
    } catch (const ConfigError& error) {
      EXPECT_TRUE(rank == 0 || text == error.what()) << "ranks differ";
      text = error.what();
    }
  }
  return text;
}

TEST(Placement, WithoutGpusAutoIsTheCpuAndWhatCarriesIt) {
  for (const bool threads : {true, false}) {
    const Placement placement =
        place_rank(DeviceChoice::kAuto, CommChoice::kAuto, threads, cluster(1, 4, 0), 3);
    EXPECT_EQ(placement.device, DeviceKind::kCpu);
    EXPECT_EQ(placement.comm, threads ? CommChoice::kLocal : CommChoice::kMpi);
  }
}

TEST(Placement, GpusThatAreThereAndAreNotUsedAreToldOfWithTheFirstRankThatHasNone) {
  std::vector<RankGpus> ranks = cluster(3, 2, 0);
  EXPECT_FALSE(unused_gpus(ranks)) << "none is there";
  EXPECT_FALSE(unused_gpus(cluster(2, 2, 1))) << "each rank can use one";
  for (RankGpus& rank : ranks) {
    rank.missing = "this host has no driver";
    if (rank.host == "node0") {
      rank.shown = true;
      rank.visible = 2;
    } else if (rank.host == "node1") {
      rank.shown = true;
      rank.missing = "the module is not there";
    }
  }
  EXPECT_EQ(unused_gpus(ranks).value_or(""),
            "no GPU is used: rank 2 on node1 cannot use one: the module is not there");
  ranks.erase(ranks.begin() + 2, ranks.begin() + 4);
  EXPECT_EQ(unused_gpus(ranks).value_or(""),
            "no GPU is used: rank 2 on node2 cannot use one: this host has no driver");
  for (RankGpus& rank : ranks) {
    rank.visible = 0;
  }
  ranks[0].missing = "the module is not there";
  EXPECT_EQ(unused_gpus(ranks).value_or(""),
            "no GPU is used: rank 0 on node0 cannot use one: the module is not there");
}

TEST(Placement, AWishForTheCpuOrTheReferenceIsKeptWhereGpusAre) {
  EXPECT_EQ(place_rank(DeviceChoice::kCpu, CommChoice::kAuto, true, cluster(1, 2, 2), 0).device,
            DeviceKind::kCpu);
  EXPECT_EQ(
      place_rank(DeviceChoice::kReference, CommChoice::kAuto, true, cluster(1, 2, 2), 0).device,
      DeviceKind::kReference);
}

TEST(Placement, AGpuForEachRankIsNccl) {
  for (const bool threads : {true, false}) {
    const auto ranks = cluster(threads ? 1 : 2, 4, 4);
    for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
      const Placement placement =
          place_rank(DeviceChoice::kAuto, CommChoice::kAuto, threads, ranks, rank);
      EXPECT_EQ(placement.device, DeviceKind::kCuda);
      EXPECT_EQ(placement.comm, CommChoice::kNccl);
      EXPECT_EQ(placement.ordinal, rank % 4);
      EXPECT_EQ(placement.sharers, 1);
      EXPECT_TRUE(placement.first_on_gpu);
    }
  }
}

TEST(Placement, ALauncherThatShowsEachRankItsOwnGpuIsNcclToo) {
  std::vector<RankGpus> ranks = cluster(1, 4, 1);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].gpu = ranks[r].first = "gpu" + std::to_string(r);
  }
  const Placement placement = place_rank(DeviceChoice::kCuda, CommChoice::kNccl, false, ranks, 3);
  EXPECT_EQ(placement.comm, CommChoice::kNccl);
  EXPECT_EQ(placement.ordinal, 0);
}

TEST(Placement, ProcessesThatOutnumberGpusTakeThemInTurnOverMpi) {
  const auto ranks = cluster(1, 4, 2);
  const auto at = [&](int rank) {
    return place_rank(DeviceChoice::kAuto, CommChoice::kAuto, false, ranks, rank);
  };
  EXPECT_EQ(at(3).comm, CommChoice::kMpi);
  EXPECT_EQ(at(2).ordinal, 0);
  EXPECT_EQ(at(3).ordinal, 1);
  EXPECT_EQ(at(3).sharers, 2);
  EXPECT_TRUE(at(1).first_on_gpu);
  EXPECT_FALSE(at(3).first_on_gpu);
}

TEST(Placement, ThreadsThatShareMemoryAreAllOnGpuZero) {
  for (const auto& [comm, gpus] :
       {std::pair{CommChoice::kAuto, 2}, std::pair{CommChoice::kLocal, 4}}) {
    const Placement placement = place_rank(DeviceChoice::kCuda, comm, true, cluster(1, 4, gpus), 3);
    EXPECT_EQ(placement.comm, CommChoice::kLocal);
    EXPECT_EQ(placement.ordinal, 0);
    EXPECT_EQ(placement.sharers, 4);
    EXPECT_FALSE(placement.first_on_gpu);
  }
}

TEST(Placement, OneRankNeedsNoNccl) {
  EXPECT_EQ(place_rank(DeviceChoice::kAuto, CommChoice::kAuto, true, cluster(1, 1, 1), 0).comm,
            CommChoice::kLocal);
  EXPECT_EQ(place_rank(DeviceChoice::kAuto, CommChoice::kAuto, false, cluster(1, 1, 1), 0).comm,
            CommChoice::kMpi);
}

TEST(Placement, RefusesTwoRanksOnOneGpuUnderNcclAndNamesBothAndTheWaysOut) {
  const std::string processes =
      refusal(DeviceChoice::kAuto, CommChoice::kNccl, false, cluster(2, 3, 2));
  EXPECT_THAT(processes, AllOf(HasSubstr("ranks 0 and 2"), HasSubstr("GPU 0 of node0"),
                               HasSubstr("2 GPUs for 3 ranks"), HasSubstr("fewer ranks"),
                               HasSubstr("parallel.comm: mpi")));
  EXPECT_THAT(refusal(DeviceChoice::kCuda, CommChoice::kNccl, true, cluster(1, 2, 1)),
              AllOf(HasSubstr("ranks 0 and 1"), HasSubstr("1 GPU for 2 ranks"),
                    HasSubstr("parallel.comm: local")));
}

TEST(Placement, WithoutNcclGpusTalkThroughTheHost) {
  std::vector<RankGpus> ranks = cluster(1, 2, 2);
  ranks[1].nccl = false;
  const Placement placement = place_rank(DeviceChoice::kAuto, CommChoice::kAuto, false, ranks, 1);
  EXPECT_EQ(placement.device, DeviceKind::kCuda);
  EXPECT_EQ(placement.comm, CommChoice::kMpi);
  EXPECT_EQ(placement.ordinal, 1);
  EXPECT_THAT(refusal(DeviceChoice::kAuto, CommChoice::kNccl, false, ranks),
              AllOf(HasSubstr("node0 was built without NCCL"), HasSubstr("mpi")));
}

TEST(Placement, AutoIsTheCpuForAllWhereOneHostHasNoGpu) {
  std::vector<RankGpus> ranks = cluster(2, 1, 1);
  ranks[1] = {.host = "node1"};
  for (int rank : {0, 1}) {
    EXPECT_EQ(place_rank(DeviceChoice::kAuto, CommChoice::kAuto, false, ranks, rank).device,
              DeviceKind::kCpu);
  }
  EXPECT_THAT(refusal(DeviceChoice::kCuda, CommChoice::kAuto, false, ranks),
              AllOf(HasSubstr("rank 1 on node1 has no GPU"), HasSubstr("device: cpu")));
  EXPECT_THAT(refusal(DeviceChoice::kAuto, CommChoice::kNccl, false, ranks),
              AllOf(HasSubstr("rank 1 on node1 has none"), HasSubstr("mpi")));
}

TEST(Placement, RefusesNcclOnCpus) {
  EXPECT_THAT(refusal(DeviceChoice::kCpu, CommChoice::kNccl, true, cluster(1, 2, 2)),
              AllOf(HasSubstr("device is not cuda"), HasSubstr("local")));
}

TEST(Placement, EveryRankLearnsWhatAllSee) {
  const auto thrown = run_local_world(3, {}, [](World& world) {
    const auto host = make_reference_device(1);
    const auto control = world.make_group("control", {0, 1, 2}, *host, nullptr, nullptr);
    const HostMap hosts{.names = {"a", "a", "b"},
                        .ranks_here = world.rank() < 2 ? 2 : 1,
                        .index_here = world.rank() < 2 ? world.rank() : 0};
    const CudaModule module;
    const CudaFound two{.gpus = {"x", "y"}, .module = &module};
    const CudaFound none{.gpus = {"z"}, .missing = "no module"};
    const auto ranks = gather_gpus(*control, hosts, world.rank() < 2 ? two : none);
    ASSERT_EQ(ranks.size(), 3u);
    EXPECT_EQ(ranks[1].host, "a");
    EXPECT_EQ(ranks[1].visible, 2);
    EXPECT_EQ(ranks[1].ordinal, 1);
    EXPECT_EQ(ranks[1].gpu, "y");
    EXPECT_EQ(ranks[1].first, "x");
    EXPECT_FALSE(ranks[1].nccl);
    EXPECT_EQ(ranks[2].visible, 0) << "a GPU without a module is none";
  });
  for (const auto& error : thrown) {
    EXPECT_EQ(error, nullptr);
  }
}

}  // namespace

}  // namespace tandem::test
