// Vports for guests, without a guest: the socket's life. Guests are in the system tests.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "datapath/ports/socket_path.hpp"
#include "nic_fixture.hpp"

namespace ovsdr::soft {
namespace {

using namespace std::chrono_literals;

class VhostTest : public NicTest {
protected:
    VhostTest() : folder_("/tmp/ovs-dr-vhost-" + std::to_string(getpid())) {
        mkdir(folder_.c_str(), 0700);
        path_ = folder_ + "/vm.sock";
    }
    ~VhostTest() override {
        nic_.reset();
        unlink(path_.c_str());
        rmdir(folder_.c_str());
    }
    void start_port(const std::string& more = "") {
        start(R"("ports": [{"vport": 1, "dpdk": "net_vhost,iface=)" + path_ + more + R"("}])");
    }
    [[nodiscard]] int connected() const {
        const int guest = socket(AF_UNIX, SOCK_STREAM, 0);
        const sockaddr_un address = socket_address(path_);
        if (connect(guest, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return guest;
        close(guest);
        return -1;
    }

    std::string folder_, path_;
};

TEST_F(VhostTest, ListensSleepsAndRemovesItsSocket) {
    start_port();
    EXPECT_EQ(info(1).error, "");
    EXPECT_FALSE(info(1).link_up);
    const int guest = connected();
    EXPECT_GE(guest, 0);
    close(guest);
    TestQueue queue(device(), 71, VportId{1});
    queue.send(60);
    EXPECT_TRUE(eventually([&] { return counters(1).receive_drops == 1; })) << "no guest";
    std::this_thread::sleep_for(300ms);
    const std::uint64_t sleeps = nic_->workers()[0]->statistics().sleeps;
    std::this_thread::sleep_for(2s);
    EXPECT_LT(nic_->workers()[0]->statistics().sleeps - sleeps, 100U) << "the guest wakes the worker, not time";
    EXPECT_EQ(device().remove_vport(VportId{1}), 0);
    EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

// VHOST_USER_GET_FEATURES: a header of request 1, flags 1 (version), no payload; the answer has 8 bytes of features.
TEST_F(VhostTest, OffersGuestsToLeavePacketsUnfinishedAndToTakeJoinedOnes) {
    start_port(",gro=1");
    const int guest = connected();
    ASSERT_GE(guest, 0);
    const std::uint32_t question[3] = {1, 1, 0};
    ASSERT_EQ(write(guest, question, sizeof question), static_cast<ssize_t>(sizeof question));
    struct [[gnu::packed]] {
        std::uint32_t request, flags, size;
        std::uint64_t features;
    } answer{};
    ASSERT_EQ(recv(guest, &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
    EXPECT_EQ(answer.size, 8U);
    // Bits of virtio 1.1, 5.1.3: CSUM, GUEST_CSUM, GUEST_TSO4 and 6, HOST_TSO4 and 6; GUEST_ECN, GUEST_UFO, HOST_UFO.
    for (const unsigned bit : {0, 1, 7, 8, 11, 12}) EXPECT_EQ(answer.features >> bit & 1, 1U) << bit;
    for (const unsigned bit : {9, 10, 14}) EXPECT_EQ(answer.features >> bit & 1, 0U) << bit;
    EXPECT_EQ(answer.features >> 15 & 1, 1U) << "merged receive buffers";
    EXPECT_EQ(answer.features >> 32 & 1, 1U) << "virtio 1.0";
    close(guest);
}

TEST_F(VhostTest, ReplacesADeadSocketAndLeavesALivingOneAlone) {
    const int other = socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = socket_address(path_);
    ASSERT_EQ(bind(other, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(other, 1), 0);
    start_port();
    EXPECT_NE(info(1).error.find(path_), std::string::npos) << info(1).error;
    EXPECT_NE(info(1).error.find("listens there"), std::string::npos) << info(1).error;
    close(other);
    EXPECT_TRUE(eventually([&] { return info(1).error.empty(); })) << info(1).error;
    const int guest = connected();
    EXPECT_GE(guest, 0);
    close(guest);
}

TEST_F(VhostTest, ClientWaitsForItsServer) {
    start_port(",client=1");
    EXPECT_EQ(info(1).error, "");
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    const sockaddr_un address = socket_address(path_);
    ASSERT_EQ(bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(server, 1), 0);
    int guest = -1;
    EXPECT_TRUE(eventually([&] { return (guest = accept(server, nullptr, nullptr)) >= 0; }));
    close(guest);
    EXPECT_TRUE(eventually([&] { return (guest = accept(server, nullptr, nullptr)) >= 0; })) << "again";
    close(guest);
    EXPECT_EQ(device().remove_vport(VportId{1}), 0);
    EXPECT_EQ(access(path_.c_str(), F_OK), 0) << "the file is the server's";
    close(server);
}

}  // namespace
}  // namespace ovsdr::soft
