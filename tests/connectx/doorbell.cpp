#include "tests/connectx/doorbell.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "tests/connectx/store.hpp"

namespace ovsdr::connectx {
namespace {

constexpr std::size_t page_size = 4096;

struct Pages {
    std::array<std::atomic<std::uintptr_t>, 256> addresses{};   ///< 0: free. Read by the handler without a lock
    std::atomic<OnRing*> on_ring{nullptr};
    struct sigaction before {};
    std::mutex mutex;
    bool has_handler = false;
};

Pages& pages() {
    static Pages all;
    return all;
}

[[nodiscard]] bool is_doorbell(std::uintptr_t page) {
    if (page == 0) return false;   // a null pointer's; 0 marks free places here
    for (const auto& known : pages().addresses) {
        if (known.load(std::memory_order_acquire) == page) return true;
    }
    return false;
}

/// Someone else's fault: to whoever had the signal before.
void pass_on(int signal, siginfo_t* info, void* context) {
    const struct sigaction& before = pages().before;
    if ((before.sa_flags & SA_SIGINFO) != 0) return before.sa_sigaction(signal, info, context);
    if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
    // The instruction runs again and faults again, this time for good.
    sigaction(SIGSEGV, &before, nullptr);
}

void say(const char* text) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text, __builtin_strlen(text));
}

void on_fault(int signal, siginfo_t* info, void* raw_context) {
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    if (!is_doorbell(address & ~(page_size - 1))) return pass_on(signal, info, raw_context);
    mcontext_t& context = static_cast<ucontext_t*>(raw_context)->uc_mcontext;
    const auto store = decode_store(reinterpret_cast<const std::uint8_t*>(context.gregs[REG_RIP]), context);
    if (!store) {
        say("connectx: a doorbell was rung by an instruction that is not known (tests/connectx/store.cpp)\n");
        return pass_on(signal, info, raw_context);
    }
    const std::uint64_t value = store->width == 8 ? __builtin_bswap64(store->value)
                                                  : __builtin_bswap32(static_cast<std::uint32_t>(store->value));
    const int error = errno;
    pages().on_ring.load()(Ring{address % page_size, store->width, value});
    errno = error;
    context.gregs[REG_RIP] += static_cast<greg_t>(store->instruction_size);
}

void install_handler() {
    struct sigaction ours {};
    ours.sa_sigaction = on_fault;
    // Not blocked while it runs, so that a fault of our own ends the process instead of hanging it.
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &ours, &pages().before);
}

}   // namespace

void* map_doorbell_page(OnRing* on_ring) {
    std::lock_guard lock(pages().mutex);
    for (auto& place : pages().addresses) {
        if (place.load() != 0) continue;
        void* page = mmap(nullptr, page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return nullptr;
        if (!pages().has_handler) install_handler();
        pages().has_handler = true;
        pages().on_ring = on_ring;
        place.store(reinterpret_cast<std::uintptr_t>(page), std::memory_order_release);
        return page;
    }
    return nullptr;
}

bool unmap_doorbell_page(void* page) {
    if (page == nullptr || !is_doorbell(reinterpret_cast<std::uintptr_t>(page))) return false;
    std::lock_guard lock(pages().mutex);
    for (auto& place : pages().addresses) {
        if (place.load() != reinterpret_cast<std::uintptr_t>(page)) continue;
        place.store(0);
        munmap(page, page_size);
        return true;
    }
    return false;
}

}   // namespace ovsdr::connectx
