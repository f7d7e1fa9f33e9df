// A packet filter: a program of the classic BPF machine, as libpcap's compiler makes it of "tcp port 80".
//
// The program comes from another process and runs on the packets' path. So a program is checked before it is one: it
// has no loop (libpcap's "protochain" makes them, and neither libpcap's check nor its interpreter bounds them), reads
// no memory but the packet and its own sixteen words, and ends.
//
// Threads: any.
#pragma once

#include <pcap/pcap.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ovsdr::soft {

inline constexpr std::size_t longest_filter = 2048;  ///< instructions: a packet never costs more

class BpfFilter {
public:
    /// Everything passes.
    BpfFilter() = default;

    /// nullopt with the reason in `error`. An empty program is BpfFilter().
    [[nodiscard]] static std::optional<BpfFilter> make(std::vector<bpf_insn> program, std::string& error);

    /// How many bytes of the packet are wanted, at most `size`: 0 when it is not.
    [[nodiscard]] std::uint32_t wanted(const void* packet, std::uint32_t size) const noexcept {
        if (program_.empty()) return size;
        const std::uint32_t wanted = bpf_filter(program_.data(), static_cast<const u_char*>(packet), size, size);
        return wanted < size ? wanted : size;
    }

private:
    explicit BpfFilter(std::vector<bpf_insn> program) : program_(std::move(program)) {}

    std::vector<bpf_insn> program_;
};

}  // namespace ovsdr::soft
