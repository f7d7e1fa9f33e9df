#include "tests/connectx/store.hpp"

#include <array>

#ifndef __x86_64__
#error "the emulated ConnectX knows x86-64 stores only"
#endif

namespace ovsdr::connectx {
namespace {

/// Registers by their number in instructions.
constexpr std::array numbered{REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                              REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

/// Bytes of ModR/M, SIB and displacement.
std::size_t operand_size(const std::uint8_t* modrm) {
    const unsigned mode = modrm[0] >> 6, base = modrm[0] & 7U;
    const bool has_sib = base == 4;
    if (mode == 1) return has_sib ? 3 : 2;
    if (mode == 2) return has_sib ? 6 : 5;
    const bool displaced = base == 5 || (has_sib && (modrm[1] & 7U) == 5);
    return (has_sib ? 2U : 1U) + (displaced ? 4U : 0U);
}

}   // namespace

std::optional<Store> decode_store(const std::uint8_t* code, const mcontext_t& context) {
    const bool has_rex = (code[0] & 0xF0U) == 0x40;
    const unsigned rex = has_rex ? code[0] : 0;
    const std::uint8_t* opcode = code + (has_rex ? 1 : 0);
    const std::uint8_t* modrm = opcode + 1;
    if (opcode[0] != 0x89 || modrm[0] >> 6 == 3) return std::nullopt;
    const unsigned source = (modrm[0] >> 3 & 7U) | (rex & 4U) << 1;
    const bool is_wide = (rex & 8U) != 0;
    auto value = static_cast<std::uint64_t>(context.gregs[numbered[source]]);
    if (!is_wide) value &= 0xFFFFFFFFU;
    return Store{static_cast<std::size_t>(modrm - code) + operand_size(modrm), is_wide ? 8U : 4U, value};
}

}   // namespace ovsdr::connectx
