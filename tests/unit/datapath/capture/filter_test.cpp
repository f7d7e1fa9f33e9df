#include "datapath/capture/filter.hpp"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace ovsdr::soft {
namespace {

using testing::HasSubstr;

TEST(BpfFilterTest, RefusesWhatMightNotEnd) {
    std::string error;
    EXPECT_TRUE(BpfFilter::make({}, error));
    const bpf_insn pass{BPF_RET | BPF_K, 0, 0, 100};
    EXPECT_TRUE(BpfFilter::make({pass}, error));
    EXPECT_FALSE(BpfFilter::make({{BPF_JMP | BPF_JA, 0, 0, 0xffffffff}, pass}, error));
    EXPECT_THAT(error, HasSubstr("protochain"));
    EXPECT_FALSE(BpfFilter::make({{BPF_JMP | BPF_JA, 0, 0, 1}, pass}, error)) << "out of the program";
    EXPECT_FALSE(BpfFilter::make({{BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 0}, pass}, error));
    EXPECT_FALSE(BpfFilter::make({{BPF_ST, 0, 0, 16}, pass}, error)) << "no such word of memory";
    EXPECT_FALSE(BpfFilter::make({{BPF_ALU | BPF_DIV | BPF_K, 0, 0, 0}, pass}, error));
    EXPECT_FALSE(BpfFilter::make({{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0}}, error)) << "no end";
    EXPECT_FALSE(BpfFilter::make(std::vector<bpf_insn>(longest_filter + 1, pass), error));
    EXPECT_THAT(error, HasSubstr("2049 instructions"));
    const auto reader = BpfFilter::make({{BPF_LD | BPF_W | BPF_ABS, 0, 0, 60}, pass}, error);
    ASSERT_TRUE(reader);
    const std::string packet(64, 'x');
    EXPECT_EQ(reader->wanted(packet.data(), 64), 64U);
    EXPECT_EQ(reader->wanted(packet.data(), 63), 0U) << "it reads behind the packet's end";
}

}  // namespace
}  // namespace ovsdr::soft
