// An end without signature: what offload/mirror's Connection does, by MKEYs that protect nothing or by none.
#pragma once

#include <infiniband/mlx5dv.h>

#include <vector>

#include "end.hpp"
#include "offload/mirror/verbs_owner.hpp"

namespace ovsdr::bench {

class PlainEnd final : public End {
public:
    PlainEnd(const EndSpec& spec, bool by_mkey);

    const mirror::Endpoint& local() const noexcept override { return local_; }
    void connect(const mirror::Endpoint& peer) override;
    void post_write(std::uint16_t slot, std::uint32_t peer_key) override;
    bool post_open(std::uint16_t first, std::size_t length) override;
    void post_receives(std::size_t length) override;
    std::uint32_t key_of(std::uint16_t slot) const noexcept override {
        return by_mkey_ ? mkeys_[slot]->rkey : regions_[slot]->rkey;
    }
    void check(std::uint16_t) override {}
    std::span<const ibv_wc> poll() override;

private:
    void find_address();
    void create_queues();
    void create_keys();
    void configure(std::uint16_t slot, unsigned access);

    const EndSpec spec_;
    const bool by_mkey_;
    mirror::Endpoint local_{};
    std::uint8_t gid_index_ = 0;
    mirror::Owner<ibv_cq> cq_;
    std::vector<mirror::Owner<ibv_mr>> regions_;       ///< of slots
    std::vector<mirror::Owner<mlx5dv_mkey>> mkeys_;    ///< of slots, over the regions
    mirror::Owner<ibv_qp> qp_;
    ibv_qp_ex* ex_ = nullptr;
    mlx5dv_qp_ex* mlx5_ = nullptr;
    std::vector<ibv_wc> completions_;
};

}  // namespace ovsdr::bench
