// The responder's part in tag matching: where the first packet of a send leads.
#include <algorithm>
#include <cstring>

#include "datapath/rdma/completion/tag_info.hpp"
#include "datapath/rdma/roce/local_operations.hpp"
#include "datapath/rdma/roce/pair.hpp"
#include "datapath/rdma/roce/rendezvous.hpp"
#include "datapath/rdma/roce/responder.hpp"

namespace ovsdr::soft::roce {

namespace {

[[nodiscard]] ibv_wc_tm_info info_of(const ibv_tmh& header) noexcept {
    return {.tag = be64toh(header.tag), .priv = be32toh(header.app_ctx)};
}

}  // namespace

/// Takes an entry for the message; `ready` false: there is none. A rendezvous takes none, and is complete.
std::optional<Nak> Responder::take_tagged(const Arrival& arrival, bool& ready) noexcept {
    RendezvousHeader header{};
    std::memcpy(&header, arrival.payload, std::min<std::size_t>(arrival.payload_size, sizeof header));
    const bool has_header = arrival.payload_size >= sizeof header.tag;
    const bool fetches = has_header && header.tag.opcode == IBV_TMH_RNDV;
    if (!fetches && !(has_header && header.tag.opcode == IBV_TMH_EAGER)) {
        (void)take_receive(arrival, ready);
        receive_.tag = Receive::Tag::none_sent;
        return std::nullopt;
    }
    const bool whole = arrival.operation.last && arrival.payload_size >= sizeof header &&
                       arrival.payload_size <= TagMatcher::most_rendezvous_size;
    if (fetches && !whole) return Nak::invalid_request;
    ready = !fetches || pair_.rendezvous()->has_room();
    if (!ready) return std::nullopt;
    SharedReceiveQueue::Request request;
    switch (spec_.srq->tags()->claim(be64toh(header.tag.tag), receive_.match, *spec_.srq, request)) {
        case TagMatcher::Claim::not_ready: ready = false; return std::nullopt;
        case TagMatcher::Claim::unexpected:
            hold(request, *spec_.srq);
            receive_.tag = Receive::Tag::unexpected;
            return std::nullopt;
        case TagMatcher::Claim::matched: break;
    }
    const ibv_sge& buffer = receive_.match.buffer;
    receive_.tag = Receive::Tag::matched;
    receive_.wr_id = receive_.match.recv_wr_id;
    receive_.srq = spec_.srq;
    receive_.length = buffer.length != 0 ? 1 : 0;
    receive_.pieces[0] = buffer;
    has_receive_ = true;
    if (fetches) return fetch(arrival, header);
    if (!arrival.operation.last) report_match(header.tag);
    return std::nullopt;
}

/// A rendezvous whose buffer is too small leaves its headers there, and the rest to the application.
std::optional<Nak> Responder::fetch(const Arrival& arrival, const RendezvousHeader& header) noexcept {
    if (arrival.operation.invalidate) {
        __be32 key;
        std::memcpy(&key, arrival.payload - sizeof key, sizeof key);
        if (invalidate_remotely(spec_.state, spec_.domain, spec_.qpn, be32toh(key)) != 0) return Nak::access;
    }
    ++messages_;
    if (be32toh(header.where.len) <= receive_.match.buffer.length) {
        report_match(header.tag);
        has_receive_ = false;
        pair_.rendezvous()->begin(receive_.match, header);
        pair_.doorbell();
        return std::nullopt;
    }
    if (const auto code = begin_message(arrival)) return code;
    if (transfer_.size() < sizeof header) {
        complete(arrival, IBV_WC_LOC_LEN_ERR, 0, 0);
        return Nak::invalid_request;
    }
    if (transfer_.scatter(0, std::as_bytes(std::span{&header, 1})) != Transfer::Fault::none) {
        complete(arrival, IBV_WC_LOC_PROT_ERR, 0, 0);
        return Nak::operation;
    }
    complete(arrival, IBV_WC_TM_RNDV_INCOMPLETE, sizeof header, 0);
    return std::nullopt;
}

/// The first of a match's two completions.
void Responder::report_match(const ibv_tmh& header) noexcept {
    Completion completion{.wr_id = receive_.wr_id,
                          .status = IBV_WC_SUCCESS,
                          .opcode = IBV_WC_TM_RECV,
                          .qp_num = spec_.qpn,
                          .wc_flags = IBV_WC_TM_MATCH};
    set_tag_info(completion, info_of(header));
    spec_.srq->spec().completions->add({&completion, 1});
}

/// What a completion of a tag matching queue has beyond that of any other.
void Responder::complete_tagged(const Arrival& arrival, Completion& completion) noexcept {
    if (receive_.tag == Receive::Tag::none_sent) {
        completion.opcode = IBV_WC_TM_NO_TAG;
        return;
    }
    completion.opcode = IBV_WC_TM_RECV;
    if (receive_.tag == Receive::Tag::unexpected) {
        completion.wc_flags |= spec_.srq->tags()->sync_flag();
        return;
    }
    spec_.srq->tags()->ends_use(receive_.match, completion);
    const bool all_at_once = arrival.operation.first && arrival.operation.last;
    const bool came = completion.status == IBV_WC_SUCCESS || completion.status == IBV_WC_TM_RNDV_INCOMPLETE;
    if (!came) return;
    completion.wc_flags |= IBV_WC_TM_DATA_VALID;
    if (!all_at_once) return;
    completion.wc_flags |= IBV_WC_TM_MATCH;
    ibv_tmh header;
    std::memcpy(&header, arrival.payload, sizeof header);
    set_tag_info(completion, info_of(header));
}

}  // namespace ovsdr::soft::roce
