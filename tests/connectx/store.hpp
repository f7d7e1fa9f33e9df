// Reads a store out of an interrupted x86-64 program: what libmlx5 writes to a doorbell.
//
// Only what compilers make of a 4 or 8 byte MMIO write is known: MOV of a register to memory. Without the addressing
// mode's meaning: the address is the one that faulted. Source: Intel SDM, volume 2, MOV (89 /r) and chapter 2.1
// (ModR/M, SIB).
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace ovsdr::connectx {

struct Store {
    std::size_t instruction_size;   ///< bytes
    std::size_t width;              ///< bytes written: 4 or 8
    std::uint64_t value;            ///< as the register has it: little endian in memory
};

/// `code` is the faulting instruction, readable for 15 bytes or up to its own end.
[[nodiscard]] std::optional<Store> decode_store(const std::uint8_t* code, const mcontext_t& context);

}   // namespace ovsdr::connectx
