// What a guest that takes nothing costs the others: packets a second between two vports, while the same worker has as
// many for a third one, on memif.
//
// Either nobody is connected there, and its packets are dropped at once, or a peer is whose ring is full and who takes
// nothing from it. The two alternate, and the median of the rounds' ratios is judged. Time is the worker's own, on its
// processor: what else the machine does at the same time does not count.
//
// --rounds N, --benchmark_min_time=…: a short run whose figure is not judged. The exit is not 0 below 95 %.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "datapath/ports/config.hpp"
#include "datapath/ports/memif_wire.hpp"
#include "datapath/ports/soft_nic.hpp"
#include "datapath/ports/socket_path.hpp"
#include "datapath/steering/dr_rule.hpp"

using namespace ovsdr::soft;

namespace {

using namespace std::chrono_literals;

constexpr double least_share = 0.95;

void check(bool good, const char* what) {
    if (good) return;
    fmt::print(stderr, "{}: {}\n", what, std::strerror(errno));
    std::exit(1);
}

/// A guest that connects, offers its ring of buffers once, and takes nothing.
class StuckGuest {
public:
    explicit StuckGuest(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        const sockaddr_un address = socket_address(path);
        check(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
        expect(memif::MessageType::hello);
        make_memory();
        memif::Message message = message_of(memif::MessageType::init);
        message.init.version = memif::version;
        say(message, -1, memif::MessageType::ack);
        message = message_of(memif::MessageType::add_region);
        message.add_region.size = size;
        say(message, memory_file_, memif::MessageType::ack);
        for (unsigned ring = 0; ring < 2; ++ring) {
            message = message_of(memif::MessageType::add_ring);
            message.add_ring.flags = ring == 0 ? 1 : 0;  // from the guest, then to it
            message.add_ring.offset = ring * ring_size;
            message.add_ring.log2_size = log2_length;
            events_[ring] = eventfd(0, EFD_CLOEXEC);
            say(message, events_[ring], memif::MessageType::ack);
        }
        say(message_of(memif::MessageType::connect), -1, memif::MessageType::connected);
        __atomic_store_n(&to_guest().head, std::uint16_t{1} << log2_length, __ATOMIC_RELEASE);
    }
    ~StuckGuest() {
        for (const int descriptor : {socket_, memory_file_, events_[0], events_[1]}) close(descriptor);
        munmap(memory_, size);
    }
    StuckGuest(const StuckGuest&) = delete;
    StuckGuest& operator=(const StuckGuest&) = delete;

    [[nodiscard]] bool is_full() { return __atomic_load_n(&to_guest().tail, __ATOMIC_ACQUIRE) == 1 << log2_length; }

private:
    static constexpr std::uint8_t log2_length = 8;
    static constexpr std::uint32_t ring_size = 8192, room = 2048, size = 2 * ring_size + (room << log2_length);

    static memif::Message message_of(memif::MessageType type) {
        memif::Message message;
        std::memset(static_cast<void*>(&message), 0, sizeof message);
        message.type = type;
        return message;
    }
    memif::Ring& to_guest() { return *reinterpret_cast<memif::Ring*>(memory_ + ring_size); }

    void make_memory() {
        memory_file_ = memfd_create("stuck-guest", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        check(ftruncate(memory_file_, size) == 0 && fcntl(memory_file_, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "memory");
        memory_ = static_cast<std::byte*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory_file_, 0));
        check(memory_ != MAP_FAILED, "mmap");
        for (unsigned ring = 0; ring < 2; ++ring) {
            auto& made = *reinterpret_cast<memif::Ring*>(memory_ + ring * ring_size);
            made.cookie = memif::ring_cookie;
            made.flags = memif::ring_no_wake_up;
        }
        for (std::uint32_t i = 0; i < 1U << log2_length; ++i) {
            to_guest().descriptors[i] = {.length = room, .offset = 2 * ring_size + i * room};
        }
    }

    void expect(memif::MessageType type) {
        memif::Message answer = message_of(memif::MessageType::none);
        check(recv(socket_, &answer, sizeof answer, 0) == sizeof answer && answer.type == type, "memif");
    }
    void say(memif::Message message, int descriptor, memif::MessageType answer) {
        iovec piece{&message, sizeof message};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        msghdr header{};
        header.msg_iov = &piece;
        header.msg_iovlen = 1;
        if (descriptor >= 0) {
            header.msg_control = control;
            header.msg_controllen = sizeof control;
            cmsghdr* const item = CMSG_FIRSTHDR(&header);
            *item = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
            std::memcpy(CMSG_DATA(item), &descriptor, sizeof descriptor);
        }
        check(sendmsg(socket_, &header, MSG_NOSIGNAL) == sizeof message, "sendmsg");
        expect(answer);
    }

    int socket_, memory_file_ = -1;
    int events_[2] = {-1, -1};
    std::byte* memory_ = nullptr;
};

/// Vports 1 and 2 send without end, to vport 3, which takes everything, and to vport 4, the guest's.
class Bench {
public:
    explicit Bench(const std::string& socket) {
        const std::string configuration = R"({"control_socket": "", "memory_mb": 256, "workers": 1,
            "devices": [{"name": "mlx5_0", "ports": [
                {"vport": 1, "dpdk": "net_null"}, {"vport": 2, "dpdk": "net_null"},
                {"vport": 3, "dpdk": "net_null,no-rx=1"}, {"vport": 4, "dpdk": "net_memif,socket=)" +
                                          socket + "\"}]}]}";
        int code = 0;
        std::string error;
        nic_ = SoftNic::start(parse_config(configuration), code, error);
        check(nic_ != nullptr, error.c_str());
        Steering& steering = nic_->soft_devices()[0]->steering();
        fdb_ = std::make_unique<Domain>(steering, DomainType::fdb, nullptr);
        root_ = std::make_unique<Table>(*fdb_, 0);
        table_ = std::make_unique<Table>(*fdb_, 1);
        std::array<std::uint8_t, match_param_size> source{};
        store_be16(&source[source_port_at], 0xffff);
        check(Matcher::create(*root_, 0, criteria::misc, source, matchers_[0]) == 0, "root matcher");
        check(Matcher::create(*table_, 0, criteria::misc, source, matchers_[1]) == 0, "matcher");
        check(Action::table(*table_, jump_) == 0, "jump");
        for (const std::uint16_t from : {1, 2}) {
            check(Action::vport(*fdb_, from + 2, outputs_[from - 1]) == 0, "action");
            store_be16(&source[source_port_at], from);
            Action* const in[] = {jump_.get()};
            Action* const out[] = {outputs_[from - 1].get()};
            check(Rule::create(*matchers_[0], source, in, rules_[from - 1]) == 0, "root rule");
            check(Rule::create(*matchers_[1], source, out, rules_[from + 1]) == 0, "rule");
        }
    }

    /// Packets that came to vport 3 in a second of the worker's.
    double run(std::chrono::milliseconds duration) {
        const auto [packets, time] = now();
        std::this_thread::sleep_for(duration);
        const auto [more, later] = now();
        return static_cast<double>(more - packets) * 1e9 / static_cast<double>(later - time);
    }
    [[nodiscard]] bool guest_is_connected() const {
        VportInfo info{};
        return nic_->soft_devices()[0]->query(VportId{4}, info) == 0 && info.link_up;
    }

private:
    static constexpr unsigned source_port_at = 70;

    [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> now() const {
        VportCounters counters{};
        check(nic_->soft_devices()[0]->counters(VportId{3}, counters) == 0, "counters");
        return {counters.received_packets, worker_time()};
    }
    /// Nanoseconds on a processor: schedstat's first number.
    static std::uint64_t worker_time() {
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            std::string name;
            std::uint64_t time = 0;
            std::ifstream(task.path() / "comm") >> name;
            if (name == "softnic-0" && std::ifstream(task.path() / "schedstat") >> time) return time;
        }
        check(false, "no worker");
        return 0;
    }

    std::unique_ptr<SoftNic> nic_;
    std::unique_ptr<Domain> fdb_;
    std::unique_ptr<Table> root_, table_;
    std::unique_ptr<Matcher> matchers_[2];
    Action::Created jump_, outputs_[2];
    std::unique_ptr<Rule> rules_[4];
};

}  // namespace

int main(int argc, char** argv) {
    unsigned rounds = 9;
    auto duration = 500ms;
    bool judged = true;
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], "--benchmark_min_time", 20) == 0) {
            rounds = 1;
            duration = 50ms;
            judged = false;
        }
        if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = static_cast<unsigned>(std::atoi(argv[++i]));
    }
    const std::string socket = fmt::format("/tmp/ovs-dr-stuck-guest-{}", getpid());
    std::vector<double> without, beside, shares;
    {
        Bench bench(socket);
        std::this_thread::sleep_for(100ms);
        for (unsigned round = 0; round < rounds; ++round) {
            without.push_back(bench.run(duration));
            {
                StuckGuest guest(socket);
                while (!guest.is_full()) std::this_thread::sleep_for(1ms);
                beside.push_back(bench.run(duration));
                check(guest.is_full(), "the guest is stuck");
            }
            while (bench.guest_is_connected()) std::this_thread::sleep_for(1ms);
            shares.push_back(beside.back() / without.back());
        }
    }
    const auto median = [](std::vector<double>& of) {
        std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
        return of[of.size() / 2];
    };
    const double share = median(shares);
    fmt::print("million packets a second: {:.2f}, beside a guest that takes nothing {:.2f}: {:.1f} %\n",
               median(without) / 1e6, median(beside) / 1e6, 100 * share);
    return judged && share < least_share ? 1 : 0;
}
