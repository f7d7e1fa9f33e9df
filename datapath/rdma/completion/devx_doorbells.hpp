// Doorbell pages (UARs), and the completion queues that applications arm through them.
//
// Model. A page is plain memory. An application that arms a CQ writes the CQ's arm record and then the page's CQ
// register, 64 bits with the record's word and the CQ's number. A worker looks at that register: takes what is in it,
// arms that CQ, and looks at the records of the page's other CQs too, since two registers written within one look leave
// only the last. A record that was never looked at before counts as new: such a CQ may tell of a completion though it
// was not armed yet. Send doorbells are not looked at here: queues look at their doorbell records
// (polled_doorbell.hpp).
//
// Threads: any; look() on worker 0. Source: PRM, UAR page format and CQ doorbells; mlx5dv.h MLX5_CQ_DOORBELL.
#pragma once

#include <linux/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "datapath/ports/nic.hpp"
#include "datapath/rdma/completion/polled_doorbell.hpp"

namespace ovsdr::soft::devx {

/// A CQ that can be armed.
class Armable {
public:
    virtual ~Armable() = default;
    /// Its register was written (`surely`), or another one of its page.
    virtual void look_at_arm_record(bool surely) noexcept = 0;
};

/// The arm word of a CQ's doorbell record, and what was made of it. One thread at a time.
class ArmRecord {
public:
    struct Arming {
        std::uint32_t consumed;  ///< completions, 24 bits
        bool solicited_only;
    };

    explicit ArmRecord(const std::atomic<__be32>& word) : word_(word) {}
    /// Nothing: it was not armed anew. `surely`: see Armable.
    [[nodiscard]] std::optional<Arming> look(bool surely) noexcept;

private:
    const std::atomic<__be32>& word_;
    std::optional<std::uint32_t> last_;
    bool guessed_ = false;  ///< the word was taken for an arming that nobody rang for
};

class DoorbellPages {
public:
    explicit DoorbellPages(Device& device) : device_(device) {}
    ~DoorbellPages();

    /// The page stays the caller's, who removes it.
    void add_page(std::uint32_t page_id, std::byte* page);
    void remove_page(std::uint32_t page_id);
    /// false: there is no such page, and the queue will never be rung.
    [[nodiscard]] bool add(std::uint32_t page_id, std::uint32_t cqn, Armable& queue);
    /// Of one that was added. Returns once no look is under way.
    void remove(std::uint32_t page_id, std::uint32_t cqn);

private:
    struct Page {
        std::byte* memory = nullptr;
        std::map<std::uint32_t, Armable*> queues;
    };

    static unsigned run(void* self, const Outlet&, std::uint64_t now) noexcept;
    static std::uint64_t deadline(void* self, std::uint64_t now) noexcept;
    [[nodiscard]] unsigned look(std::uint64_t now) noexcept;

    static constexpr unsigned worker = 0;
    Device& device_;
    std::mutex mutex_;
    std::map<std::uint32_t, Page> pages_;  // under mutex_
    std::mutex service_mutex_;
    unsigned queues_ = 0;                  // under service_mutex_; the device serves us while there are any
    PolledDoorbell doorbell_;
};

/// A page that applications ring, with its number; registered for as long as it lives. Throws std::bad_alloc.
class DoorbellPage {
public:
    static constexpr std::size_t size = 4096;
    static constexpr std::size_t blue_flame = 0x800, blue_flame_size = 0x100;  ///< where its send doorbells are, bytes

    explicit DoorbellPage(DoorbellPages& pages);
    ~DoorbellPage();
    DoorbellPage(const DoorbellPage&) = delete;
    DoorbellPage& operator=(const DoorbellPage&) = delete;

    [[nodiscard]] std::byte* memory() const noexcept { return memory_; }
    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

private:
    DoorbellPages& pages_;
    std::byte* const memory_;
    const std::uint32_t number_;
};

}  // namespace ovsdr::soft::devx
