// What the rows of the steering benchmark share.
#pragma once

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "datapath/steering/dr_rule.hpp"
#include "datapath/steering/steering_impl.hpp"

namespace ovsdr::soft::bench {

inline constexpr unsigned source_port_at = 70, ip_version_at = 18, udp_sport_at = 28, udp_dport_at = 30;
inline constexpr unsigned destination_at = 60;
using Parameters = std::array<std::uint8_t, match_param_size>;

inline void start_eal() {
    std::string prefix = fmt::format("--file-prefix=steering-bench-{}", ::getpid());
    std::vector<std::string> words{"bench", "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m", "192",
                                   "--log-level=error", "--lcores=0", prefix};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) std::exit(1);
}

/// 64-byte UDP packets (60 and the FCS that nobody carries), one per tuple; tuples differ in source port and address.
inline std::vector<rte_mbuf*> make_packets(rte_mempool* pool, unsigned tuples) {
    std::vector<rte_mbuf*> packets;
    for (unsigned i = 0; i < tuples; ++i) {
        rte_mbuf* packet = rte_pktmbuf_alloc(pool);
        if (packet == nullptr) std::exit(1);
        auto* frame = reinterpret_cast<std::uint8_t*>(rte_pktmbuf_append(packet, 60));
        std::memset(frame, 0, 60);
        frame[5] = 2;
        frame[11] = 1;
        frame[12] = 8;
        frame[14] = 0x45;
        store_be16(frame + 16, 46);
        frame[22] = 64;
        frame[23] = 17;
        store_be32(frame + 26, 0x0a000000 + (i >> 14));
        store_be32(frame + 30, 0x0b000000);
        store_be16(frame + 34, static_cast<std::uint16_t>(1024 + (i & 0x3fff)));
        store_be16(frame + 36, 80);
        store_be16(frame + 38, 26);
        packets.push_back(packet);
    }
    return packets;
}

/// Seconds that this thread has run.
inline double thread_time() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

inline void check(int error) {
    if (error == 0) return;
    fmt::print(stderr, "errno {}\n", error);
    std::exit(1);
}

inline std::unique_ptr<Matcher> make_matcher(Table& table, std::uint8_t criteria, const Parameters& mask) {
    std::unique_ptr<Matcher> made;
    check(Matcher::create(table, 0, criteria, mask, made));
    return made;
}

inline std::unique_ptr<Rule> make_rule(Matcher& matcher, const Parameters& value, const std::vector<Action*>& actions) {
    std::unique_ptr<Rule> made;
    check(Rule::create(matcher, value, actions, made));
    return made;
}

/// Rules that change while packets are steered, and masks of other vports: churn.cpp. False where the figures are below
/// the floors that it names.
[[nodiscard]] bool run_churn(const std::vector<rte_mbuf*>& packets, unsigned batches);

/// So many rules in one matcher: million.cpp. False where they fall short of what it names.
[[nodiscard]] bool run_million(const std::vector<rte_mbuf*>& packets, unsigned rules);

/// Headers by parse() and by parse_fast(): parsing.cpp. False where they take nearly as long.
[[nodiscard]] bool run_parsing();

}  // namespace ovsdr::soft::bench
