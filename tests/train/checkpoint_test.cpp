// A checkpoint holds the whole state whatever the layout that wrote it, and gives it to any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "core/arena.h"
#include "tests/support/ranks.h"
#include "train/checkpoint/load.h"
#include "train/checkpoint/save.h"
#include "train/run_directory.h"

namespace tandem::test {

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() / ("tandem_checkpoint_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Every kind of cut: an embedding over a vocabulary that no group divides, fused gate and up,
/// rows, vectors that are cut and replicated, a head.
std::vector<ParameterSpec> every_cut() {
  return {{.name = "embed.weight", .shape = {2, 5, 24}, .cut_dimension = 1, .block = "embed"},
          {.name = "norm.weight", .shape = {24}},
          {.name = "fc1.weight", .shape = {8, 24}, .cut_dimension = 0, .parts = 2, .block = "b"},
          {.name = "fc1.bias", .shape = {8}, .cut_dimension = 0, .parts = 2},
          {.name = "fc2.weight", .shape = {24, 4}, .cut_dimension = 1, .block = "b"},
          {.name = "head.weight", .shape = {5, 24}, .cut_dimension = 0, .block = "head"}};
}

constexpr double kPadding = -99.0;

/// The value of an element; never that of padding, which must not reach a file.
double value(std::size_t parameter, Kept kept, std::int64_t element) {
  return 10000.0 * static_cast<double>(parameter) + 1000.0 * (static_cast<double>(kept) + 1.0) +
         static_cast<double>(element);
}

/// One rank's parameters in a layout.
class Model {
 public:
  Model(World& world, Device& device, int tp, DType storage = DType::kF32, bool sharded = false,
        const std::vector<ParameterSpec>& specs = every_cut(), std::int64_t bucket_elements = 32)
      : host_(make_reference_device(1)),
        log_(world.rank()),
        compute_(device.make_stream("compute")),
        store_(Layout{tp, world.size() / tp, world.rank()}) {
    std::vector<int> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    control_ = world.make_group("control", everyone, *host_, nullptr, nullptr);
    context.layout = {tp, world.size() / tp, world.rank()};
    context.precision = {storage, DType::kF32, DType::kF32};
    context.device = &device;
    context.compute = compute_.get();
    context.control = control_.get();
    context.log = &log_;
    Arena measured;
    ParameterStore sizes(context.layout);
    for (const ParameterSpec& spec : specs) {
      store_.add(spec);
      sizes.add(spec);
    }
    const StoreOptions options{
        .moments = 2, .sharded = sharded, .bucket_elements = bucket_elements};
    sizes.allocate(measured, context.precision, options);
    arena_ = std::make_unique<Arena>(device, measured);
    store_.allocate(*arena_, context.precision, options);
    each([&](const Parameter& parameter, Kept kept, std::size_t) {
      set_kept(
          context, parameter, kept,
          std::vector<double>(static_cast<std::size_t>(parameter.local_shape().numel()), kPadding));
    });
  }

  void fill() {
    each([&](const Parameter& parameter, Kept kept, std::size_t i) {
      std::vector<double> values(static_cast<std::size_t>(parameter.local_shape().numel()),
                                 kPadding);
      parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
        for (std::int64_t e = 0; e < length; ++e) {
          values[static_cast<std::size_t>(local + e)] = value(i, kept, global + e);
        }
      });
      set_kept(context, parameter, kept, values);
    });
  }

