// Captures by the control socket of a whole NIC. net_ring gives back what it is given: what goes out comes in again.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <pcap/pcap.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "common/capture/memory.hpp"
#include "nic_fixture.hpp"

namespace ovsdr::soft {
namespace {

using capture::Direction;
using nlohmann::json;
using testing::HasSubstr;

/// A connection that lasts, and the descriptor that came with an answer.
class Client {
public:
    explicit Client(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
        sockaddr_un to{};
        to.sun_family = AF_UNIX;
        path.copy(to.sun_path, sizeof to.sun_path - 1);
        EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << std::strerror(errno);
        const timeval patience{.tv_sec = 20, .tv_usec = 0};
        setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    ~Client() { hang_up(); }
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    void say(const std::string& text) {
        EXPECT_EQ(send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    }
    json hear() {
        std::string line;
        char byte = 0;
        while (byte != '\n') {
            alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
            iovec part{&byte, 1};
            msghdr message{};
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_control = control;
            message.msg_controllen = sizeof control;
            if (recvmsg(socket_, &message, 0) != 1) return "nothing after " + line;
            if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
                std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
            }
            line += byte;
        }
        return json::parse(line, nullptr, false);
    }
    json ask(const json& request) {
        say(request.dump() + "\n");
        return hear();
    }
    std::string refusal(const json& request) {
        const json answer = ask(request);
        EXPECT_EQ(answer["ok"], false) << request.dump();
        return answer.value("error", "");
    }
    void hang_up() {
        if (socket_ >= 0) close(std::exchange(socket_, -1));
    }

    int descriptor = -1;

private:
    int socket_;
};

/// A client with a capture.
class TestCapture {
public:
    TestCapture(const std::string& path, json options) : client(path) {
        options["command"] = "capture";
        answer = client.ask(options);
        EXPECT_EQ(answer["ok"], true) << answer.dump();
        memory_.emplace(client.descriptor);
        for (unsigned ring = 0; ring < memory_->rings(); ++ring) {
            rings_.emplace_back(memory_->control(ring), memory_->data(ring));
        }
    }

    /// Of all records that are there: direction, interface, bytes kept of so many.
    std::vector<std::string> take() {
        std::vector<std::string> records;
        for (capture::Consumer& ring : rings_) {
            for (; const auto record = ring.front(); ring.pop()) {
                const capture::RecordHeader& header = record->header;
                records.push_back(fmt::format("{} {} {}/{}", header.direction == Direction::in ? "in" : "out",
                                              header.interface, header.size, header.original_size));
                last_bytes.assign(reinterpret_cast<const char*>(record->bytes.data()), record->bytes.size());
            }
        }
        return records;
    }
    capture::Counts counts(unsigned interface = 0) const {
        capture::Counts sum;
        for (const capture::Consumer& ring : rings_) {
            const capture::Counts counts = ring.counts(interface);
            sum.seen += counts.seen;
            sum.accepted += counts.accepted;
            sum.dropped += counts.dropped;
        }
        return sum;
    }

    Client client;
    json answer;
    std::string last_bytes;

private:
    std::optional<capture::Memory> memory_;
    std::vector<capture::Consumer> rings_;
};

json program(const char* text, int snap_length = 65535) {
    pcap_t* compiler = pcap_open_dead(DLT_EN10MB, snap_length);
    bpf_program compiled{};
    EXPECT_EQ(pcap_compile(compiler, &compiled, text, 1, PCAP_NETMASK_UNKNOWN), 0) << pcap_geterr(compiler);
    json list = json::array();
    for (unsigned i = 0; i < compiled.bf_len; ++i) {
        const bpf_insn& one = compiled.bf_insns[i];
        list.push_back({one.code, one.jt, one.jf, one.k});
    }
    pcap_freecode(&compiled);
    pcap_close(compiler);
    return list;
}

class CaptureTest : public NicTest {
protected:
    CaptureTest() {
        char name[] = "/tmp/ovsdr-capture-XXXXXX";
        folder_ = mkdtemp(name);
    }
    ~CaptureTest() override {
        queue_.reset();
        nic_.reset();
        std::filesystem::remove_all(folder_);
    }

