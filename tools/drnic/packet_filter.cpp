#include "tools/drnic/packet_filter.hpp"

#include <fmt/format.h>
#include <pcap/pcap.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "tools/drnic/client.hpp"

namespace ovsdr::drnic {

nlohmann::json compile_filter(const std::string& text, std::uint32_t snap_length) {
    nlohmann::json instructions = nlohmann::json::array();
    if (text.empty()) return instructions;
    const std::unique_ptr<pcap_t, decltype(&pcap_close)> compiler(
        pcap_open_dead(DLT_EN10MB, static_cast<int>(snap_length)), pcap_close);
    if (!compiler) throw Failure("libpcap has no memory");
    bpf_program program{};
    if (pcap_compile(compiler.get(), &program, text.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0) {
        throw Failure(fmt::format("filter \"{}\": {}", text, pcap_geterr(compiler.get())));
    }
    for (unsigned i = 0; i < program.bf_len; ++i) {
        const bpf_insn& instruction = program.bf_insns[i];
        instructions.push_back({instruction.code, instruction.jt, instruction.jf, instruction.k});
    }
    pcap_freecode(&program);
    return instructions;
}

}  // namespace ovsdr::drnic