  void expect_filled() {
    each([&](const Parameter& parameter, Kept kept, std::size_t i) {
      for (const ParameterShard& shard : parameter.shards) {
        const auto values = tensor_of(shard, kept).span<float>();
        parameter.for_each_run_in(
            shard.start, shard.stop(),
            [&](std::int64_t local, std::int64_t global, std::int64_t length) {
              for (std::int64_t e = 0; e < length; ++e) {
                EXPECT_EQ(values[static_cast<std::size_t>(local + e - shard.start)],
                          value(i, kept, global + e))
                    << parameter.name() << " " << name_of(kept);
              }
            });
      }
      // The weight is whole on every rank.
      parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
        for (std::int64_t e = 0; e < length; ++e) {
          const auto master = static_cast<float>(value(i, Kept::kMaster, global + e));
          EXPECT_EQ(parameter.weight.dtype == DType::kBF16
                        ? static_cast<float>(parameter.weight.as<BFloat16>()[local + e])
                        : parameter.weight.as<float>()[local + e],
                    parameter.weight.dtype == DType::kBF16 ? static_cast<float>(BFloat16(master))
                                                           : master)
              << parameter.name();
        }
      });
    });
  }

  ParameterStore& store() { return store_; }

  RankContext context;

 private:
  template <typename Visit>
  void each(Visit&& visit) {
    std::size_t i = 0;
    for (const Parameter& parameter : store_.parameters()) {
      for (const Kept kept : kAllKept) {
        visit(parameter, kept, i);
      }
      ++i;
    }
  }

  std::unique_ptr<Device> host_;
  Logger log_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Communicator> control_;
  ParameterStore store_;
  std::unique_ptr<Arena> arena_;
};

void save(const fs::path& run, int tp, int dp, std::int64_t step, std::int64_t keep = 2,
          double timeout_s = 30, bool sharded = false) {
  Config config;
  config.checkpoint = {.every = 1, .keep = keep};
  const auto body = [&](World& world, Device& device) {
    Model model(world, device, tp, DType::kF32, sharded);
    model.fill();
    CheckpointSaver saver(model.context, config, model.store(), run);
    saver.save({.step = step,
                .consumed_samples = 8 * step,
                .skipped_steps = 1,
                .loss_scale = LossScale{4096.0, 17}});
    // What comes later is not in it.
    for (const Parameter& parameter : model.store().parameters()) {
      for (const ParameterShard& shard : parameter.shards) {
        std::fill_n(shard.master.as<float>(), shard.master.numel(), -1.0f);
      }
    }
    saver.finish();
  };
  run_ranks(tp * dp, body, one_thread_cpu, {.timeout_s = timeout_s});
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const DataError& error) {
    return error.what();
  }
}

struct SavedLayout {
  int tp, dp;
  bool sharded = false;
};
constexpr SavedLayout kLayouts[] = {{1, 1}, {2, 1},       {4, 1},       {1, 2},      {2, 2},
                                    {4, 2}, {1, 2, true}, {2, 2, true}, {1, 5, true}};

// B88, B94, B95: with ZeRO's flat pieces, too, some of which are padding only.
TEST(Checkpoint, IsTheSameUnderEveryLayout) {
  for (const SavedLayout& layout : kLayouts) {
    const Folder folder;
    save(folder.path(), layout.tp, layout.dp, 7, 2, 30, layout.sharded);
    for (const SavedLayout& other : kLayouts) {
      for (const DType storage : {DType::kF32, DType::kBF16}) {
        run_ranks(other.tp * other.dp, [&](World& world, Device& device) {
          Model model(world, device, other.tp, storage, other.sharded);
          std::vector<std::string> skipped;
          const auto checkpoint = newest_whole(folder.path(), skipped);
          ASSERT_NE(checkpoint, nullptr);
          EXPECT_THAT(skipped, testing::IsEmpty());
          EXPECT_EQ(checkpoint->manifest().progress,
                    (Progress{7, 56, 1, 0, LossScale{4096.0, 17}}));
          checkpoint->load(model.context, model.store());
          model.expect_filled();
        });
      }
    }
  }
}

