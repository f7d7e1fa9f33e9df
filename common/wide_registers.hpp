// What is to be done after a call into a library that uses wide vector registers and does not clean up behind itself.
//
// ISA-L 2.30's CRCs for AVX-512 return with bits set in the upper parts of zmm0 to zmm15. The next instruction of SSE,
// which compilers make of small copies, has to merge with these: on the machine where this was found that took 365
// cycles, once for each such call (copy of 512 bytes and CRC: 35 cycles; with one movups behind it 405; with vzeroupper
// in between 44).
//
// Threads: any.
// Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, "Mixing AVX Code with SSE Code".
#pragma once

namespace ovsdr {

#ifdef __x86_64__
inline void leave_wide_registers() noexcept {
    if (!__builtin_cpu_supports("avx")) return;
    asm volatile("vzeroupper" ::
                     : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",
                       "xmm12", "xmm13", "xmm14", "xmm15");
}
#else
inline void leave_wide_registers() noexcept {}
#endif

}  // namespace ovsdr
