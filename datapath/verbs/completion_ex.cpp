// Extended completion queues: one completion at a time, its fields by readers.
#include <ctime>

#include "datapath/control/fault.hpp"
#include "datapath/rdma/completion/tag_info.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

[[nodiscard]] const Completion& current(ibv_cq_ex* cq) {
    return Cq::of(cq).current;
}

int next_poll(ibv_cq_ex* base) {
    Cq& cq = Cq::of(base);
    if (cq.take({&cq.current, 1}) == 0) return ENOENT;
    cq.wr_id = cq.current.wr_id;
    cq.status = cq.current.status;
    return 0;
}

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attr) {
    if (const int error = injected_fault("ibv_start_poll")) return failed(error);
    return attr->comp_mask ? EINVAL : next_poll(cq);
}

void end_poll(ibv_cq_ex* cq) {
    Cq::of(cq).settle_event();
}

ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
    return current(cq).opcode;
}
std::uint32_t read_vendor_err(ibv_cq_ex* cq) {
    return current(cq).vendor_err;
}
std::uint32_t read_byte_len(ibv_cq_ex* cq) {
    return current(cq).byte_len;
}
std::uint32_t read_qp_num(ibv_cq_ex* cq) {
    return current(cq).qp_num;
}
unsigned read_wc_flags(ibv_cq_ex* cq) {
    return current(cq).wc_flags;
}
std::uint32_t read_flow_tag(ibv_cq_ex* cq) {
    return current(cq).flow_tag;
}
std::uint64_t read_completion_ts(ibv_cq_ex* cq) {
    return current(cq).timestamp;
}

/// The completion's monotonic time on the wall clock of now.
std::uint64_t read_wallclock(ibv_cq_ex* cq) {
    const auto nanoseconds = [](clockid_t clock) {
        timespec now{};
        clock_gettime(clock, &now);
        return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
    };
    return nanoseconds(CLOCK_REALTIME) - (nanoseconds(CLOCK_MONOTONIC) - current(cq).timestamp);
}

__be32 read_imm_data(ibv_cq_ex* cq) {
    return current(cq).imm_data;
}
std::uint32_t read_src_qp(ibv_cq_ex* cq) {
    return current(cq).src_qp;
}
std::uint8_t read_sl(ibv_cq_ex* cq) {
    return current(cq).sl;
}

std::uint16_t read_cvlan(ibv_cq_ex* cq) {
    return current(cq).cvlan;
}

void read_tm_info(ibv_cq_ex* cq, ibv_wc_tm_info* info) {
    *info = tag_info(current(cq));
}

// What no completion of this device has, as hardware leaves the field: InfiniBand's local identifiers.
std::uint32_t read_slid(ibv_cq_ex*) {
    return 0;
}
std::uint8_t read_dlid_path_bits(ibv_cq_ex*) {
    return 0;
}

}  // namespace

void set_cq_readers(Cq& cq, std::uint64_t wc_flags) {
    cq.start_poll = start_poll;
    cq.next_poll = next_poll;
    cq.end_poll = end_poll;
    cq.read_opcode = read_opcode;
    cq.read_vendor_err = read_vendor_err;
    cq.read_wc_flags = read_wc_flags;
    if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN) cq.read_byte_len = read_byte_len;
    if (wc_flags & IBV_WC_EX_WITH_IMM) cq.read_imm_data = read_imm_data;
    if (wc_flags & IBV_WC_EX_WITH_QP_NUM) cq.read_qp_num = read_qp_num;
    if (wc_flags & IBV_WC_EX_WITH_SRC_QP) cq.read_src_qp = read_src_qp;
    if (wc_flags & IBV_WC_EX_WITH_SLID) cq.read_slid = read_slid;
    if (wc_flags & IBV_WC_EX_WITH_SL) cq.read_sl = read_sl;
    if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS) cq.read_dlid_path_bits = read_dlid_path_bits;
    if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) cq.read_completion_ts = read_completion_ts;
    if (wc_flags & IBV_WC_EX_WITH_TM_INFO) cq.read_tm_info = read_tm_info;
    if (wc_flags & IBV_WC_EX_WITH_CVLAN) cq.read_cvlan = read_cvlan;
    if (wc_flags & IBV_WC_EX_WITH_FLOW_TAG) cq.read_flow_tag = read_flow_tag;
    if (wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) cq.read_completion_wallclock_ns = read_wallclock;
}

}  // namespace ovsdr::soft