// Flat pieces of one box, of which one is lost, doubled or moved.
TEST(Checkpoint, FlatPiecesThatDoNotFitTogetherAreRefused) {
  const auto refused = [](const std::function<void(Manifest&, std::size_t)>& change) {
    const Folder folder;
    save(folder.path(), 1, 2, 7, 2, 30, true);
    const fs::path directory = folder.path() / "checkpoints/step_00000007";
    Manifest manifest = read_manifest(directory);
    const auto flat = std::find_if(manifest.pieces.begin(), manifest.pieces.end(),
                                   [](const Piece& piece) { return piece.flat_start > 0; });
    change(manifest, static_cast<std::size_t>(flat - manifest.pieces.begin()));
    std::ofstream(directory / kManifestName) << to_json(manifest);
    return refusal([&] { Checkpoint(directory).check_whole(); });
  };
  EXPECT_EQ(refused([](Manifest&, std::size_t) {}), "");
  EXPECT_THAT(refused([](Manifest& manifest, std::size_t flat) {
                manifest.pieces.erase(manifest.pieces.begin() + static_cast<std::ptrdiff_t>(flat));
              }),
              testing::AnyOf(HasSubstr("do not fit together"), HasSubstr("ends at")));
  EXPECT_THAT(refused([](Manifest& manifest, std::size_t flat) {
                manifest.pieces.push_back(manifest.pieces[flat]);
              }),
              HasSubstr("do not fit together"));
  EXPECT_THAT(refused([](Manifest& manifest, std::size_t flat) {
                --manifest.pieces[flat].flat_start;
                --manifest.pieces[flat].flat_stop;
              }),
              HasSubstr("do not fit together"));
  EXPECT_THAT(refused([](Manifest& manifest, std::size_t flat) {
                manifest.pieces[flat].flat_stop = 1 << 30;
              }),
              HasSubstr("has elements"));
}

// B95: five rows of vocabulary over two ranks are six rows of memory and five of the file.
TEST(Checkpoint, HoldsNoPadding) {
  const Folder folder;
  save(folder.path(), 2, 1, 1);
  const Checkpoint checkpoint(folder.path() / "checkpoints/step_00000001");
  std::int64_t rows = 0, elements = 0;
  for (const Piece& piece : checkpoint.manifest().pieces) {
    EXPECT_LE(piece.stop, piece.dimension < 0 ? 1 : piece.shape[piece.dimension] / piece.parts);
    const SafetensorsFile file(checkpoint.directory() / piece.file);
    std::vector<double> values(static_cast<std::size_t>(piece.own_shape().numel()));
    file.read(piece.key, 0, std::ssize(values), values.data());
    EXPECT_THAT(values, testing::Each(testing::Ne(kPadding)));
    if (piece.kept == Kept::kMaster) {
      elements += std::ssize(values);
      rows += piece.tensor == "head.weight" ? piece.stop - piece.start : 0;
    }
  }
  EXPECT_EQ(rows, 5);
  EXPECT_EQ(elements, 240 + 24 + 192 + 8 + 96 + 120);
}

TEST(Checkpoint, TheNewestAreKeptAndTheLastIsNamed) {
  const Folder folder;
  for (const std::int64_t step : {5, 10, 15, 20}) {
    save(folder.path(), 2, 1, step, 3);
  }
  const fs::path all = folder.path() / "checkpoints";
  EXPECT_FALSE(fs::exists(all / "step_00000005"));
  EXPECT_TRUE(fs::exists(all / "step_00000010"));
  std::string latest;
  std::getline(std::ifstream(all / "latest"), latest);
  EXPECT_EQ(latest, "step_00000020");
  EXPECT_EQ(std::distance(fs::directory_iterator(all), fs::directory_iterator()), 4);
}

// A run that went back to an older checkpoint is on a branch of its own: what it writes outlives
// what lies ahead of it.
TEST(Checkpoint, TheBranchOfARunOutlivesALaterOne) {
  const Folder folder;
  const fs::path all = folder.path() / "checkpoints";
  save(folder.path(), 2, 1, 20);
  save(folder.path(), 2, 1, 30);
  CheckpointFolder(folder.path()).name_latest(20);
  save(folder.path(), 2, 1, 22);
  EXPECT_TRUE(fs::exists(all / "step_00000020"));
  EXPECT_TRUE(fs::exists(all / "step_00000022"));
  EXPECT_FALSE(fs::exists(all / "step_00000030"));
  std::vector<std::string> skipped;
  EXPECT_EQ(newest_whole(folder.path(), skipped)->manifest().progress.step, 22);
}

