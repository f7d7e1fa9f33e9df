#include "datapath/verbs/rings.hpp"

#include <bit>
#include <cstdlib>

#include "datapath/rdma/completion/cqe_ring.hpp"
#include "datapath/verbs/objects.hpp"
#include "datapath/verbs/qp/qp_rdma.hpp"

namespace ovsdr::soft {

namespace {

constexpr std::size_t page_size = 4096;

[[nodiscard]] QueueMemory allocate_pages(std::size_t size) {
    const std::size_t whole = (size + page_size - 1) / page_size * page_size;
    auto* const memory = static_cast<std::byte*>(std::aligned_alloc(page_size, whole));
    if (!memory) throw std::bad_alloc();
    return {memory, [](std::byte* bytes) { std::free(bytes); }};
}

[[nodiscard]] __be32* record(std::atomic<__be32>& first) noexcept {
    return reinterpret_cast<__be32*>(&first);
}

/// Numbers of a raw packet QP. Its requests do not stand in rings of the device's formats.
[[nodiscard]] int describe_raw(const RawPacketQpSpec& spec, mlx5dv_qp* out) {
    if (!(out->comp_mask & MLX5DV_QP_MASK_RAW_QP_HANDLES)) return EOPNOTSUPP;
    *out = mlx5dv_qp{};
    out->comp_mask = MLX5DV_QP_MASK_RAW_QP_HANDLES;
    out->tirn = spec.tirn;
    out->tisn = spec.tisn;
    out->rqn = spec.rqn;
    out->sqn = spec.sqn;
    return 0;
}

}  // namespace

Cq::Cq() : ibv_cq_ex{} {}
Cq::~Cq() = default;

CqExposure::CqExposure(Cq& cq) : cq_(cq), page_(Context::of(cq.context).doorbell_page()) {
    show();
    (void)Context::of(cq_.context).state.doorbell_pages().add(page_.number(), cq_.number, *this);
}

CqExposure::~CqExposure() {
    Context::of(cq_.context).state.doorbell_pages().remove(page_.number(), cq_.number);
}

void CqExposure::show() {
    const unsigned length = cq_.queue->length();
    QueueMemory ring = allocate_pages(std::size_t{length} * cq_.cqe_size);
    cq_.queue->expose(
        std::make_unique<CqeRing>(CqeRing::Spec{.base = ring.get(),
                                                .log_length = static_cast<unsigned>(std::countr_zero(length)),
                                                .entry_size = cq_.cqe_size,
                                                .doorbell = doorbells_.data(),
                                                .ignore_overrun = true}),
        doorbells_[0]);
    ring_ = std::move(ring);
}

mlx5dv_cq CqExposure::describe() noexcept {
    return {.buf = ring_.get(),
            .dbrec = record(doorbells_[0]),
            .cqe_cnt = cq_.queue->length(),
            .cqe_size = cq_.cqe_size,
            .cq_uar = page_.memory(),
            .cqn = cq_.number,
            .comp_mask = 0};
}

void CqExposure::look_at_arm_record(bool surely) noexcept {
    if (const auto arming = arm_record_.look(surely)) cq_.queue->arm_from(arming->consumed, arming->solicited_only);
}

int describe_cq(ibv_cq* in, mlx5dv_cq* out) {
    Cq& cq = Cq::of(in);
    if (!cq.exposure) cq.exposure = std::make_unique<CqExposure>(cq);
    *out = cq.exposure->describe();
    return 0;
}

int describe_rwq(ibv_wq* in, mlx5dv_rwq* out) {
    Wq& wq = Wq::of(in);
    const ReceivePoster::Shape& shape = wq.poster.shape();
    *out = {.buf = wq.ring.get(),
            .dbrec = record(wq.doorbells[MLX5_RCV_DBR]),
            .wqe_cnt = shape.length,
            .stride = shape.stride,
            .comp_mask = 0};
    return 0;
}

int describe_qp(ibv_qp* in, mlx5dv_qp* out) {
    Qp& qp = Qp::of(in);
    if (qp.raw) return describe_raw(qp.raw->spec(), out);
    if (!qp.rdma || qp.rdma->is_dc(MLX5DV_DCTYPE_DCT)) return EOPNOTSUPP;
    RdmaQp& rdma = *qp.rdma;
    const roce::QueuePairSpec& spec = rdma.device->spec();
    const std::byte* const page = Context::of(in->context).doorbell_page().memory();
    rdma.device->poll_doorbells();
    *out = mlx5dv_qp{};
    out->dbrec = record(rdma.doorbells.receive);
    out->sq = {.buf = spec.send.base, .wqe_cnt = spec.send.length, .stride = roce::basic_block_size};
    out->rq = {.buf = spec.receive.base, .wqe_cnt = spec.receive.length, .stride = spec.receive.stride};
    out->bf = {.reg = const_cast<std::byte*>(page) + devx::DoorbellPage::blue_flame,
               .size = devx::DoorbellPage::blue_flame_size};
    return 0;
}

}  // namespace ovsdr::soft
