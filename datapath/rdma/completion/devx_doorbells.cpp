#include "datapath/rdma/completion/devx_doorbells.hpp"

#include <endian.h>
#include <infiniband/mlx5dv.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace ovsdr::soft::devx {

namespace {

[[nodiscard]] std::byte* allocate_page() {
    void* const memory = std::aligned_alloc(DoorbellPage::size, DoorbellPage::size);
    if (!memory) throw std::bad_alloc();
    return static_cast<std::byte*>(std::memset(memory, 0, DoorbellPage::size));
}

[[nodiscard]] std::uint32_t next_number() {
    static std::atomic<std::uint32_t> next{1};
    return next.fetch_add(1);
}

}  // namespace

DoorbellPage::DoorbellPage(DoorbellPages& pages) : pages_(pages), memory_(allocate_page()), number_(next_number()) {
    pages_.add_page(number_, memory_);
}

DoorbellPage::~DoorbellPage() {
    pages_.remove_page(number_);
    std::free(memory_);
}

std::optional<ArmRecord::Arming> ArmRecord::look(bool surely) noexcept {
    constexpr std::uint32_t solicited_only = MLX5_CQ_DB_REQ_NOT_SOL, counter_mask = 0xffffff;
    const std::uint32_t word = be32toh(word_.load(std::memory_order_acquire));
    if (last_ == word && !(surely && guessed_)) return std::nullopt;
    guessed_ = !surely && !last_;
    last_ = word;
    return Arming{word & counter_mask, (word & solicited_only) != 0};
}

DoorbellPages::~DoorbellPages() {
    if (queues_ != 0) device_.remove_service(worker, this);
}

void DoorbellPages::add_page(std::uint32_t page_id, std::byte* page) {
    const std::lock_guard guard(mutex_);
    pages_[page_id].memory = page;
}

void DoorbellPages::remove_page(std::uint32_t page_id) {
    const std::lock_guard guard(mutex_);
    pages_.erase(page_id);
}

bool DoorbellPages::add(std::uint32_t page_id, std::uint32_t cqn, Armable& queue) {
    {
        const std::lock_guard guard(mutex_);
        const auto page = pages_.find(page_id);
        if (page == pages_.end()) return false;
        page->second.queues[cqn] = &queue;
    }
    const std::lock_guard guard(service_mutex_);
    if (queues_++ == 0) device_.add_service(worker, {&DoorbellPages::run, &DoorbellPages::deadline, this});
    doorbell_.expect();
    device_.ring_worker(worker);
    return true;
}

void DoorbellPages::remove(std::uint32_t page_id, std::uint32_t cqn) {
    {
        const std::lock_guard guard(mutex_);
        const auto page = pages_.find(page_id);
        if (page != pages_.end()) page->second.queues.erase(cqn);
    }
    const std::lock_guard guard(service_mutex_);
    if (--queues_ == 0) device_.remove_service(worker, this);
}

unsigned DoorbellPages::run(void* self, const Outlet&, std::uint64_t now) noexcept {
    return static_cast<DoorbellPages*>(self)->look(now);
}

std::uint64_t DoorbellPages::deadline(void* self, std::uint64_t now) noexcept {
    return static_cast<DoorbellPages*>(self)->doorbell_.next_look(now);
}

unsigned DoorbellPages::look(std::uint64_t now) noexcept {
    unsigned found = 0;
    const std::lock_guard guard(mutex_);
    for (auto& [id, page] : pages_) {
        if (page.queues.empty()) continue;
        auto* const place = reinterpret_cast<std::uint64_t*>(page.memory + MLX5_CQ_DOORBELL);
        const std::atomic_ref<std::uint64_t> cq_register(*place);
        if (cq_register.load(std::memory_order_relaxed) == 0) continue;
        const auto rung = static_cast<std::uint32_t>(be64toh(cq_register.exchange(0, std::memory_order_acquire)));
        for (auto& [cqn, queue] : page.queues) queue->look_at_arm_record(cqn == rung);
        ++found;
    }
    if (found != 0) doorbell_.found(now);
    return found;
}

}  // namespace ovsdr::soft::devx
