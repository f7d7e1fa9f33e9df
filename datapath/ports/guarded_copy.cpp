#include "datapath/ports/guarded_copy.hpp"

#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <mutex>
#include <span>

#include "datapath/ports/fault_table.hpp"

// All return 0, or 1 after a fault. They are leaves that touch no stack: the handler may leave them at any instruction.
//
// int softnic_copy(to, from, size): up to 256 bytes go through one vector register (the last, partial one overlaps what
// is copied already), more through the string instruction. Where softnic_wide is set, 64 to 16384 bytes go through
// registers of 64 bytes: whoever computes a CRC of what has just been copied reads it back sooner than what the string
// instruction wrote, or narrower stores, and the instruction begins slowly with blocks of 512 bytes
// (tests/bench/mirror). Registers above zmm15 leave nothing that would slow other code down.
// int softnic_fetch_add(word, add, before), int softnic_compare_swap(word, swap, expected and before)
asm(R"(
    .text
    .p2align 5
    .type softnic_copy, @function
softnic_copy:
    cmpb $0, softnic_wide(%rip)
    jne 4f
0:  cmpq $256, %rdx
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
4:  cmpq $64, %rdx
    jb 0b
    cmpq $16384, %rdx
    ja 3b
5:  cmpq $256, %rdx
    jb 6f
    vmovdqu64 (%rsi), %zmm16
    vmovdqu64 64(%rsi), %zmm17
    vmovdqu64 128(%rsi), %zmm18
    vmovdqu64 192(%rsi), %zmm19
    vmovdqu64 %zmm16, (%rdi)
    vmovdqu64 %zmm17, 64(%rdi)
    vmovdqu64 %zmm18, 128(%rdi)
    vmovdqu64 %zmm19, 192(%rdi)
    addq $256, %rsi
    addq $256, %rdi
    subq $256, %rdx
    jmp 5b
6:  cmpq $64, %rdx
    jb 7f
    vmovdqu64 (%rsi), %zmm16
    vmovdqu64 %zmm16, (%rdi)
    addq $64, %rsi
    addq $64, %rdi
    subq $64, %rdx
    jmp 6b
7:  testq %rdx, %rdx
    jz 2b
    vmovdqu64 -64(%rsi,%rdx), %zmm16
    vmovdqu64 %zmm16, -64(%rdi,%rdx)
    jmp 2b
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
    .bss
softnic_wide:
    .zero 1
    .text
)");

extern "C" {
extern std::uint8_t softnic_wide;   // written once, before anybody else looks
int softnic_copy(void* to, const void* from, std::size_t size) noexcept;
int softnic_fetch_add(std::uint64_t* word, std::uint64_t add, std::uint64_t* before) noexcept;
int softnic_compare_swap(std::uint64_t* word, std::uint64_t swap, std::uint64_t* expected) noexcept;
void softnic_guarded_end();
void softnic_fault();
// The linker's names; both nullptr where no statement is in the table.
[[gnu::weak, gnu::visibility("hidden")]] extern const ovsdr::soft::FaultRange __start_softnic_faults[];
[[gnu::weak, gnu::visibility("hidden")]] extern const ovsdr::soft::FaultRange __stop_softnic_faults[];
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
    for (const FaultRange& range : std::span(__start_softnic_faults, __stop_softnic_faults)) {
        if (!range.covers(at)) continue;
        counter = static_cast<greg_t>(FaultRange::address(range.resume));
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
        // Processors that came before this instruction slow down for wide registers.
        softnic_wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    });
}

}  // namespace ovsdr::soft
