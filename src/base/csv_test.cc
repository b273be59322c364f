#include "base/csv.h"

#include <gtest/gtest.h>

namespace zeus {
namespace {

using Cells = std::vector<std::string>;

TEST(Csv, SkipsCommentsAndEmptyLinesButCountsThem) {
  CsvLines lines("# title\n\na,b\r\n1,2");
  EXPECT_EQ(lines.next(), "a,b");
  EXPECT_EQ(lines.number(), 3u);
  EXPECT_EQ(lines.next(), "1,2");
  EXPECT_EQ(lines.number(), 4u);
  EXPECT_EQ(lines.next(), std::nullopt);
}

TEST(Csv, SplitsCellsAndTrimsThem) {
  EXPECT_EQ(csv_cells("a, b ,,d"), (Cells{"a", "b", "", "d"}));
  EXPECT_EQ(csv_cells("a,"), (Cells{"a", ""}));
  EXPECT_EQ(csv_cells(""), (Cells{""}));
}

// The examples of RFC 4180, section 2.
TEST(Csv, ReadsQuotedCells) {
  EXPECT_EQ(csv_cells("\"aaa\",\"b,bb\",\"c\"\"cc\""), (Cells{"aaa", "b,bb", "c\"cc"}));
  EXPECT_EQ(csv_cells(" \" a \" ,b"), (Cells{" a ", "b"}));
}

TEST(Csv, RefusesQuotesThatDoNotMatch) {
  for (const char* line : {"\"a", "a\"b", "\"a\"b", "\"a\"\"", "a,\"b"}) {
    EXPECT_EQ(csv_cells(line), std::nullopt) << line;
  }
}

TEST(Csv, WritesWhatItReads) {
  for (const std::string cell : {"plain", "a,b", "say \"x\"", " blank ", "", "100"}) {
    EXPECT_EQ(csv_cells(csv_cell(cell) + ",z"), (Cells{cell, "z"})) << cell;
  }
  EXPECT_EQ(csv_cell("two\nlines"), "\"two lines\"");
}

TEST(Csv, TakesFiniteNumbersOnly) {
  EXPECT_EQ(parse_real("-1.5e3"), -1500.0);
  for (const char* text : {"", "1.5x", " 1", "inf", "nan", "1e999"}) {
    EXPECT_EQ(parse_real(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace zeus
