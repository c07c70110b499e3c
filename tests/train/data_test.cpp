// Text to rows: samples worked out by hand, what is held out, and what bad data is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "tests/train/data_test_util.h"

namespace tandem {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::rows_as_text;
using testing::text_config;
using testing::TextFile;

std::string all_rows(const Config& config, std::int64_t samples) {
  const auto source = make_data_source(config, Layout{});
  std::string text;
  for (std::int64_t c = 0; c < samples; ++c) {
    text += rows_as_text(source->fetch_step(c)[0]);
  }
  return text;
}

/// The text of the DataError that opening gives.
std::string refusal(const Config& config) {
  try {
    make_data_source(config, Layout{});
  } catch (const DataError& error) {
    EXPECT_EQ(error.code(), ExitCode::kData);
    return error.what();
  }
  return "no error";
}

TEST(PaddedText, ADocumentIsALineAndEveryTokenButItsFirstIsATargetOnce) {
  const TextFile file("abcde\nxy\n");
  // seq_len 4: "abcde\n" has 5 targets, so it goes on in a second sample that starts at e, with no
  // history from the first; "xy\n" is a sample of its own.
  EXPECT_EQ(all_rows(text_config(file.path(), 4), 3),
            "0: ..a -> b\n"
            "1: .ab -> c\n"
            "2: abc -> d\n"
            "3: bcd -> e\n"
            "4: ..e -> /\n"
            "8: ..x -> y\n"
            "9: .xy -> /\n");
}

TEST(PaddedText, ADocumentOfExactlySeqLenPlusOneTokensIsOneSample) {
  const TextFile file("abcd\nz\n");
  EXPECT_EQ(all_rows(text_config(file.path(), 4), 2),
            "0: ..a -> b\n"
            "1: .ab -> c\n"
            "2: abc -> d\n"
            "3: bcd -> /\n"
            "4: ..z -> /\n");
}

TEST(PaddedText, EmptyLinesGiveNoTarget) {
  const TextFile file("\n\nab\n\nc\n\n");
  EXPECT_EQ(all_rows(text_config(file.path(), 8), 2),
            "0: ..a -> b\n"
            "1: .ab -> /\n"
            "8: ..c -> /\n");
}

TEST(PaddedText, CarriageReturnsAreBytesAndALastLineNeedsNoNewline) {
  const TextFile file("a\r\nbc");
  EXPECT_EQ(all_rows(text_config(file.path(), 8), 2),
            "0: ..a -> \r\n"
            "1: .a\r -> /\n"
            "8: ..b -> c\n");
}

TEST(PackedText, SamplesTakeTheJoinedStreamAndHistoryStopsAtDocuments) {
  Config config = text_config("", 4);
  config.data.documents = Documents::kPacked;
  // 0123 4 5 6 7 89     seq_len 4: samples [0, 4] and [4, 8]; token 9 is left over.
  const TextFile file("ab\ncdef\nz\n");
  config.data.path = file.path();
  EXPECT_EQ(all_rows(config, 2),
            "0: ..a -> b\n"
            "1: .ab -> /\n"
            "2: ab/ -> c\n"  // the first token of a document is a target like any other
            "3: ..c -> d\n"  // and sees nothing of the document before
            "4: ..d -> e\n"  // history starts with the sample
            "5: .de -> f\n"
            "6: def -> /\n"
            "7: ef/ -> z\n");
}

TEST(PackedText, AnEmptyLineIsADocumentOfItsOwn) {
  Config config = text_config("", 4);
  config.data.documents = Documents::kPacked;
  const TextFile file("a\n\n\nb");
  config.data.path = file.path();
  EXPECT_EQ(all_rows(config, 1),
            "0: ..a -> /\n"
            "1: .a/ -> /\n"
            "2: ../ -> /\n"
            "3: ../ -> b\n");
}

TEST(TextRows, ArePaddedTo64WithEmptyRows) {
  const TextFile file("abcde\n");
  Config config = text_config(file.path(), 100);
  const auto source = make_data_source(config, Layout{});
  const MicroBatch& batch = source->fetch_step(0)[0];
  EXPECT_EQ(max_rows(config), 128);
  EXPECT_EQ(batch.tokens, 5);
  ASSERT_EQ(batch.rows, 64);
  ASSERT_EQ(batch.ids.shape, Shape({64, 3}));
  for (std::size_t r = 5; r < 64; ++r) {
    EXPECT_EQ(batch.targets.span<std::int32_t>()[r], -1);
    EXPECT_EQ(batch.row_keys.span<std::int64_t>()[r], -1);
    for (std::size_t j = 0; j < 3; ++j) {
      EXPECT_EQ(batch.ids.span<std::int32_t>()[3 * r + j], -1);
    }
  }
}

TEST(TextRows, DivideByTheTensorParallelSize) {
  const TextFile file("abcde\n");
  Config config = text_config(file.path(), 100);
  config.parallel.tp = 3;
  EXPECT_EQ(row_multiple(config), 192);
  const auto source = make_data_source(config, Layout{.tp = 3, .dp = 1, .rank = 1});
  EXPECT_EQ(source->fetch_step(0)[0].rows, 192);
}

TEST(TextRows, AShorterMicroBatchLeavesNothingOfALongerOne) {
  const TextFile file(std::string(80, 'a') + "\nbc\n");
  const auto source = make_data_source(text_config(file.path(), 100), Layout{});
  EXPECT_EQ(source->fetch_step(0)[0].rows, 128);
  const MicroBatch& batch = source->fetch_step(1)[0];
  EXPECT_EQ(batch.rows, 64);
  EXPECT_EQ(rows_as_text(batch), "100: ..b -> c\n101: .bc -> /\n");
}

TEST(TextRows, MaskedRowsMayStayAndAreThenWithoutTarget) {
  const TextFile file("abcde\nxy\n");
  Config config = text_config(file.path(), 40);
  config.train = {.micro_batch = 2, .global_batch = 2};
  const auto dropped = make_data_source(config, Layout{});
  const auto kept = make_data_source(config, Layout{}, {.keep_masked_rows = true});
  const MicroBatch& few = dropped->fetch_step(0)[0];
  const MicroBatch& many = kept->fetch_step(0)[0];
  EXPECT_EQ(few.rows, 64);
  EXPECT_EQ(many.rows, 128);
  EXPECT_EQ(many.tokens, few.tokens);
  EXPECT_EQ(rows_as_text(many), rows_as_text(few));
  const auto keys = many.row_keys.span<std::int64_t>();
  for (std::int64_t r = 0; r < 128; ++r) {
    EXPECT_EQ(keys[static_cast<std::size_t>(r)], r < 80 ? r : -1);
  }
}

TEST(HeldOut, IsTheLastFractionOfTheDocuments) {
  const TextFile file("aa\nbb\ncc\ndd\nee\nff\ngg\nhh\nii\njj\n");
  Config config = text_config(file.path(), 8);
  config.data.valid_fraction = 0.2;
  const auto source = make_data_source(config, Layout{});
  ASSERT_EQ(source->evaluation_batches(), 2);
  EXPECT_EQ(rows_as_text(source->fetch_evaluation(0)), "0: ..i -> i\n1: .ii -> /\n");
  EXPECT_EQ(rows_as_text(source->fetch_evaluation(1)), "8: ..j -> j\n9: .jj -> /\n");
  // Training goes round the other eight.
  EXPECT_EQ(rows_as_text(source->fetch_step(7)[0]), "56: ..h -> h\n57: .hh -> /\n");
  EXPECT_EQ(rows_as_text(source->fetch_step(8)[0]), "0: ..a -> a\n1: .aa -> /\n");
  EXPECT_THAT(source->describe(), AllOf(HasSubstr(file.path()), HasSubstr("10 documents"),
                                        HasSubstr("8 samples"), HasSubstr("2 held out")));
}

TEST(HeldOut, IsAtLeastOneDocumentAndNeverAll) {
  const TextFile two("aa\nbb\n"), one("aa\n");
  Config config = text_config(two.path(), 8);
  for (const double fraction : {0.001, 0.99}) {
    config.data.valid_fraction = fraction;
    const auto source = make_data_source(config, Layout{});
    ASSERT_EQ(source->evaluation_batches(), 1) << fraction;
    EXPECT_EQ(rows_as_text(source->fetch_evaluation(0)), "0: ..b -> b\n1: .bb -> /\n");
  }
  config.data.path = one.path();
  EXPECT_EQ(make_data_source(config, Layout{})->evaluation_batches(), 0);
  config.data.path = two.path();
  config.data.valid_fraction = 0;
  EXPECT_EQ(make_data_source(config, Layout{})->evaluation_batches(), 0);
}

TEST(HeldOut, OfPackedTextIsReadToItsEnd) {
  const TextFile file("aaaaaa\nbbbb\nccc\n");
  Config config = text_config(file.path(), 6);
  config.data.documents = Documents::kPacked;
  config.data.valid_fraction = 0.5;  // two of three documents: 9 tokens, 8 targets
  const auto source = make_data_source(config, Layout{});
  ASSERT_EQ(source->evaluation_batches(), 2);
  EXPECT_EQ(source->fetch_evaluation(0).tokens, 6);
  EXPECT_EQ(rows_as_text(source->fetch_evaluation(1)), "6: ..c -> c\n7: .cc -> /\n");
}

TEST(BadText, MissingFileIsNamedWithTheReasonAndTheRemedy) {
  EXPECT_THAT(refusal(text_config("/tmp/nonexistent_tandem.txt", 8)),
              AllOf(HasSubstr("data.path"), HasSubstr("/tmp/nonexistent_tandem.txt"),
                    HasSubstr("No such file"), HasSubstr("scripts/prepare_text.sh")));
}

TEST(BadText, DirectoryAndPipeAreRefusedWithoutWaiting) {
  EXPECT_THAT(refusal(text_config("/tmp", 8)), HasSubstr("is a directory"));
  EXPECT_THAT(refusal(text_config("/dev/null", 8)), HasSubstr("is not a regular file"));
}

TEST(BadText, EmptyFileSaysSo) {
  const TextFile file("");
  EXPECT_THAT(refusal(text_config(file.path(), 8)), HasSubstr("is empty: 0 bytes"));
}

TEST(BadText, OnlyEmptyLinesGiveNoTarget) {
  const TextFile file("\n\n\n");
  EXPECT_THAT(refusal(text_config(file.path(), 8)),
              AllOf(HasSubstr(file.path()), HasSubstr("long enough to give a target")));
}

TEST(BadText, PackedTextShorterThanOneSampleSaysWhatWouldFit) {
  const TextFile file("abcd\n");
  Config config = text_config(file.path(), 5);
  config.data.documents = Documents::kPacked;
  EXPECT_THAT(refusal(config), AllOf(HasSubstr("5 training tokens"), HasSubstr("at most 4")));
  config.data.seq_len = 4;
  EXPECT_EQ(refusal(config), "no error");
}

// B13: an id outside the vocabulary is refused with its place, before anything is written.
TEST(BadText, ByteOutsideTheVocabularyIsNamedWithItsPlace) {
  const TextFile file("ab\nc\xff\n");
  Config config = text_config(file.path(), 8);
  config.model.vocab_size = 128;
  EXPECT_THAT(refusal(config),
              AllOf(HasSubstr("model.vocab_size: 128"), HasSubstr(file.path() + ":2:2 (byte 4)"),
                    HasSubstr("is 255"), HasSubstr("at least 256")));
  config.model.vocab_size = 255;
  EXPECT_THAT(refusal(config), HasSubstr("at least 256"));
  config.model.vocab_size = 256;
  EXPECT_EQ(refusal(config), "no error");
}

TEST(BadText, FileThatShrinksUnderARunIsAnErrorNotACrash) {
  const TextFile file("abcdefgh\nabcdefgh\n");
  const auto source = make_data_source(text_config(file.path(), 8), Layout{});
  std::filesystem::resize_file(file.path(), 4);
  EXPECT_THROW(source->fetch_step(1), DataError);
}

// A byte that was written later is still checked against the vocabulary when it is read.
TEST(BadText, FileThatChangesUnderARunIsCheckedAgain) {
  const TextFile file("abc\n");
  Config config = text_config(file.path(), 8);
  config.model.vocab_size = 100;
  const auto source = make_data_source(config, Layout{});
  std::FILE* out = std::fopen(file.path().c_str(), "r+b");
  std::fputs("z", out);
  std::fclose(out);
  try {
    source->fetch_step(0);
    FAIL() << "no error";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(file.path() + ":1:1"), HasSubstr("token 122")));
  }
}

}  // namespace
}  // namespace tandem