    [[nodiscard]] std::string path() const { return folder_ + "/softnic.sock"; }
    void start_with(const std::string& ports) {
        start(R"("ports": )" + ports, R"("control_socket": ")" + path() + '"');
    }
    void start_one() {
        start_with(R"([{"vport": 1, "name": "vm1", "dpdk": "net_ring"}])");
        queue_.emplace(device(), 77, VportId{1});
    }
    /// Returns when the vport has counted it, in both directions.
    void send(std::size_t size, char flow = 1) {
        ++sent_;
        queue_->send(size, flow);
        ASSERT_TRUE(eventually(
            [&] { return counters(1).received_packets == sent_ && counters(1).sent_packets == sent_; }));
    }
    json running() { return Client(path()).ask({{"command", "list"}})["captures"]; }

    std::string folder_;
    std::optional<TestQueue> queue_;
    std::uint64_t sent_ = 0;
};

TEST_F(CaptureTest, HasEachPacketOfBothDirectionsOnce) {
    start_one();
    send(60);
    TestCapture capture(path(), {{"port", 1}});
    EXPECT_EQ(capture.answer["interfaces"], json::array({"vm1"}));
    send(60);
    send(1514, 9);
    EXPECT_THAT(capture.take(), testing::ElementsAre("out 0 60/60", "in 0 60/60", "out 0 1514/1514", "in 0 1514/1514"));
    EXPECT_EQ(capture.last_bytes.substr(0, 14), std::string("\x02\0\0\0\0\x02\x02\0\0\0\0\x09\x88\xb5", 14));
    EXPECT_EQ(capture.counts().seen, 4U);
    EXPECT_EQ(capture.counts().dropped, 0U);
}

TEST_F(CaptureTest, KeepsToItsDirectionSnapLengthAndFilter) {
    start_one();
    TestCapture in(path(), {{"port", "vm1"}, {"direction", "in"}});
    TestCapture out(path(), {{"port", "vm1"}, {"direction", "out"}, {"snap_length", 20}});
    TestCapture filtered(path(), {{"port", 1}, {"program", program("ether[11] = 9", 30)}});
    send(60);
    send(70, 9);
    EXPECT_THAT(in.take(), testing::ElementsAre("in 0 60/60", "in 0 70/70"));
    EXPECT_THAT(out.take(), testing::ElementsAre("out 0 20/60", "out 0 20/70"));
    EXPECT_THAT(filtered.take(), testing::ElementsAre("out 0 30/70", "in 0 30/70"));
    EXPECT_EQ(filtered.counts().seen, 4U);
    EXPECT_EQ(filtered.counts().accepted, 2U);
}

TEST_F(CaptureTest, AFullRingCostsTheCaptureAndNotThePort) {
    start_one();
    TestCapture capture(path(), {{"port", 1}, {"buffer", 65536}});
    for (unsigned i = 0; i < 100; ++i) send(1500);
    EXPECT_EQ(counters(1).receive_drops, 0U);
    const capture::Counts counts = capture.counts();
    EXPECT_EQ(counts.seen, 200U);
    EXPECT_EQ(counts.accepted, 200U);
    EXPECT_GT(counts.dropped, 100U);
    EXPECT_EQ(capture.take().size() + counts.dropped, 200U);
    send(1500);
    EXPECT_THAT(capture.take(), testing::SizeIs(2)) << "there is room again";
    EXPECT_EQ(running()[0]["dropped"], counts.dropped);
}

TEST_F(CaptureTest, IsListedUntilItsConnectionEnds) {
    start_one();
    EXPECT_EQ(running(), json::array());
    TestCapture one(path(), {{"port", 1}, {"direction", "in"}, {"filter", "some text"}});
    TestCapture two(path(), {{"port", "vm1"}});
    send(60);
    const json captures = running();
    ASSERT_EQ(captures.size(), 2U);
    EXPECT_EQ(captures[0], (json{{"device", "mlx5_0"}, {"vport", 1}, {"direction", "in"}, {"filter", "some text"},
                                 {"process", getpid()}, {"seen", 1}, {"accepted", 1}, {"dropped", 0}}));
    EXPECT_EQ(captures[1]["seen"], 2);
    EXPECT_EQ(Client(path()).ask({{"command", "stats"}})["captures"].size(), 2U);
    one.client.hang_up();
    ASSERT_TRUE(eventually([&] { return running().size() == 1; }));
    send(60);
    EXPECT_EQ(one.counts().seen, 1U);
    EXPECT_EQ(two.take().size(), 4U);
}

TEST_F(CaptureTest, StopsWhenAskedAndItsPacketsAreFinal) {
    start_one();
    TestCapture capture(path(), {{"port", 1}});
    send(60);
    EXPECT_EQ(capture.client.ask({{"command", "capture"}, {"stop", true}}), (json{{"ok", true}}));
    EXPECT_EQ(running(), json::array());
    send(60);
    EXPECT_EQ(capture.take().size(), 2U);
    EXPECT_THAT(capture.client.refusal({{"command", "capture"}, {"stop", true}}), HasSubstr("no capture"));
    EXPECT_EQ(capture.client.ask({{"command", "capture"}, {"port", 1}})["ok"], true) << "and another one";
}

TEST_F(CaptureTest, StartAndStopInOneBreathPassNoDescriptorOfSomethingElse) {
    start_one();
    Client client(path());
    client.say("{\"command\": \"capture\", \"port\": 1}\n{\"command\": \"capture\", \"stop\": true}\n");
    EXPECT_EQ(client.hear()["ok"], true);
    EXPECT_EQ(client.hear()["ok"], true);
    EXPECT_EQ(client.descriptor, -1);
}

TEST_F(CaptureTest, EndsWithItsVportAndSaysSo) {
    start_one();
    TestCapture capture(path(), {{"port", 1}});
    send(60);
    queue_.reset();
    EXPECT_EQ(Client(path()).ask({{"command", "del"}, {"vport", 1}})["ok"], true);
    EXPECT_EQ(capture.client.hear(), (json{{"ended", "vport 1 of mlx5_0 was removed"}}));
    EXPECT_EQ(Client(path()).ask({{"command", "add"}, {"port", {{"vport", 1}, {"dpdk", "net_ring"}}}})["ok"], true);
    EXPECT_EQ(capture.client.ask({{"command", "capture"}, {"stop", true}})["ok"], true);
    EXPECT_EQ(capture.take().size(), 2U);
    EXPECT_EQ(running(), json::array());
}

TEST_F(CaptureTest, BothPortsOfALagAreInterfaces) {
    start_with(R"([{"vport": 65535, "dpdk": ["net_ring", "net_ring"]}])");
    queue_.emplace(device(), 77, uplink_vport);
    TestCapture capture(path(), {{"port", "uplink"}, {"direction", "out"}});
    EXPECT_EQ(capture.answer["interfaces"], json::array({"vport 65535 port 1", "vport 65535 port 2"}));
    for (unsigned port = 1; port <= 2; ++port) {
        device().steering().set_lag_port(77, port);
        queue_->send(60 + port);
        ASSERT_TRUE(eventually([&] { return counters(65535).received_packets == port; }));
    }
    EXPECT_THAT(capture.take(), testing::UnorderedElementsAre("out 0 61/61", "out 1 62/62"));
    EXPECT_EQ(capture.counts(0).seen, 1U);
    EXPECT_EQ(capture.counts(1).seen, 1U);
    device().steering().set_lag_port(77, 0);
}

TEST_F(CaptureTest, NamesOptionValueAndRemedy) {
    start_with(R"([{"vport": 1, "name": "twice", "dpdk": "net_ring"},
                   {"vport": 2, "name": "twice", "dpdk": "net_ring"}])");
    Client client(path());
    const auto refusal = [&](json options) {
        options["command"] = "capture";
        return client.refusal(options);
    };
    EXPECT_THAT(refusal({{"x", 1}}), HasSubstr("x: no such option"));
    EXPECT_THAT(refusal(json::object()), HasSubstr("port: missing"));
    EXPECT_THAT(refusal({{"port", "vm9"}}),
                HasSubstr("\"vm9\" is no vport of mlx5_0; there are 0 (manager), 1 (twice)"));
    EXPECT_THAT(refusal({{"port", "uplink"}}), HasSubstr("no vport"));
    EXPECT_THAT(refusal({{"port", "twice"}}),
                HasSubstr("2 vports of mlx5_0 are named \"twice\"; give one's number"));
    EXPECT_THAT(refusal({{"port", 0}}), HasSubstr("manager, which has no port"));
    EXPECT_THAT(refusal({{"port", 1}, {"device", "a"}}), HasSubstr("there are mlx5_0"));
    EXPECT_THAT(refusal({{"port", 1}, {"direction", "rx"}}), HasSubstr("\"rx\" is not \"in\""));
    EXPECT_THAT(refusal({{"port", 1}, {"snap_length", 0}}), HasSubstr("0 is not a whole number from 1 to 65535"));
    EXPECT_THAT(refusal({{"port", 1}, {"buffer", 100000}}), HasSubstr("power of two"));
    EXPECT_THAT(refusal({{"port", 1}, {"buffer", 4096}}), HasSubstr("from 65536"));
    EXPECT_THAT(refusal({{"port", 1}, {"filter", 1}}), HasSubstr("1 is no text"));
    EXPECT_THAT(refusal({{"port", 1}, {"program", {{6, 0, 0}}}}), HasSubstr("four numbers"));
    EXPECT_THAT(refusal({{"port", 1}, {"program", {{6, 0, 256, 0}}}}), HasSubstr("no instruction"));
    EXPECT_THAT(refusal({{"port", 1}, {"program", {{0, 0, 0, 0}}}}), HasSubstr("no valid program"));
    EXPECT_THAT(refusal({{"stop", 1}}), HasSubstr("only be true"));
    EXPECT_EQ(client.descriptor, -1);
    EXPECT_EQ(client.ask({{"command", "capture"}, {"port", 1}})["ok"], true);
    EXPECT_THAT(refusal({{"port", 1}}), HasSubstr("has a capture already"));
}

TEST_F(CaptureTest, ThereAreAtMostSixteen) {
    start_one();
    std::vector<std::unique_ptr<TestCapture>> captures;
    for (unsigned i = 0; i < 16; ++i) {
        captures.push_back(std::make_unique<TestCapture>(path(), json{{"port", 1}, {"buffer", 65536}}));
    }
    EXPECT_THAT(Client(path()).refusal({{"command", "capture"}, {"port", 1}}), HasSubstr("16 captures are running"));
    send(60);
    for (const auto& capture : captures) EXPECT_EQ(capture->take().size(), 2U);
    captures.pop_back();
    ASSERT_TRUE(eventually([&] { return running().size() == 15; }));
    EXPECT_EQ(Client(path()).ask({{"command", "capture"}, {"port", 1}})["ok"], true);
}

TEST_F(CaptureTest, ComesAndGoesUnderLoad) {
    start_one();
    std::atomic<bool> end{false};
    std::thread sender([&] {
        while (!end) {
            queue_->send(200);
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    });
    for (unsigned i = 0; i < 50; ++i) {
        TestCapture capture(path(), {{"port", 1}, {"buffer", 65536}});
        ASSERT_TRUE(eventually([&] { return capture.counts().seen > 2; }));
        EXPECT_EQ(capture.client.ask({{"command", "capture"}, {"stop", true}})["ok"], true);
        const capture::Counts counts = capture.counts();
        EXPECT_EQ(capture.take().size() + counts.dropped, counts.seen);
    }
    end = true;
    sender.join();
}

}  // namespace
}  // namespace ovsdr::soft
