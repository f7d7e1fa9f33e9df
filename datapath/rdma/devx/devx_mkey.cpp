// CREATE_MKEY: an indirect key over a list of others (access mode KLM), ready to use. DPDK's mlx5 driver dumps counters
// through such keys.
//
// BAD_PARAM: other access modes, free keys and keys that work requests configure (mlx5dv_create_mkey() makes those),
// signatures, encryption, a key of the whole address space. Hints about the order of writes on a PCI bus change nothing
// here. What stands behind the key is looked up with each use.
#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <vector>

#include "datapath/rdma/devx/devx_layout.hpp"
#include "datapath/rdma/devx/devx_resource.hpp"
#include "datapath/rdma/mkey/mkey.hpp"

namespace ovsdr::soft::devx {

using prm::Field;
using prm::Opcode;
using prm::Status;

namespace mkc = prm::mkc;

namespace {

[[nodiscard]] std::uint64_t field(Input in, Field which) { return prm::get(in, prm::within(mkc::begin, which)); }

[[nodiscard]] unsigned access_of(Input in) {
    unsigned access = 0;
    if (field(in, mkc::local_write)) access |= IBV_ACCESS_LOCAL_WRITE;
    if (field(in, mkc::remote_read)) access |= IBV_ACCESS_REMOTE_READ;
    if (field(in, mkc::remote_write)) access |= IBV_ACCESS_REMOTE_WRITE;
    if (field(in, mkc::atomic)) access |= IBV_ACCESS_REMOTE_ATOMIC;
    return access;
}

class IndirectKey final : public Resource {
public:
    /// Its number is the key without its tag.
    IndirectKey(DeviceState& state, std::unique_ptr<Mkey> mkey, std::shared_ptr<ProtectionDomain> domain)
        : Resource(mkey->key() >> 8), state_(state), domain_(std::move(domain)), mkey_(std::move(mkey)) {}
    ~IndirectKey() override { state_.memory().remove(mkey_->key()); }

    bool takes(Opcode) const noexcept override { return false; }
    Status execute(Opcode, Input, Output) override { return Status::bad_op; }

private:
    DeviceState& state_;
    const std::shared_ptr<ProtectionDomain> domain_;
    const std::unique_ptr<Mkey> mkey_;
};

/// Lists come in whole units of four; those that are left over are empty.
[[nodiscard]] std::vector<LayoutEntry> read_list(Input in, std::uint64_t length) {
    std::vector<LayoutEntry> entries;
    for (std::uint64_t i = 0; i < length; ++i) {
        const auto at = static_cast<std::uint32_t>((mkc::list + i * mkc::entry) * 8);
        const auto size = static_cast<std::uint32_t>(prm::get(in, {at, 32}));
        if (size == 0) continue;
        entries.push_back({.address = prm::get(in, {at + 64, 64}),
                           .key = static_cast<std::uint32_t>(prm::get(in, {at + 32, 32})),
                           .size = size,
                           .stride = 0});
    }
    return entries;
}

}  // namespace

Status create_mkey(DeviceState& state, Input in, std::unique_ptr<Resource>& made) {
    constexpr std::array absent{mkc::free,        mkc::access_mode_high, mkc::umr,   mkc::whole_space,
                                mkc::signature,   mkc::remote_invalidate, mkc::crypto};
    const auto asks = [&](Field which) { return field(in, which) != 0; };
    if (std::any_of(absent.begin(), absent.end(), asks)) return Status::bad_param;
    if (field(in, mkc::access_mode) != mkc::list_of_keys) return Status::bad_param;
    const std::uint64_t length = prm::get(in, mkc::list_length);
    if (length == 0 || length > (in.size() - mkc::list) / mkc::entry) return Status::bad_param;
    auto domain = state.protection_domains().find(static_cast<std::uint32_t>(field(in, mkc::pd)));
    if (!domain) return Status::bad_res;

    const std::vector<LayoutEntry> entries = read_list(in, length);
    auto mkey = std::make_unique<Mkey>(Mkey::Spec{.domain = domain->identity,
                                                  .max_entries = static_cast<unsigned>(entries.size()),
                                                  .has_signature = false,
                                                  .remote_invalidate = false});
    {
        const Mkey::Writing writing(*mkey);
        writing->layout.assign(entries, 1);
        writing->length = field(in, mkc::length);
        if (entries.empty() || writing->length > writing->layout.size()) return Status::bad_param;
        writing->start_address = field(in, mkc::start_address);
        writing->access = access_of(in);
        writing->free = false;
    }
    if (state.memory().add(*mkey) != 0) return Status::no_res;
    mkey->set_key((mkey->key() & ~0xffu) | static_cast<std::uint32_t>(field(in, mkc::tag)));
    made = std::make_unique<IndirectKey>(state, std::move(mkey), std::move(domain));
    return Status::ok;
}

}  // namespace ovsdr::soft::devx
