// A wire that does harm: carries frames between two interfaces, and loses, repeats and reorders some of them.
//
// Each of the three happens to its share of the frames, at random from a seed, in both directions and to every kind of
// frame alike. A frame that is reordered leaves behind up to eight that came after it, or when the wire falls silent.
// SIGTERM ends it: the last line says what it did, by direction.
//
// Frames are copied between two packet sockets of the kernel: netem, which could do the same, is not in every kernel.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <random>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace {

constexpr unsigned batch = 64;           ///< frames
constexpr std::size_t largest = 9 * 1024 + 64;  ///< bytes of a frame
constexpr int buffer_size = 64 << 20;    ///< bytes of a socket's buffers: what is lost is to be lost by us
constexpr unsigned longest_delay = 8;    ///< frames that overtake one
constexpr int silence = 1;               ///< ms

volatile std::sig_atomic_t ended = 0;

using Frame = std::vector<std::uint8_t>;

struct Harm {
    double lose = 0, repeat = 0, reorder = 0;  ///< shares of the frames
};

int checked(int result, const char* call) {
    if (result < 0) throw std::system_error(errno, std::generic_category(), call);
    return result;
}

/// A packet socket that sees what the interface receives, and not what we send.
int open_interface(const std::string& name) {
    const int socket = checked(::socket(AF_PACKET, SOCK_RAW, 0), "socket");
    const int yes = 1;
    checked(setsockopt(socket, SOL_PACKET, PACKET_IGNORE_OUTGOING, &yes, sizeof yes), "PACKET_IGNORE_OUTGOING");
    checked(setsockopt(socket, SOL_PACKET, PACKET_QDISC_BYPASS, &yes, sizeof yes), "PACKET_QDISC_BYPASS");
    checked(setsockopt(socket, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_size, sizeof buffer_size), "SO_RCVBUFFORCE");
    checked(setsockopt(socket, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_size, sizeof buffer_size), "SO_SNDBUFFORCE");
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
    if (address.sll_ifindex == 0) throw std::system_error(errno, std::generic_category(), name);
    checked(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), name.c_str());
    return socket;
}

class Direction {
public:
    struct Counts {
        std::uint64_t carried = 0, lost = 0, repeated = 0, reordered = 0, refused = 0;
    };

    Direction(int from, int to, const Harm& harm, std::uint32_t seed)
        : from_(from), to_(to), harm_(harm), random_(seed) {
        for (unsigned i = 0; i < batch; ++i) {
            buffers_[i].resize(largest);
            pieces_[i] = {buffers_[i].data(), largest};
            messages_[i].msg_hdr = {.msg_iov = &pieces_[i], .msg_iovlen = 1};
        }
    }

    /// Carries what has come. false: nothing had.
    bool carry() {
        for (iovec& piece : pieces_) piece.iov_len = largest;
        const int length = recvmmsg(from_, messages_.data(), batch, MSG_DONTWAIT, nullptr);
        if (length <= 0) return false;
        for (int i = 0; i < length; ++i) {
            const std::uint8_t* const bytes = buffers_[i].data();
            pass({bytes, bytes + messages_[i].msg_len});
        }
        flush();
        return true;
    }
    /// Nothing came for a while: what was held back goes.
    void release() {
        for (Held& held : std::exchange(held_, {})) leaving_.push_back(std::move(held.frame));
        flush();
    }
    [[nodiscard]] const Counts& counts() const { return counts_; }

private:
    struct Held {
        Frame frame;
        unsigned still_to_pass;
    };

    [[nodiscard]] bool happens(double share) { return std::uniform_real_distribution<>(0, 1)(random_) < share; }

    void pass(Frame frame) {
        ++counts_.carried;
        if (happens(harm_.lose)) {
            ++counts_.lost;
            return;
        }
        if (happens(harm_.reorder)) {
            ++counts_.reordered;
            held_.push_back({std::move(frame), 1 + static_cast<unsigned>(random_() % longest_delay)});
            return;
        }
        if (happens(harm_.repeat)) {
            ++counts_.repeated;
            leaving_.push_back(frame);
        }
        leaving_.push_back(std::move(frame));
        for (Held& held : held_) {
            if (--held.still_to_pass == 0) leaving_.push_back(std::move(held.frame));
        }
        std::erase_if(held_, [](const Held& held) { return held.still_to_pass == 0; });
    }

    void flush() {
        std::size_t sent = 0;
        while (sent < leaving_.size()) {
            std::array<mmsghdr, batch> messages{};
            std::array<iovec, batch> pieces{};
            const auto length = static_cast<unsigned>(std::min<std::size_t>(batch, leaving_.size() - sent));
            for (unsigned i = 0; i < length; ++i) {
                pieces[i] = {leaving_[sent + i].data(), leaving_[sent + i].size()};
                messages[i].msg_hdr = {.msg_iov = &pieces[i], .msg_iovlen = 1};
            }
            const int done = sendmmsg(to_, messages.data(), length, 0);
            counts_.refused += done <= 0;
            sent += done > 0 ? static_cast<unsigned>(done) : 1;  // one that cannot be sent is lost
        }
        leaving_.clear();
    }

    const int from_, to_;
    const Harm harm_;
    std::mt19937 random_;
    std::array<Frame, batch> buffers_;
    std::array<iovec, batch> pieces_{};
    std::array<mmsghdr, batch> messages_{};
    std::vector<Held> held_;
    std::vector<Frame> leaving_;
    Counts counts_;
};

void print(const Direction::Counts& counts, const std::string& from, const std::string& to) {
    fmt::print("{} to {}: {} carried, {} lost, {} repeated, {} reordered, {} refused; ", from, to, counts.carried,
               counts.lost, counts.repeated, counts.reordered, counts.refused);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("Carries frames between two interfaces, and loses, repeats and reorders some of them");
    std::string left, right;
    Harm percent;
    std::uint32_t seed = 1;
    app.add_option("left", left, "interface")->required();
    app.add_option("right", right, "interface")->required();
    app.add_option("--lose", percent.lose, "per cent of the frames")->check(CLI::Range(0.0, 100.0));
    app.add_option("--repeat", percent.repeat, "per cent of the frames")->check(CLI::Range(0.0, 100.0));
    app.add_option("--reorder", percent.reorder, "per cent of the frames")->check(CLI::Range(0.0, 100.0));
    app.add_option("--seed", seed, "of the random numbers")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    std::signal(SIGTERM, [](int) { ended = 1; });
    try {
        const Harm harm{percent.lose / 100, percent.repeat / 100, percent.reorder / 100};
        const int sockets[2] = {open_interface(left), open_interface(right)};
        Direction there(sockets[0], sockets[1], harm, seed), back(sockets[1], sockets[0], harm, seed + 1);
        fmt::print("ready\n");
        std::fflush(stdout);
        while (!ended) {
            const bool moved = there.carry() | back.carry();
            if (moved) continue;
            pollfd polled[2] = {{sockets[0], POLLIN, 0}, {sockets[1], POLLIN, 0}};
            if (poll(polled, 2, silence) != 0) continue;
            there.release();
            back.release();
        }
        print(there.counts(), left, right);
        print(back.counts(), right, left);
        fmt::print("seed {}\n", seed);
    } catch (const std::exception& error) {
        fmt::print(stderr, "rough_wire: {}\n", error.what());
        return 1;
    }
    return 0;
}
