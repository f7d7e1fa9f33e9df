#include "datapath/rdma/roce/dc_target.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "datapath/rdma/roce/address.hpp"
#include "datapath/rdma/roce/pair.hpp"

namespace ovsdr::soft::roce {

namespace {

template <typename Header>
[[nodiscard]] Header load(const std::byte* from) noexcept {
    Header header;
    std::memcpy(&header, from, sizeof header);
    return header;
}

[[nodiscard]] std::size_t bucket_of(const ibv_gid& gid, std::uint32_t qpn, std::uint32_t stream) noexcept {
    std::uint64_t words[2];
    std::memcpy(words, gid.raw, sizeof words);
    const std::uint64_t key = words[0] ^ words[1] ^ std::uint64_t{stream} << 24 ^ qpn;
    return key * 0x9e3779b97f4a7c15 >> (64 - DcTarget::log_most_sessions);
}

}  // namespace

DcTarget::DcTarget(Pair& pair) : pair_(pair) {
    sessions_.reserve(most_sessions);
}

/// The link to the session, where it is or would be.
DcTarget::Session** DcTarget::find(const ibv_gid& gid, std::uint32_t qpn, std::uint32_t stream) noexcept {
    Session** link = &buckets_[bucket_of(gid, qpn, stream)];
    for (; *link != nullptr; link = &(*link)->next_of_bucket) {
        const Peer& peer = (*link)->peer;
        if (peer.qpn == qpn && peer.stream == stream && std::memcmp(&peer.gid, &gid, sizeof gid) == 0) break;
    }
    return link;
}

void DcTarget::receive(const Arrival& arrival, std::uint64_t now) noexcept {
    if (!arrival.operation.is_request()) return;
    const auto header = load<DcEth>(arrival.extensions);
    if (arrival.operation.kind == Kind::connect) return connect(arrival, header, now);
    Session* const session =
        *find(arrival.source, be32toh(header.source) & mask24, be32toh(header.stream) & mask24);
    if (session == nullptr || !session->open || session->peer.session != be32toh(header.session)) return;
    session->last_heard = now;
    if (arrival.operation.kind == Kind::disconnect) return end(*session);
    if (session->responder.failed()) return;
    session->responder.request(arrival);
    if (session->responder.ready()) activate(*session);
}

void DcTarget::connect(const Arrival& arrival, const DcEth& header, std::uint64_t now) noexcept {
    if (be64toh(load<DcConnectEth>(arrival.headers()).access_key) != pair_.spec().dc->access_key) {
        return refuse(arrival, header, aeth_nak | static_cast<std::uint8_t>(Nak::access));
    }
    const std::uint32_t qpn = be32toh(header.source) & mask24, stream = be32toh(header.stream) & mask24;
    Session* session = *find(arrival.source, qpn, stream);
    // Of the session that we know, or of an earlier one.
    if (session != nullptr && static_cast<std::int32_t>(be32toh(header.session) - session->peer.session) <= 0) return;
    if (session == nullptr) {
        session = make_room(now);
        if (session == nullptr) {
            return refuse(arrival, header, static_cast<std::uint8_t>(aeth_rnr | (pair_.attr().min_rnr_timer & 0x1f)));
        }
        session->peer = peer_of(arrival, header);
        *find(arrival.source, qpn, stream) = session;
    }
    end(*session);
    session->peer = peer_of(arrival, header);
    session->open = true;
    session->last_heard = now;
    session->responder.start(arrival.psn);
}

/// A session that is in no bucket; nullptr: none can be had.
DcTarget::Session* DcTarget::make_room(std::uint64_t now) noexcept {
    if (sessions_.size() < most_sessions) {
        std::unique_ptr<Session> session(new (std::nothrow) Session(pair_));
        if (session == nullptr) return nullptr;
        sessions_.push_back(std::move(session));
        return sessions_.back().get();
    }
    // What has ended before what is open, and what was silent for longest.
    const auto before = [](const auto& left, const auto& right) {
        return left->open != right->open ? right->open : left->last_heard < right->last_heard;
    };
    Session& oldest = **std::min_element(sessions_.begin(), sessions_.end(), before);
    if (oldest.open && now - oldest.last_heard < silence) return nullptr;
    end(oldest);
    Session** const link = find(oldest.peer.gid, oldest.peer.qpn, oldest.peer.stream);
    *link = oldest.next_of_bucket;
    oldest.next_of_bucket = nullptr;
    return &oldest;
}

void DcTarget::end(Session& session) noexcept {
    session.responder.flush();
    session.responder.reset();
    session.open = false;
}

Peer DcTarget::peer_of(const Arrival& arrival, const DcEth& header) const noexcept {
    const Addresses& own = pair_.transport().addresses();
    const ibv_global_route& route = pair_.attr().ah_attr.grh;
    const std::uint32_t qpn = be32toh(header.source) & mask24, label = route.flow_label & 0xfffff;
    PathSpec path{.source_mac = own.mac,
                  .source = arrival.destination,
                  .destination = arrival.source,
                  .traffic_class = route.traffic_class,
                  .hop_limit = route.hop_limit != 0 ? route.hop_limit : default_hop_limit,
                  .flow_label = label,
                  .udp_source = udp_source_port(label != 0 ? label : flow_label_of(pair_.spec().qpn, qpn)),
                  .local = own.holds(arrival.source, arrival.vlan),
                  .vlan = arrival.vlan,
                  .priority = static_cast<std::uint8_t>(pair_.attr().ah_attr.sl & 7)};
    std::memcpy(path.destination_mac.data(), arrival.frame + path.destination_mac.size(), path.destination_mac.size());
    return {.path = make_path(path),
            .own_gid = arrival.destination,
            .gid = arrival.source,
            .own_vlan = arrival.vlan,
            .qpn = qpn,
            .stream = be32toh(header.stream) & mask24,
            .session = be32toh(header.session)};
}

void DcTarget::refuse(const Arrival& arrival, const DcEth& header, std::uint8_t syndrome) noexcept {
    if (refusals_ == waiting_.size()) return;  // as if it were lost on the way
    waiting_[refusals_++] = {peer_of(arrival, header), arrival.psn, syndrome};
}

bool DcTarget::send_refusal(Burst& burst, const Refusal& refusal) noexcept {
    const std::uint8_t low = opcode_of(Kind::acknowledge, true, true);
    Burst::Packet packet;
    if (!burst.begin({.path = refusal.peer.path,
                      .opcode = static_cast<std::uint8_t>(static_cast<std::uint8_t>(ServiceType::dc) | low),
                      .qpn = refusal.peer.qpn,
                      .psn = refusal.psn,
                      .extensions = extensions_size(ServiceType::dc, operations[low]),
                      .payload = 0},
                     packet)) {
        return false;
    }
    HeaderWriter writer{packet.extensions};
    writer.put(htobe32(refusal.peer.stream));
    writer.put(Aeth{htobe32(static_cast<std::uint32_t>(refusal.syndrome) << 24)});
    burst.finish(packet);
    return true;
}

void DcTarget::activate(Session& session) noexcept {
    if (session.active) return;
    session.active = true;
    session.next_active = nullptr;
    (last_active_ != nullptr ? last_active_->next_active : first_active_) = &session;
    last_active_ = &session;
}

void DcTarget::send(Burst& burst) noexcept {
    while (refusals_ != 0) {
        if (!send_refusal(burst, waiting_[refusals_ - 1])) return;
        --refusals_;
    }
    while (first_active_ != nullptr && !burst.full() && !burst.starved()) {
        Session& session = *first_active_;
        first_active_ = session.next_active;
        if (first_active_ == nullptr) last_active_ = nullptr;
        session.active = false;
        session.responder.send(burst);
        if (session.responder.ready()) activate(session);
    }
}

void DcTarget::reset() noexcept {
    for (const auto& session : sessions_) session->responder.reset();
    sessions_.clear();
    buckets_ = {};
    first_active_ = last_active_ = nullptr;
    refusals_ = 0;
}

}  // namespace ovsdr::soft::roce
