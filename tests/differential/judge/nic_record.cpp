#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <variant>

#include "tests/differential/judge/nic_judge.hpp"

namespace ovsdr::differential {

void apply(const Phase& phase, OvsJudge& ovs, bool connectx_5) {
    for (const MeterChange& change : phase.meters) {
        ovs.set_meter(change, change.spec ? bytes_more_for_software(*change.spec, connectx_5) : 0);
    }
    for (const auto& [version, put] : phase.changes) put ? ovs.put(version) : ovs.remove(version);
}

void NicRecord::apply(const Phase& phase, bool connectx_5) {
    check_tags();
    tables_.clear();
    works_.clear();
    differential::apply(phase, ovs_, connectx_5);
    counts_ = phase.counts;
    services_ = phase.services;
}

void NicRecord::check_tags() const {
    for (const auto& [tag, table] : tables_) {
        if (installation_.table_of(tag) != table) throw std::runtime_error("a tag has become another table's");
    }
    for (const auto& [tag, work] : works_) {
        if (installation_.work_of(tag) != work.lock()) throw std::runtime_error("a tag has become another work's");
    }
}

void NicRecord::count(const Phase& phase) {
    verdict_.filtered.push_back(installation_.take_filtered());
    if (!phase.counts) return;
    auto& counts = verdict_.meters.emplace_back();
    ovs_.add_meter_counts(counts);
    installation_.add_meter_counts(counts);
}

std::uint32_t NicRecord::checked_number(const std::vector<std::uint8_t>& frame) const {
    const std::uint32_t number = number_of(frame);
    if (number < scenario_.packets.size()) return number;
    throw std::runtime_error(fmt::format("a frame of nobody's came out: {:02x}", fmt::join(frame, "")));
}

void NicRecord::out(std::uint32_t port, std::vector<std::uint8_t> frame) {
    const std::uint32_t number = checked_number(frame);
    verdict_.arrivals[scenario_.packets[number].in_port << 16 | port].push_back(number);
    verdict_.copies[number].push_back({.port = port, .bytes = std::move(frame)});
}

void NicRecord::up(std::uint32_t queue_pair, std::uint32_t tag, std::vector<std::uint8_t> frame) {
    const std::uint32_t number = checked_number(frame);
    const std::uint32_t port = installation_.came_up(queue_pair, frame, counts_);   // else headers may lie
    if (port != scenario_.packets[number].in_port) throw std::runtime_error("a packet came up at another port's queue");
    const TableId table = installation_.table_of(tag);
    tables_.emplace(tag, table);
    software_.begin(number, port, counts_);
    const bool in_tunnel = table.tunnel_port != 0;
    (void)ovs_.forward({in_tunnel ? table.tunnel_port : port, table.recirc_id, frame.data(), frame.size(), in_tunnel},
                       software_);
    verdict_.ups[number].push_back({table, std::move(frame)});
}

namespace {

void check_kind(dr::CopyKind kind, dr::CopyKind wanted) {
    if (kind != wanted) throw std::runtime_error("a copy came up at the queue for others");
}

}  // namespace

void NicRecord::copy(dr::CopyKind kind, std::uint32_t tag, std::vector<std::uint8_t> frame) {
    const std::uint32_t number = checked_number(frame);
    const auto work = installation_.work_of(tag);
    works_.emplace(tag, work);
    if (work->kind != kind) throw std::runtime_error("a copy came up at the queue of another kind");
    ++came_[index_of(kind)];
    const bool is_filtered = kind == mirror_copies && !services_.empty();
    if (is_filtered && Service::is_any(services_, frame) == false) {
        throw std::runtime_error("a copy came up that is of none of the mirror's services");
    }
    copies_.begin(number, scenario_.packets[number].in_port, counts_);
    if (const auto* to = std::get_if<dr::SoftwareWork::Ports>(&work->work)) {
        if (work->cut_at != 0 && work->cut_at < frame.size()) frame.resize(work->cut_at);
        for (const dr::OdpPort port : *to) {
            check_kind(kind, port.value == host_port     ? dr::CopyKind::host
                             : port.value == mirror_port ? mirror_copies
                                                         : dr::CopyKind::other);
            copies_.output(port.value, frame, 0);
        }
        return;
    }
    check_kind(kind, dr::CopyKind::other);
    ovsdr_tunnel_fields tunnel = work->tunnel.key;   // as ctrl/copies.cpp knows it
    auto* bytes = reinterpret_cast<std::uint8_t*>(&tunnel);
    const auto* mask = reinterpret_cast<const std::uint8_t*>(&work->tunnel.mask);
    for (std::size_t i = 0; i < sizeof tunnel; ++i) bytes[i] &= mask[i];
    tunnel.ipv6 = work->tunnel.key.ipv6;
    ovs_.execute({work->in_port.value, 0, frame.data(), frame.size(), false}, tunnel,
                 std::get<dr::SoftwareWork::Actions>(work->work), copies_);
}

}  // namespace ovsdr::differential
