#include "tests/differential/judge/verdict.hpp"

#include <endian.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <type_traits>

#include "tests/differential/judge/binary_file.hpp"

namespace ovsdr::differential {

template <typename C, typename Visit>
    requires std::is_same_v<std::remove_const_t<C>, Copy>
void parts_of(C& copy, Visit visit) {
    visit(copy.port, copy.table, copy.in_software, copy.source_port_at, copy.bytes, copy.told);
}

template <typename T, typename Visit>
    requires std::is_same_v<std::remove_const_t<T>, Told>
void parts_of(T& told, Visit visit) {
    visit(told.in_port, told.one_of, told.version, told.cookie);
}

template <typename U, typename Visit>
    requires std::is_same_v<std::remove_const_t<U>, Up>
void parts_of(U& up, Visit visit) {
    visit(up.table, up.bytes);
}

std::uint32_t number_of(const std::vector<std::uint8_t>& frame) {
    if (frame.size() < 4) throw std::runtime_error("a frame without a number came out");
    const std::uint8_t* last = frame.data() + frame.size() - 4;
    const auto low = static_cast<std::uint32_t>(last[1] << 16 | last[2] << 8 | last[3]);
    return static_cast<std::uint32_t>(last[0]) << 24 | low;
}

Verdict::Verdict(std::size_t packets, std::size_t ufids) : copies(packets), ups(packets), counts(ufids) {}

void Verdict::finish() {
    for (auto& each : copies) std::ranges::sort(each);
    for (auto& each : ups) std::ranges::sort(each);
}

void Verdict::write(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    Writer to(file);
    to.all(copies, ups, counts, installed, lookups, meters, filtered, arrivals.size());
    for (const auto& [key, numbers] : arrivals) to.all(key, numbers);
    if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

Verdict Verdict::read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Reader from(file);
    Verdict verdict;
    std::size_t left = 0;
    from.all(verdict.copies, verdict.ups, verdict.counts, verdict.installed, verdict.lookups,
             verdict.meters, verdict.filtered, left);
    for (; file && left > 0; --left) {
        std::uint32_t key = 0;
        from.part(key);
        from.part(verdict.arrivals[key]);
    }
    if (!file) throw std::runtime_error("cannot read " + path);
    return verdict;
}

void Recorder::output(std::uint32_t port, std::span<const std::uint8_t> frame, std::size_t source_port_at) {
    verdict_.copies[number_].push_back({.port = port, .in_software = in_software_,
                                        .source_port_at = static_cast<std::uint32_t>(source_port_at),
                                        .bytes = {frame.begin(), frame.end()}});
    arrived(port);
}

void Recorder::arrived(std::uint32_t port) {
    if (of_ != Of::slow_path) verdict_.arrivals[in_port_ << 16 | (port & 0xFFFF)].push_back(number_);
}

void Recorder::userspace(const ovs_judge_packet& packet, const ovs_judge_told& told) {
    Told seen{packet.in_port, told.one_of, told.number, {}};
    if (told.cookie_size != 0) seen.cookie.assign(told.cookie, told.cookie + told.cookie_size);
    ovsdr_tunnel_fields tunnel = *told.tunnel;
    tunnel.flags = static_cast<std::uint8_t>(tunnel.flags & ~OVSDR_TUNNEL_CSUM);   // no device sees it
    // A tunnel port has one UDP port. Its copies know that, however much of it the megaflow looks at.
    for (const TunnelKind kind : {TunnelKind::vxlan, TunnelKind::geneve}) {
        const bool is_its = told.number >= 0 && packet.in_port == tunnel_port_of(kind);
        if (is_its) tunnel.be_tp_dst = htobe16(udp_port_of(kind));
    }
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&tunnel);
    seen.cookie.insert(seen.cookie.end(), bytes, bytes + sizeof tunnel);
    verdict_.copies[number_].push_back({.port = Copy::userspace, .in_software = in_software_,
                                        .source_port_at = static_cast<std::uint32_t>(told.source_port_at),
                                        .bytes = {packet.bytes, packet.bytes + packet.size}, .told = std::move(seen)});
    arrived(Copy::userspace);
}

void Recorder::taken(std::uint32_t version, const ovs_judge_packet& packet) {
    Counts& counts = verdict_.counts[versions_[version].ufid];
    counts.software_packets += counts_ ? 1 : 0;
    counts.software_bytes += counts_ ? packet.size : 0;
    if (!in_software_) verdict_.lookups[number_].push_back({table_of(packet), static_cast<std::int32_t>(version)});
}

void Recorder::missed(const ovs_judge_packet& packet, const ovs_judge_seen&) {
    verdict_.copies[number_].push_back({.port = Copy::upcall, .table = table_of(packet),
                                        .in_software = in_software_,
                                        .bytes = {packet.bytes, packet.bytes + packet.size}});
    if (!in_software_) verdict_.lookups[number_].push_back({table_of(packet), -1});
}

}  // namespace ovsdr::differential
