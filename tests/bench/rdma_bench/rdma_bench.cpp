// RC write bandwidth of the soft NIC, beside memcpy: inside one device, and between two processes.
//
// The two processes are one program that forks before it opens a device; each has its configuration (OVSDR_SOFTNIC, and
// --peer for the child). Their addresses travel through a socket pair. What was written is looked at in the end.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <cstring>
#include <string>

#include "endpoint.hpp"

using namespace ovsdr::bench;
using seconds = std::chrono::duration<double>;

namespace {

constexpr std::size_t buffer_size = 1 << 20;
constexpr std::size_t sizes[] = {4096, 65536, buffer_size};

double copy_speed(std::size_t size, seconds duration) {
    using clock = std::chrono::steady_clock;
    const std::vector<std::uint8_t> from(buffer_size, 1);
    std::vector<std::uint8_t> to(buffer_size);
    const auto begin = clock::now();
    std::uint64_t bytes = 0;
    while (clock::now() - begin < duration) {
        for (unsigned i = 0; i < 16; ++i) {
            std::memcpy(to.data(), from.data(), size);
            asm volatile("" : : "r"(to.data()) : "memory");
        }
        bytes += 16 * size;
    }
    return static_cast<double>(bytes) / seconds(clock::now() - begin).count();
}

void exchange(int socket, const Endpoint& mine, Address& theirs) {
    const Address address = mine.address();
    if (write(socket, &address, sizeof address) != sizeof address ||
        read(socket, &theirs, sizeof theirs) != sizeof theirs) {
        throw std::runtime_error("the other process is gone");
    }
}

/// The child: is written to, and says in the end whether it holds what was written.
int be_written(int socket) {
    Endpoint end(buffer_size);
    Address peer{};
    exchange(socket, end, peer);
    end.connect(peer);
    char value = 1;
    if (write(socket, &value, 1) != 1 || read(socket, &value, 1) != 1) return 1;
    for (const std::uint8_t byte : end.buffer()) {
        if (byte != static_cast<std::uint8_t>(value)) return 1;
    }
    return 0;
}

struct Row {
    double loopback = 0, between = 0, copy = 0;
};

void between_processes(const std::string& peer_configuration, seconds duration, Row (&rows)[std::size(sizes)]) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets) != 0) throw std::runtime_error("socketpair");
    const pid_t child = fork();
    if (child == 0) {
        close(sockets[0]);
        setenv("OVSDR_SOFTNIC", peer_configuration.c_str(), 1);
        try {
            _exit(be_written(sockets[1]));
        } catch (const std::exception& error) {
            fmt::print(stderr, "rdma_bench, second process: {}\n", error.what());
            _exit(2);
        }
    }
    close(sockets[1]);
    constexpr std::uint8_t mark = 0x5a;
    Endpoint end(buffer_size);
    end.fill(mark);
    Address peer{};
    exchange(sockets[0], end, peer);
    char ready = 0;
    if (read(sockets[0], &ready, 1) != 1) throw std::runtime_error("the other process is gone");
    end.connect(peer);
    for (std::size_t i = 0; i < std::size(sizes); ++i) rows[i].between = end.write(sizes[i], duration);
    const char value = mark;
    int status = 1;
    if (write(sockets[0], &value, 1) != 1 || waitpid(child, &status, 0) != child || status != 0) {
        throw std::runtime_error("the other process does not hold what was written");
    }
    close(sockets[0]);
}

void inside_one_device(seconds duration, Row (&rows)[std::size(sizes)]) {
    Endpoint from(buffer_size), to(buffer_size);
    from.fill(0xa5);
    from.connect(to.address());
    to.connect(from.address());
    for (std::size_t i = 0; i < std::size(sizes); ++i) rows[i].loopback = from.write(sizes[i], duration);
    if (from.buffer() != to.buffer()) throw std::runtime_error("the buffer does not hold what was written");
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app("RC write bandwidth inside one device and between two processes, beside memcpy");
    std::string peer;
    double duration = 2;
    app.add_option("--peer", peer, "soft NIC configuration of the second process; without it there is none");
    app.add_option("--seconds", duration, "of each measurement")->capture_default_str()->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    try {
        Row rows[std::size(sizes)];
        // Before this process opens a device: a child of a process that has one would share its memory.
        if (!peer.empty()) between_processes(peer, seconds(duration), rows);
        inside_one_device(seconds(duration), rows);
        fmt::print(
            "| message | loopback GB/s | of memcpy | two processes GB/s | of memcpy | memcpy GB/s |\n"
            "|---|---|---|---|---|---|\n");
        for (std::size_t i = 0; i < std::size(sizes); ++i) {
            rows[i].copy = copy_speed(sizes[i], seconds(duration));
            fmt::print("| {} KiB | {:.2f} | {:.0f} % | {:.2f} | {:.0f} % | {:.2f} |\n", sizes[i] / 1024,
                       rows[i].loopback / 1e9, 100 * rows[i].loopback / rows[i].copy, rows[i].between / 1e9,
                       100 * rows[i].between / rows[i].copy, rows[i].copy / 1e9);
        }
        const Row& last = rows[std::size(sizes) - 1];
        fmt::print(
            "RC writes of 1 MiB: {:.2f} GB/s inside one device, {:.2f} GB/s between two processes, "
            "memcpy {:.2f} GB/s\n",
            last.loopback / 1e9, last.between / 1e9, last.copy / 1e9);
    } catch (const std::exception& error) {
        fmt::print(stderr, "rdma_bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
