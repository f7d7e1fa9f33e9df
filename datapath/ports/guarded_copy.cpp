#include "datapath/ports/guarded_copy.hpp"

#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <mutex>

// All return 0, or 1 after a fault. They are leaves that touch no stack: the handler may leave them at any instruction.
//
// int softnic_copy(to, from, size): up to 256 bytes go through one vector register (the last, partial one overlaps what
// is copied already), more through the string instruction.
// int softnic_fetch_add(word, add, before), int softnic_compare_swap(word, swap, expected and before)
asm(R"(
    .text
    .p2align 5
    .type softnic_copy, @function
softnic_copy:
    cmpq $256, %rdx
    ja 3f
    cmpq $16, %rdx
    jb 3f
1:  movups (%rsi), %xmm0
    movups %xmm0, (%rdi)
    addq $16, %rsi
    addq $16, %rdi
    subq $16, %rdx
    cmpq $16, %rdx
    jae 1b
    testq %rdx, %rdx
    jz 2f
    movups -16(%rsi,%rdx), %xmm0
    movups %xmm0, -16(%rdi,%rdx)
2:  xorl %eax, %eax
    ret
3:  movq %rdx, %rcx
    rep movsb
    xorl %eax, %eax
    ret
    .size softnic_copy, .-softnic_copy
    .type softnic_fetch_add, @function
softnic_fetch_add:
    lock xaddq %rsi, (%rdi)
    movq %rsi, (%rdx)
    xorl %eax, %eax
    ret
    .size softnic_fetch_add, .-softnic_fetch_add
    .type softnic_compare_swap, @function
softnic_compare_swap:
    movq (%rdx), %rax
    lock cmpxchgq %rsi, (%rdi)
    movq %rax, (%rdx)
    xorl %eax, %eax
    ret
    .size softnic_compare_swap, .-softnic_compare_swap
softnic_guarded_end:
softnic_fault:
    movl $1, %eax
    ret
)");

extern "C" {
int softnic_copy(void* to, const void* from, std::size_t size) noexcept;
int softnic_fetch_add(std::uint64_t* word, std::uint64_t add, std::uint64_t* before) noexcept;
int softnic_compare_swap(std::uint64_t* word, std::uint64_t swap, std::uint64_t* expected) noexcept;
void softnic_guarded_end();
void softnic_fault();
}

namespace ovsdr::soft {

namespace {

struct sigaction before_sigsegv, before_sigbus;

// As the kernel would: one that asked to be called once (SA_RESETHAND) does not hear of the fault that it returns to.
void pass_on(struct sigaction& before, int number, siginfo_t* info, void* context) {
    const struct sigaction handler = before;
    if (handler.sa_flags & static_cast<int>(SA_RESETHAND)) {
        before.sa_flags = 0;
        before.sa_handler = SIG_DFL;
    }
    if (handler.sa_flags & SA_SIGINFO) {
        handler.sa_sigaction(number, info, context);
    } else if (handler.sa_handler != SIG_DFL && handler.sa_handler != SIG_IGN) {
        handler.sa_handler(number);
    } else {
        // The instruction faults again, with nobody to stop it this time.
        signal(number, SIG_DFL);
    }
}

void on_fault(int number, siginfo_t* info, void* context) {
    auto& counter = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
    const auto at = static_cast<std::uintptr_t>(counter);
    if (at >= reinterpret_cast<std::uintptr_t>(&softnic_copy) &&
        at < reinterpret_cast<std::uintptr_t>(&softnic_guarded_end)) {
        counter = static_cast<greg_t>(reinterpret_cast<std::uintptr_t>(&softnic_fault));
        return;
    }
    pass_on(number == SIGSEGV ? before_sigsegv : before_sigbus, number, info, context);
}

}  // namespace

bool guarded_copy(void* to, const void* from, std::size_t size) noexcept {
    return softnic_copy(to, from, size) == 0;
}

bool guarded_fetch_add(std::uint64_t* word, std::uint64_t add, std::uint64_t& before) noexcept {
    return softnic_fetch_add(word, add, &before) == 0;
}

bool guarded_compare_swap(std::uint64_t* word, std::uint64_t swap, std::uint64_t& expected) noexcept {
    return softnic_compare_swap(word, swap, &expected) == 0;
}

void guard_copies() noexcept {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction ours {};  // whose mask is empty
        ours.sa_sigaction = on_fault;
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGSEGV, &ours, &before_sigsegv);
        sigaction(SIGBUS, &ours, &before_sigbus);
    });
}

}  // namespace ovsdr::soft
