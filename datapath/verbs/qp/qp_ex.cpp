// Extended QPs: requests built call by call between ibv_wr_start() and ibv_wr_complete().
//
// ibv_wr_start() takes the post lock, as libmlx5 does; ibv_wr_complete() and ibv_wr_abort() give it back. The first
// error of a batch is what ibv_wr_complete() returns, and nothing of the batch is posted then.
// Source: ibv_wr_post(3).
#include <span>
#include <utility>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

void begin_batch(Qp& qp) {
    qp.staged = 0;
    qp.open_request = false;
    qp.tso_mss = 0;
    qp.batch_error = 0;
}

void wr_start(ibv_qp_ex* base) {
    Qp& qp = Qp::of(base);
    qp.raw->lock_send();
    begin_batch(qp);
    qp.batch_error = injected_fault("ibv_wr_start");
}

void wr_send(ibv_qp_ex* base) {
    Qp& qp = Qp::of(base);
    // A request without data is one of no bytes; the next operation closes it.
    if (qp.open_request && !qp.batch_error) qp.batch_error = EINVAL;
    qp.open_request = true;
}

/// Takes a copy of the header, as libmlx5 does.
void wr_send_tso(ibv_qp_ex* base, void* header, std::uint16_t header_size, std::uint16_t mss) {
    wr_send(base);
    Qp& qp = Qp::of(base);
    if (!mss && !qp.batch_error) qp.batch_error = EINVAL;
    if (header_size > qp.raw->spec().max_tso_header && !qp.batch_error) qp.batch_error = EINVAL;
    if (qp.batch_error) return;
    const auto* const bytes = static_cast<const std::byte*>(header);
    qp.tso_header.assign(bytes, bytes + header_size);  // There is room since the queue was made.
    qp.tso_mss = mss;
}

void stage(ibv_qp_ex* base, RawPacketQp::Payload payload) {
    Qp& qp = Qp::of(base);
    payload.header = qp.tso_mss ? std::span<const std::byte>(qp.tso_header) : std::span<const std::byte>();
    payload.mss = std::exchange(qp.tso_mss, std::uint16_t{0});
    if (!qp.open_request && !qp.batch_error) qp.batch_error = EINVAL;
    qp.open_request = false;
    if (qp.batch_error) return;
    qp.batch_error = qp.raw->stage(qp.staged, qp.wr_id, qp.wr_flags, payload);
    if (!qp.batch_error) ++qp.staged;
}

void wr_set_sge(ibv_qp_ex* qp, std::uint32_t lkey, std::uint64_t addr, std::uint32_t length) {
    const ibv_sge sge{addr, length, lkey};
    stage(qp, {{&sge, 1}, {}});
}

void wr_set_sge_list(ibv_qp_ex* qp, std::size_t length, const ibv_sge* list) {
    stage(qp, {{list, length}, {}});
}

void wr_set_inline_data(ibv_qp_ex* qp, void* addr, std::size_t length) {
    const ibv_data_buf buffer{addr, length};
    stage(qp, {{}, {&buffer, 1}});
}

void wr_set_inline_data_list(ibv_qp_ex* qp, std::size_t length, const ibv_data_buf* list) {
    stage(qp, {{}, {list, length}});
}

int wr_complete(ibv_qp_ex* base) {
    Qp& qp = Qp::of(base);
    int error = qp.batch_error;
    if (!error && (qp.open_request || !qp.raw->may_send())) error = EINVAL;
    if (!error) error = injected_fault("ibv_wr_complete");
    if (!error) qp.raw->publish_send(qp.staged);
    begin_batch(qp);
    qp.raw->unlock_send();
    if (!error) qp.raw->ring_doorbell();
    return error ? failed(error) : 0;
}

void wr_abort(ibv_qp_ex* base) {
    Qp& qp = Qp::of(base);
    begin_batch(qp);
    qp.raw->unlock_send();
}

}  // namespace

void set_send_operations(Qp& qp) {
    qp.has_send_ops = true;
    qp.wr_start = wr_start;
    qp.wr_complete = wr_complete;
    qp.wr_abort = wr_abort;
    qp.wr_set_sge = wr_set_sge;
    qp.wr_set_sge_list = wr_set_sge_list;
    qp.wr_set_inline_data = wr_set_inline_data;
    qp.wr_set_inline_data_list = wr_set_inline_data_list;
    qp.wr_send = wr_send;
    qp.wr_send_tso = wr_send_tso;
    qp.tso_header.reserve(qp.raw->spec().max_tso_header);
}

}  // namespace ovsdr::soft
