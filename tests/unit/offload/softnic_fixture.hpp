// offload/ on the soft NIC with real packets: a fixture. See softnic_test.cpp.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "offload/dr/eswitch.hpp"
#include "offload/dr/device/ib_port.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/unit/offload/frames.hpp"
#include "tests/unit/offload/megaflow_builder.hpp"

namespace ovsdr::dr::test {

using namespace std::chrono_literals;
using slowpath::PortQueue;
using namespace test::frames;

/// The outer end of a veth pair.
class Wire {
public:
    explicit Wire(const std::string& name) : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(3))) {
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(3);   // ETH_P_ALL
        address.sll_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
        EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0) << name;
        // The kernel takes the tag off what it shows a packet socket, and tells it beside.
        const int on = 1, buffer = 8 << 20;
        setsockopt(fd_, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on);
        setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    }
    ~Wire() { close(fd_); }

    void send(const FrameBytes& bytes) const {
        while (::send(fd_, bytes.data(), bytes.size(), 0) < 0 && (errno == ENOBUFS || errno == EAGAIN)) {
            std::this_thread::sleep_for(100us);
        }
    }

    /// Frames of ours that come within `wait` of the last, without what this end sent.
    std::vector<FrameBytes> collect(std::size_t at_most, std::chrono::milliseconds wait = 300ms) const {
        std::vector<FrameBytes> frames;
        while (frames.size() < at_most) {
            pollfd waited{fd_, POLLIN, 0};
            if (poll(&waited, 1, static_cast<int>(wait.count())) <= 0) break;
            if (auto bytes = read_one(); !bytes.empty()) frames.push_back(std::move(bytes));
        }
        return frames;
    }

private:
    FrameBytes read_one() const {
        FrameBytes bytes(2048);
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(tpacket_auxdata))];
        sockaddr_ll from{};
        iovec vector{bytes.data(), bytes.size()};
        msghdr message{&from, sizeof from, &vector, 1, control, sizeof control, 0};
        const ssize_t size = recvmsg(fd_, &message, 0);
        if (size < 60 || from.sll_pkttype == PACKET_OUTGOING) return {};
        bytes.resize(static_cast<std::size_t>(size));
        for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
            if (part->cmsg_level != SOL_PACKET || part->cmsg_type != PACKET_AUXDATA) continue;
            tpacket_auxdata beside;
            std::memcpy(&beside, CMSG_DATA(part), sizeof beside);
            if ((beside.tp_status & TP_STATUS_VLAN_VALID) == 0) continue;
            const std::uint16_t tag[] = {htons(beside.tp_vlan_tpid), htons(beside.tp_vlan_tci)};
            const auto* raw = reinterpret_cast<const std::uint8_t*>(tag);
            bytes.insert(bytes.begin() + 12, raw, raw + 4);
        }
        const FrameBytes model = frame(0);
        const bool ours = std::equal(model.begin(), model.begin() + 12, bytes.begin());
        return ours ? bytes : FrameBytes{};
    }

    int fd_;
};

class SoftNic : public ::testing::Test {
protected:
    struct Port {
        VportId vport;
        OdpPort odp;
        std::string inner, outer;
        std::unique_ptr<Wire> wire;
        std::unique_ptr<PortQueue> queue;
    };

    /// OVSDR_TEST_PROFILE, or the soft NIC's default.
    static std::string profile() {
        const char* chosen = std::getenv("OVSDR_TEST_PROFILE");
        return chosen != nullptr ? chosen : "connectx-6dx";
    }