// B92: what a kill leaves, at each place where it may come.
TEST(Checkpoint, AnUnfinishedOneIsPassedOver) {
  const Folder folder;
  const fs::path all = folder.path() / "checkpoints";
  save(folder.path(), 2, 1, 10);
  fs::copy(all / "step_00000010", all / "step_00000020.unfinished");
  std::vector<std::string> skipped;
  EXPECT_EQ(newest_whole(folder.path(), skipped)->manifest().progress.step, 10);
  // Renamed, and `latest` not switched yet.
  save(folder.path(), 2, 1, 20);
  std::ofstream(all / "latest") << "step_00000010\n";
  EXPECT_EQ(newest_whole(folder.path(), skipped)->manifest().progress.step, 10);
  fs::remove(all / "latest");
  EXPECT_EQ(newest_whole(folder.path(), skipped)->manifest().progress.step, 20);
  EXPECT_THAT(skipped, testing::IsEmpty());
}

// B93: four bytes less of one rank's file.
TEST(Checkpoint, ABrokenOneIsPassedOverInWords) {
  const Folder folder;
  const fs::path all = folder.path() / "checkpoints";
  save(folder.path(), 2, 1, 10);
  save(folder.path(), 2, 1, 20);
  const fs::path file = all / "step_00000020/rank_00001.safetensors";
  fs::resize_file(file, fs::file_size(file) - 4);
  std::vector<std::string> skipped;
  EXPECT_EQ(newest_whole(folder.path(), skipped)->manifest().progress.step, 10);
  EXPECT_THAT(skipped,
              testing::ElementsAre(AllOf(HasSubstr(file.string()), HasSubstr("but there are"),
                                         HasSubstr("cut off"))));
  fs::remove_all(all / "step_00000010");
  EXPECT_THAT(refusal([&] { newest_whole(folder.path(), skipped); }),
              AllOf(HasSubstr("none of its checkpoints can be read"),
                    HasSubstr("checkpoint.resume: never")));
}

TEST(Checkpoint, ALyingManifestIsRefusedInWords) {
  const Folder folder;
  save(folder.path(), 2, 1, 10);
  const fs::path directory = folder.path() / "checkpoints/step_00000010";
  std::string text;
  {
    std::ifstream in(directory / kManifestName);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto after = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    std::ofstream(directory / kManifestName) << changed;
    return refusal([&] { Checkpoint(directory).check_whole(); });
  };
  EXPECT_EQ(after("\"version\": 1", "\"version\": 1"), "");
  EXPECT_THAT(after("\"version\": 1", "\"version\": 2"), HasSubstr("has version 2"));
  EXPECT_THAT(after("\"step\": 10", "\"step\": -1"), HasSubstr("'step' is -1"));
  EXPECT_THAT(after("\"step\": 10", "\"step\": 1e99"), HasSubstr("'step' is 1e+99"));
  EXPECT_THAT(after("rank_00000.safetensors", "../../secret"), HasSubstr("outside its directory"));
  EXPECT_THAT(after("rank_00000.safetensors", "rank_00009.safetensors"), HasSubstr("No such file"));
  EXPECT_THAT(after("\"stop\": 3", "\"stop\": 2"), HasSubstr("and its manifest says"));
  EXPECT_THAT(after("\"stop\": 3", "\"stop\": 30"), HasSubstr("lies outside its tensor"));
  EXPECT_THAT(after("\"start\": 0", "\"start\": 1"), HasSubstr("manifest says"));
  EXPECT_THAT(after("\"pieces\": [", "\"pieces\": [[[[[[7]]]]],"), HasSubstr("nested deeper"));
  EXPECT_THAT(after("\"state\": \"master\"", "\"state\": \"maker\""), HasSubstr("'maker'"));
  EXPECT_THAT(after("\"shape\": [", "\"shape\": [9223372036854775807, "),
              HasSubstr("which no tensor has"));
  EXPECT_THAT(after("\"shape\": [", "\"shape\": [1, 1, "), HasSubstr("not a list of 1 to 4"));
  text.resize(text.size() / 2);
  EXPECT_THAT(after("\"version\"", "\"version\""), HasSubstr("cut off"));
}

