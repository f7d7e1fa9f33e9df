// What Wireshark's programs read in the blocks that are written here. They are the oracle; nothing of ours reads.
#include "common/pcapng/blocks.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "common/pcapng/file.hpp"

namespace ovsdr::pcapng {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t time_of_day = 1'700'000'000'123'456'789;

std::vector<std::byte> frame(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i);
    return bytes;
}

EnhancedPacket packet(std::span<const std::byte> bytes, std::uint32_t interface = 0) {
    return {.interface = interface,
            .time = time_of_day,
            .bytes = bytes,
            .original_size = static_cast<std::uint32_t>(bytes.size()),
            .direction = Direction::inbound};
}

class PcapngTest : public testing::Test {
protected:
    PcapngTest() {
        char name[] = "/tmp/ovsdr-pcapng-XXXXXX";
        descriptor_ = mkstemp(name);
        name_ = name;
    }
    ~PcapngTest() override {
        close(descriptor_);
        unlink(name_.c_str());
    }

    /// The lines that a command with the file's name behind it says.
    std::vector<std::string> ask(const std::string& command) const {
        std::vector<std::string> lines;
        FILE* pipe = popen((command + " " + name_ + " 2>/dev/null").c_str(), "r");
        char line[4096];
        while (fgets(line, sizeof line, pipe) != nullptr) lines.emplace_back(line, std::string_view(line).find('\n'));
        EXPECT_EQ(pclose(pipe), 0) << command;
        return lines;
    }

    /// Of each packet, what tshark calls by these names.
    std::vector<std::string> fields(const std::string& names) const {
        return ask("tshark -T fields -E separator=, " + names + " -r");
    }

    /// The file itself, block by block and option by option.
    std::string dissected() const {
        std::string text;
        for (const std::string& line : ask("tshark -X 'read_format:MIME Files Format' -V -r")) text += line + '\n';
        return text;
    }

    int descriptor_;
    std::string name_;
};

TEST_F(PcapngTest, PacketsAreReadAsTheyWereWritten) {
    File file(descriptor_);
    file.append(SectionHeader{.application = "test"});
    file.append(InterfaceDescription{.name = "vm1", .snap_length = 65535});
    file.append(InterfaceDescription{.name = "uplink", .snap_length = 65535});
    const auto whole = frame(60), cut = frame(61);
    file.append(packet(whole));
    EnhancedPacket second = packet(cut, 1);
    second.time += 1;
    second.original_size = 1514;
    second.direction = Direction::outbound;
    file.append(second);
    file.flush();
    EXPECT_THAT(fields("-e frame.time_epoch -e frame.len -e frame.cap_len -e frame.interface_name "
                       "-e frame.packet_flags_direction"),
                ElementsAre("1700000000.123456789,60,60,vm1,0x00000001",
                            "1700000000.123456790,1514,61,uplink,0x00000002"));
}

TEST_F(PcapngTest, BytesOfEverySizeAreTheirOwn) {
    File file(descriptor_);
    file.append(SectionHeader{});
    file.append(InterfaceDescription{.snap_length = 65535});
    for (std::size_t size = 14; size < 22; ++size) file.append(packet(frame(size)));
    file.flush();
    const auto lines = fields("-e eth.dst -e eth.src -e eth.type -e data.data");
    ASSERT_EQ(lines.size(), 8U);
    EXPECT_THAT(lines[0], HasSubstr("00:01:02:03:04:05,06:07:08:09:0a:0b"));
    EXPECT_THAT(fields("-e frame.cap_len"), ElementsAre("14", "15", "16", "17", "18", "19", "20", "21"));
    const auto hex = ask("tshark -x -Y frame.number==8 -r");
    ASSERT_GE(hex.size(), 2U);
    EXPECT_THAT(hex[1], HasSubstr("0010  10 11 12 13 14 "));
}

TEST_F(PcapngTest, TextsAndStatisticsAreInTheirOptions) {
    File file(descriptor_);
    file.append(SectionHeader{.application = "an application"});
    file.append(InterfaceDescription{
        .name = "vm1", .description = "vport 1 of mlx5_0", .snap_length = 96, .filter = "tcp port 80"});
    file.append(InterfaceStatistics{.interface = 0,
                                    .start = time_of_day,
                                    .end = time_of_day + 5'000'000'000,
                                    .received = 7'000'000'001,
                                    .accepted = 5'000'000'002,
                                    .dropped = 3'000'000'003,
                                    .delivered = 2'000'000'004});
    file.flush();
    const std::string text = dissected();
    for (const char* part :
         {"User Application: an application", "Name: vm1", "Description: vport 1 of mlx5_0", "tcp port 80",
          "Number of Received Packets: 7000000001", "Number of Dropped Packets: 3000000003",
          "Number of Accepted by Filter Packets: 5000000002", "Number of Delivered to the User Packets: 2000000004",
          "Nov 14, 2023 22:13:25.123456789 UTC",
          "Snap Length: 96"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part;
    }
    EXPECT_EQ(text.find("Malformed"), std::string::npos);
    const auto infos = ask("capinfos -tIM");
    EXPECT_THAT(infos, testing::Contains(HasSubstr("Time resolution = 0x09")));
}

TEST(PcapngBlockTest, SaysTheSizeNeededAndWritesNothingIntoLess) {
    const auto bytes = frame(61);
    const std::size_t size = write({}, packet(bytes));
    EXPECT_EQ(size, 28U + 64U + 8U + 4U + 4U);  // header, padded packet, flags, end of options, size
    std::vector<std::byte> room(size + 8, std::byte{0xee});
    EXPECT_EQ(write(std::span(room).first(size - 1), packet(bytes)), size);
    EXPECT_TRUE(std::all_of(room.begin(), room.end(), [](std::byte byte) { return byte == std::byte{0xee}; }));
    EXPECT_EQ(write(room, packet(bytes)), size);
    EXPECT_TRUE(std::all_of(room.begin() + static_cast<std::ptrdiff_t>(size), room.end(),
                            [](std::byte byte) { return byte == std::byte{0xee}; }));
    EXPECT_EQ(size % 4, 0U);
}

TEST_F(PcapngTest, TextsOfAnyLengthLeaveAFileThatIsRead) {
    File file(descriptor_);
    file.append(SectionHeader{.application = std::string(70000, 'a')});
    file.append(InterfaceDescription{.name = "x", .snap_length = 100, .filter = std::string(70000, 'f')});
    file.append(packet(frame(14)));
    file.flush();
    EXPECT_THAT(fields("-e frame.len"), ElementsAre("14"));
}

TEST_F(PcapngTest, MoreThanABufferIsWrittenInOrder) {
    File file(descriptor_);
    file.append(SectionHeader{});
    file.append(InterfaceDescription{.snap_length = 65535});
    const auto bytes = frame(9000);
    for (std::uint64_t i = 0; i < 200; ++i) {
        EnhancedPacket next = packet(bytes);
        next.time += i;
        file.append(next);
    }
    file.flush();
    const auto times = fields("-e frame.time_epoch");
    ASSERT_EQ(times.size(), 200U);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
}

TEST(PcapngFileTest, AFullDiskIsSaid) {
    const int full = open("/dev/full", O_WRONLY);
    ASSERT_GE(full, 0);
    File file(full);
    file.append(SectionHeader{});
    try {
        file.flush();
        FAIL();
    } catch (const std::system_error& error) {
        EXPECT_EQ(error.code().value(), ENOSPC);
    }
    close(full);
}

}  // namespace
}  // namespace ovsdr::pcapng