    static void SetUpTestSuite() {
        if (unshare(CLONE_NEWNET) != 0) {
            why_not_ = "no right to make a network namespace";
            return;
        }
        std::ofstream file("softnic-test.json");
        file << R"({"memory_mb": 512, "control_socket": "softnic-test.sock", )"
             << R"("devices": [{"name": "mlx5_0", "limits": {"samplers": 3}, "profile": ")" << profile()
             << R"(", "ports": [)";
        const char* comma = "";
        for (const auto& [vport, odp] : {std::pair{1, 1}, {2, 2}, {3, 3}, {65535, 9}}) {
            const std::string inner = "in" + std::to_string(odp), outer = "out" + std::to_string(odp);
            run("ip link add " + inner + " type veth peer name " + outer);
            run("sysctl -qw net.ipv6.conf." + inner + ".disable_ipv6=1 net.ipv6.conf." + outer + ".disable_ipv6=1");
            run("ethtool -K " + outer + " tx off rxvlan off txvlan off >/dev/null 2>&1; ethtool -K " + inner +
                " tx off rxvlan off txvlan off >/dev/null 2>&1; true");
            run("ip link set " + inner + " up && ip link set " + outer + " up");
            file << comma << R"({"vport": )" << vport << R"(, "dpdk": "net_af_xdp,iface=)" << inner << "\"}";
            comma = ",";
            ports_.push_back({VportId{static_cast<std::uint16_t>(vport)}, OdpPort{static_cast<std::uint32_t>(odp)},
                              inner, outer, nullptr, nullptr});
        }
        file << "]}]}";
        file.close();
        setenv("OVSDR_SOFTNIC", "softnic-test.json", 1);
        auto opened = Eswitch::open("mlx5_0");
        ASSERT_TRUE(opened) << opened.error().what;
        eswitch_ = *opened;
        for (Port& port : ports_) attach(port);
    }

    static void TearDownTestSuite() {
        for (Port& port : ports_) {
            if (eswitch_ != nullptr) eswitch_->detach_port(port.vport);
            port.queue.reset();
            port.wire.reset();
        }
        eswitch_.reset();
        unlink("softnic-test.json");
    }

    static void attach(Port& port) {
        port.wire = std::make_unique<Wire>(port.outer);
        const auto ib_port = find_ib_port(eswitch_->context(), port.vport);
        ASSERT_TRUE(ib_port) << ib_port.error().what;
        auto queue =
            PortQueue::create({.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = ib_port->number});
        ASSERT_TRUE(queue) << queue.error().what;
        port.queue = std::move(*queue);
        const auto attached =
            eswitch_->attach_port({port.odp, port.vport, port.inner, port.queue->qp(), port.queue->sqn()});
        ASSERT_TRUE(attached) << attached.error().what;
    }

    static void run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

    void SetUp() override {
        if (why_not_ != nullptr) GTEST_SKIP() << why_not_;
        ASSERT_NE(eswitch_, nullptr);
        for (Port& port : ports_) {
            port.wire->collect(SIZE_MAX, 20ms);
            while (!port.queue->receive(0).empty()) {}
        }
    }
    void TearDown() override {
        if (eswitch_ != nullptr) eswitch_->flush(std::nullopt);
    }

    static Port& port(std::uint32_t odp) {
        for (Port& known : ports_) {
            if (known.odp.value == odp) return known;
        }
        std::abort();
    }

    static void put(const Ufid& ufid, const ovsdr_megaflow& megaflow) {
        const PutOutcome outcome = eswitch_->put(ufid, megaflow);
        if (const auto* reject = std::get_if<Reject>(&outcome)) FAIL() << text_of(*reject);
        if (const auto* error = std::get_if<Error>(&outcome)) FAIL() << error->what;
    }

    /// Frames that went up to the slow path of `port` within a while.
    static std::vector<std::pair<FrameBytes, std::uint32_t>> went_up(Port& port, std::size_t at_most) {
        std::vector<std::pair<FrameBytes, std::uint32_t>> frames;
        const auto end = std::chrono::steady_clock::now() + 2s;
        while (frames.size() < at_most && std::chrono::steady_clock::now() < end) {
            const auto batch = port.queue->receive(0);
            for (const slowpath::Frame& frame : batch) {
                frames.emplace_back(FrameBytes(frame.data, frame.data + frame.size), frame.tag);
            }
            if (batch.empty()) std::this_thread::sleep_for(1ms);
        }
        return frames;
    }

    /// Sends numbered frames from port 1, a window at a time so that no ring of the host's overflows, and gives what
    /// arrived at each of `targets`.
    static std::vector<std::vector<FrameBytes>> exchange(std::uint32_t length,
                                                         const std::vector<std::uint32_t>& targets) {
        constexpr std::uint32_t window = 50;
        std::vector<std::vector<FrameBytes>> arrived(targets.size());
        for (std::uint32_t sent = 0; sent < length;) {
            for (const std::uint32_t end = std::min(length, sent + window); sent < end; ++sent) {
                port(1).wire->send(frame(sent));
            }
            const auto deadline = std::chrono::steady_clock::now() + 1s;
            std::size_t sum = 0;
            while (sum < sent && std::chrono::steady_clock::now() < deadline) {
                sum = 0;
                for (std::size_t i = 0; i < targets.size(); ++i) {
                    for (auto& bytes : port(targets[i]).wire->collect(window, 1ms)) {
                        arrived[i].push_back(std::move(bytes));
                    }
                    sum += arrived[i].size();
                }
            }
            if (sum < sent) break;   // lost: the caller sees it
        }
        for (std::size_t i = 0; i < targets.size(); ++i) {
            for (auto& bytes : port(targets[i]).wire->collect(window, 50ms)) arrived[i].push_back(std::move(bytes));
        }
        return arrived;
    }

    static inline const char* why_not_ = nullptr;
    static inline std::vector<Port> ports_;
    static inline std::shared_ptr<Eswitch> eswitch_;
};

}  // namespace ovsdr::dr::test
