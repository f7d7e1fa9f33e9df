// Indirection tables, and raw packet QPs that spread what they receive over one: they have no queues of their own, no
// states, and no number.
// Source: ibv_create_rwq_ind_table(3), ibv_create_qp_ex(3); mlx5_ib's create_rss_raw_qp_tir, whose errors these are.
#include <algorithm>
#include <cstring>

#include "datapath/control/fault.hpp"
#include "datapath/verbs/limits.hpp"
#include "datapath/verbs/objects.hpp"

namespace ovsdr::soft {

namespace {

[[nodiscard]] int check(const ibv_rwq_ind_table_init_attr& attr) {
    if (attr.comp_mask || attr.log_ind_tbl_size > limits::log_indirection_table) return EINVAL;
    const auto is_receive_queue = [](const ibv_wq* wq) { return wq && wq->wq_type == IBV_WQT_RQ; };
    return std::all_of(attr.ind_tbl, attr.ind_tbl + (1u << attr.log_ind_tbl_size), is_receive_queue) ? 0 : EINVAL;
}

[[nodiscard]] int check(const ibv_qp_init_attr_ex& attr, RssFields& fields) {
    constexpr std::uint32_t both = IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
    constexpr std::uint32_t known = both | IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
    if ((attr.comp_mask & both) != both || (attr.comp_mask & ~known)) return EINVAL;
    if (attr.qp_type != IBV_QPT_RAW_PACKET) return EOPNOTSUPP;
    if (!(attr.comp_mask & IBV_QP_INIT_ATTR_PD) || !attr.pd || !attr.rwq_ind_tbl) return EINVAL;
    const bool flags = (attr.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) && attr.create_flags;
    if (flags || attr.send_cq || attr.recv_cq || attr.srq || attr.cap.max_send_wr || attr.cap.max_recv_wr ||
        attr.cap.max_recv_sge) {
        return EINVAL;
    }
    const ibv_rx_hash_conf& conf = attr.rx_hash_conf;
    if (conf.rx_hash_function != IBV_RX_HASH_FUNC_TOEPLITZ) return EOPNOTSUPP;
    if (conf.rx_hash_key_len != Toeplitz::key_size) return EINVAL;
    // Without a hash there is one queue.
    if (conf.rx_hash_fields_mask == 0) return IndirectionTable::of(attr.rwq_ind_tbl).queues.size() == 1 ? 0 : EINVAL;
    return parse_rss_fields(conf.rx_hash_fields_mask, fields);
}

}  // namespace

ibv_rwq_ind_table* create_rwq_ind_table_op(ibv_context* context, ibv_rwq_ind_table_init_attr* attr) {
    int error = injected_fault("ibv_create_rwq_ind_table");
    if (!error) error = check(*attr);
    if (error) {
        errno = error;
        return nullptr;
    }
    return created([&]() -> ibv_rwq_ind_table* {
        auto table = std::make_unique<IndirectionTable>();
        for (unsigned i = 0; i < 1u << attr->log_ind_tbl_size; ++i) {
            table->queues.push_back(Wq::of(attr->ind_tbl[i]).queue.get());
        }
        for (ReceiveQueue* queue : table->queues) queue->hold();
        table->context = context;
        table->ind_tbl_num = Context::of(context).state.queue_numbers().take();
        table->ind_tbl_handle = static_cast<int>(table->ind_tbl_num);
        Context::of(context).hold();
        return table.release();
    });
}

int destroy_rwq_ind_table_op(ibv_rwq_ind_table* base) {
    if (const int error = injected_fault("ibv_destroy_rwq_ind_table")) return failed(error);
    IndirectionTable& table = IndirectionTable::of(base);
    if (table.users.load(std::memory_order_acquire)) return failed(EBUSY);
    Context& context = Context::of(base->context);
    for (ReceiveQueue* queue : table.queues) queue->release();
    context.state.queue_numbers().give_back(static_cast<std::uint32_t>(base->ind_tbl_num));
    delete &table;
    context.let_go();
    return 0;
}

ibv_qp* create_rss_qp(ibv_context* context, ibv_qp_init_attr_ex& attr) noexcept {
    RssFields fields;
    if (const int error = check(attr, fields)) {
        errno = error;
        return nullptr;
    }
    return created([&] {
        auto qp = std::make_unique<Qp>();
        std::array<std::uint8_t, Toeplitz::key_size> key;
        std::copy_n(attr.rx_hash_conf.rx_hash_key, key.size(), key.begin());
        IndirectionTable& table = IndirectionTable::of(attr.rwq_ind_tbl);
        qp->rss = std::make_unique<RssReceiver>(fields, key, std::make_shared<const QueueTable>(table.queues));
        qp->table = &table;
        ibv_qp& base = qp->qp_base;
        base.context = context;
        base.qp_context = attr.qp_context;
        base.pd = attr.pd;
        base.state = IBV_QPS_RESET;
        base.qp_type = attr.qp_type;
        pthread_mutex_init(&base.mutex, nullptr);
        pthread_cond_init(&base.cond, nullptr);
        table.users.fetch_add(1);
        Pd::of(attr.pd).users.fetch_add(1);
        return qp.release()->base();
    });
}

int destroy_rss_qp(Qp& qp) {
    if (qp.rss->held()) return EBUSY;
    qp.table->users.fetch_sub(1);
    Pd::of(qp.qp_base.pd).users.fetch_sub(1);
    pthread_mutex_destroy(&qp.qp_base.mutex);
    pthread_cond_destroy(&qp.qp_base.cond);
    delete &qp;
    return 0;
}

}  // namespace ovsdr::soft