TEST(Checkpoint, LacksNothingOfWhatIsNeeded) {
  const Folder folder;
  save(folder.path(), 2, 1, 10);
  const fs::path directory = folder.path() / "checkpoints/step_00000010";
  std::string text;
  {
    std::ifstream in(directory / kManifestName);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  const std::size_t at = text.find("\"tensor\": \"fc1.weight\"");
  text.replace(at, 22, "\"tensor\": \"fc9.weight\"");
  std::ofstream(directory / kManifestName) << text;
  EXPECT_THAT(refusal([&] { Checkpoint(directory).check_whole(); }),
              AllOf(HasSubstr("manifest.json: "), HasSubstr("fc1.weight")));
}

// A disk that refuses costs the checkpoint and not the run, and leaves the older one whole.
TEST(Checkpoint, AFailedWriteLeavesTheOlderOnes) {
  const Folder folder;
  save(folder.path(), 2, 1, 10);
  // Where the next one would be written stands a file.
  std::ofstream(folder.path() / "checkpoints/step_00000020.unfinished") << "in the way";
  testing::internal::CaptureStderr();
  save(folder.path(), 2, 1, 20);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("checkpoint of step 20 was not saved"), HasSubstr("Training goes on")));
  std::vector<std::string> skipped;
  EXPECT_EQ(newest_whole(folder.path(), skipped)->manifest().progress.step, 10);
  EXPECT_THAT(skipped, testing::IsEmpty());
}

// A rank whose disk is slow is not a lost one: here its file is a pipe that nobody reads for longer
// than the time-out.
TEST(Checkpoint, ASlowDiskIsNoLostPeer) {
  const Folder folder;
  const fs::path pipe =
      folder.path() / "checkpoints/step_00000010.unfinished/rank_00001.safetensors";
  fs::create_directories(pipe.parent_path());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    std::ifstream in(pipe, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
  });
  testing::internal::CaptureStderr();
  save(folder.path(), 2, 1, 10, 2, 0.5);  // fails the test if a rank throws
  reader.join();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step 10 was not saved"))
      << "no pipe reaches a disk";
}

// Where hosts do not share the folder, rank 0 sees its own host's files alone.
TEST(Checkpoint, IsNotPublishedWithoutAFile) {
  const Folder folder;
  const CheckpointFolder checkpoints(folder.path());
  fs::create_directories(checkpoints.unfinished(10));
  std::ofstream(checkpoints.unfinished(10) / "rank_00000.safetensors") << "there";
  Manifest manifest;
  manifest.progress.step = 10;
  for (int rank = 0; rank < 2; ++rank) {
    ParameterStore store(Layout{2, 1, rank});
    store.add(every_cut().front());
    Arena measuring;
    store.allocate(measuring, Precision{}, {.moments = 2});
    for (WrittenPiece& written : pieces_of(store)) {
      manifest.pieces.push_back(std::move(written.piece));
    }
  }
  EXPECT_THAT(refusal([&] { checkpoints.publish(manifest, 2); }),
              AllOf(HasSubstr("rank_00001.safetensors"), HasSubstr("all hosts share")));
  EXPECT_FALSE(fs::exists(checkpoints.finished(10)));
}

// What is larger than the host's pieces is read in several, wherever they and the shards end.
TEST(Checkpoint, LargeParametersAreReadInPieces) {
  const std::vector<ParameterSpec> specs = {
      {.name = "fc2.weight", .shape = {300, 2000}, .cut_dimension = 1, .block = "b"},
      {.name = "fc1.weight", .shape = {2000, 301}, .cut_dimension = 0, .parts = 2, .block = "b"}};
  ASSERT_GT(specs[0].shape.numel(), 2 * kHostPiece);
  constexpr std::int64_t kBucket = 500000;
  Config config;
  config.checkpoint = {.every = 1, .keep = 2};
  const Folder folder;
  run_ranks(2, [&](World& world, Device& device) {
    Model model(world, device, 2, DType::kF32, false, specs, kBucket);
    model.fill();
    CheckpointSaver saver(model.context, config, model.store(), folder.path());
    saver.save({.step = 10});
    saver.finish();
  });
  Checkpoint written(folder.path() / "checkpoints/step_00000010");
  const fs::path exported = folder.path() / "model.safetensors";
  export_weights(written, specs, exported);
  for (const int tp : {1, 2, 4}) {
    for (const bool sharded : {false, true}) {
      run_ranks(4, [&](World& world, Device& device) {
        Model model(world, device, tp, DType::kBF16, sharded, specs, kBucket);
        Checkpoint(folder.path() / "checkpoints/step_00000010").load(model.context, model.store());
        model.expect_filled();
        for (const Parameter& parameter : model.store().parameters()) {
          set_kept(model.context, parameter, Kept::kMaster,
                   std::vector<double>(static_cast<std::size_t>(parameter.local_shape().numel()),
                                       kPadding));
        }
        import_weights(exported, model.context, model.store());
        model.expect_filled();
      });
    }
  }
}

