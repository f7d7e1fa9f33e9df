#include "offload/dr/device/matcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "offload/dr/device/leak.hpp"

namespace ovsdr::dr {

static_assert(offsetof(mlx5dv_flow_match_parameters, match_buf) == sizeof(std::size_t));

ProviderMatch::ProviderMatch(const MatchParam& param, std::uint8_t criteria) noexcept {
    const std::size_t size = MatchParam::size_for(criteria);
    std::memcpy(bytes_.data(), &size, sizeof size);
    std::memcpy(bytes_.data() + sizeof size, param.bytes.data(), size);
}

mlx5dv_flow_match_parameters* ProviderMatch::get() noexcept {
    return reinterpret_cast<mlx5dv_flow_match_parameters*>(bytes_.data());
}

struct MatcherRef::Shared {
    Shared(MatcherSet& its_set, MatcherSpec matcher_spec, unsigned shown_number) noexcept
        : set(its_set), spec(matcher_spec), criteria(matcher_spec.mask.criteria()), number(shown_number) {}
    ~Shared() {
        if (matcher != nullptr) destroyed([this] { return mlx5dv_dr_matcher_destroy(matcher); });
    }
    Shared(const Shared&) = delete;
    Shared& operator=(const Shared&) = delete;

    MatcherSet& set;
    MatcherSpec spec;
    std::uint8_t criteria;
    mlx5dv_dr_matcher* matcher = nullptr;
    unsigned number;
    std::shared_ptr<const void> owner;          ///< of the set, on behalf of all refs
    std::atomic<std::uint64_t> references{0};   ///< becomes 0, and more than that again, with the set's mutex only
};

void MatcherRef::release() noexcept {
    if (Shared* const shared = std::exchange(shared_, nullptr); shared != nullptr) shared->set.release(shared);
}

mlx5dv_dr_matcher* MatcherRef::get() const noexcept { return shared_->matcher; }
std::uint8_t MatcherRef::criteria() const noexcept { return shared_->criteria; }
unsigned MatcherRef::number() const noexcept { return shared_->number; }

std::shared_ptr<MatcherSet> MatcherSet::create(std::shared_ptr<Table> table) {
    return std::shared_ptr<MatcherSet>(new MatcherSet(std::move(table)));
}

MatcherSet::MatcherSet(std::shared_ptr<Table> table) noexcept : table_(std::move(table)) {}
MatcherSet::~MatcherSet() = default;

bool MatcherSet::Less::operator()(const MatcherSpec& left, const MatcherSpec& right) const noexcept {
    if (left.priority != right.priority) return left.priority < right.priority;
    return left.mask.bytes < right.mask.bytes;
}

/// NULL: there is none.
MatcherRef::Shared* MatcherSet::find(const MatchParam& mask, std::uint16_t priority) noexcept {
    if (latest_ != nullptr && latest_->spec.priority == priority && latest_->spec.mask == mask) return latest_;
    const auto found = matchers_.find({mask, priority});
    return found == matchers_.end() ? nullptr : found->second.get();
}

Result<MatcherRef::Shared*> MatcherSet::make(const MatcherSpec& spec) {
    auto shared = std::make_unique<MatcherRef::Shared>(*this, spec, next_number_);
    ProviderMatch mask(spec.mask, shared->criteria);
    shared->matcher = mlx5dv_dr_matcher_create(table_->get(), spec.priority, shared->criteria, mask.get());
    if (shared->matcher == nullptr) {
        return tl::unexpected(failure(errno, "mlx5dv_dr_matcher_create",
                                      fmt::format("{} level {}", name_of(table_->domain()->type()), table_->level())));
    }
    MatcherRef::Shared* const made = matchers_.emplace(spec, std::move(shared)).first->second.get();
    ++next_number_;
    return made;
}

Result<MatcherRef> MatcherSet::acquire(const MatchParam& mask, std::uint16_t priority,
                                       std::shared_ptr<const void> owner) {
    std::lock_guard lock(mutex_);
    MatcherRef::Shared* shared = find(mask, priority);
    if (shared == nullptr) {
        auto made = make({mask, priority});
        if (!made) return tl::unexpected(std::move(made.error()));
        shared = *made;
    }
    latest_ = shared;
    if (shared->references.fetch_add(1, std::memory_order_relaxed) == 0) shared->owner = std::move(owner);
    return MatcherRef(shared);
}

void MatcherSet::release(MatcherRef::Shared* shared) noexcept {
    std::uint64_t references = shared->references.load(std::memory_order_relaxed);
    while (references > 1) {
        if (shared->references.compare_exchange_weak(references, references - 1, std::memory_order_release)) return;
    }
    std::shared_ptr<const void> owner;   // perhaps the last one: the set goes when it is not locked any more
    std::lock_guard lock(mutex_);
    if (shared->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    owner = std::move(shared->owner);
    if (latest_ == shared) latest_ = nullptr;
    matchers_.erase(MatcherSpec(shared->spec));
}

std::vector<MatcherSet::Row> MatcherSet::rows() const {
    std::vector<Row> rows;
    {
        std::lock_guard lock(mutex_);
        for (const auto& [spec, shared] : matchers_) rows.push_back({shared->number, spec, shared->references});
    }
    std::sort(rows.begin(), rows.end(), [](const Row& left, const Row& right) {
        return std::pair(left.spec.priority, left.number) < std::pair(right.spec.priority, right.number);
    });
    return rows;
}

}  // namespace ovsdr::dr