TEST(Checkpoint, DataRanksShareOutWhatTheyWrite) {
  constexpr std::int64_t kMatrix = 8 * 24, kVector = 8;
  std::vector<std::int64_t> written;
  std::size_t most = 0;
  for (int rank = 0; rank < 2; ++rank) {
    ParameterStore store(Layout{1, 2, rank});
    for (int layer = 0; layer < 4; ++layer) {  // a matrix and a vector in turns
      const std::string name = std::to_string(layer);
      store.add({.name = name + ".weight", .shape = {8, 24}, .block = name});
      store.add({.name = name + ".bias", .shape = {8}});
    }
    Arena measuring;
    store.allocate(measuring, Precision{}, {.moments = 2});
    written.push_back(0);
    for (const WrittenPiece& piece : pieces_of(store)) {
      written.back() += piece.piece.numel();
    }
    most = CheckpointSaver::copy_bytes(store);
  }
  EXPECT_EQ(written[0] + written[1], 3 * 4 * (kMatrix + kVector));
  EXPECT_EQ(written[0], written[1]);
  EXPECT_EQ(most, static_cast<std::size_t>(written[0]) * sizeof(float));
}

TEST(Checkpoint, GoesOutAndInAsOneFile) {
  const Folder folder;
  save(folder.path(), 2, 2, 10);
  const fs::path file = folder.path() / "model.safetensors";
  Checkpoint checkpoint(folder.path() / "checkpoints/step_00000010");
  export_weights(checkpoint, every_cut(), file);
  EXPECT_EQ(SafetensorsFile(file).find("embed.weight").shape,
            (std::vector<std::int64_t>{2, 5, 24}));
  for (const int tp : {1, 2, 4}) {
    run_ranks(tp, [&](World& world, Device& device) {
      Model model(world, device, tp);
      import_weights(file, model.context, model.store());
      std::size_t i = 0;
      for (const Parameter& parameter : model.store().parameters()) {
        parameter.for_each_run([&](std::int64_t local, std::int64_t global, std::int64_t length) {
          for (std::int64_t e = 0; e < length; ++e) {
            EXPECT_EQ(parameter.weight.as<float>()[local + e], value(i, Kept::kMaster, global + e));
          }
        });
        ++i;
      }
    });
  }
}

TEST(Checkpoint, WeightsOfAnotherModelAreRefusedInWords) {
  const Folder folder;
  const fs::path file = folder.path() / "model.safetensors";
  const auto says = [&](const std::vector<SafetensorsItem>& items,
                        const std::vector<ParameterSpec>& parameters) {
    write_safetensors(file, items);
    return refusal([&] { check_weights(file, parameters); });
  };
  const SafetensorsItem none{"a", DType::kF32, {0, 2}, {}};
  const SafetensorsItem extra{"b", DType::kF32, {0}, {}};
  EXPECT_EQ(says({none}, {{.name = "a", .shape = {0, 2}}}), "");
  EXPECT_THAT(says({none}, every_cut()), HasSubstr("has no tensor 'embed.weight'"));
  EXPECT_THAT(says({none}, {{.name = "a", .shape = {2, 0}}}),
              HasSubstr("'a' has shape [0, 2], and this model's has [2, 0]"));
  EXPECT_THAT(says({none, extra}, {{.name = "a", .shape = {0, 2}}}),
              HasSubstr("has a tensor 'b' that this model lacks"));
}

}  // namespace

}  // namespace tandem::test
