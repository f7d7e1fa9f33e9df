// What the device reaches of the process: memory keys, memory registered for DEVX (umem), and completion queues, by
// number.
//
// The kernel's part (verbs_methods.cpp) enters and removes them; firmware and work requests look them up.
// Threads: the device's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "tests/connectx/completion_queue.hpp"
#include "tests/connectx/icm.hpp"

namespace ovsdr::connectx {

/// Grants access to memory of the process, or to device memory.
struct MemoryKey {
    /// What a work request does with the memory: bits as IBV_ACCESS_* has them. Reading at home needs none.
    enum Access : std::uint32_t { local_read = 0, local_write = 1, remote_write = 2, remote_read = 4 };

    std::uint64_t first;                        ///< the first byte, as work requests address it; ICM from 0
    std::uint64_t size;                         ///< bytes
    std::uint8_t* memory;                       ///< of the process, or null
    std::optional<std::uint64_t> icm_address;   ///< of device memory
    std::uint32_t access;                       ///< granted
    std::uint32_t protection_domain;            ///< its number; queue pairs of others may not use the key
};

/// What a work request asks for.
struct MemoryRange {
    std::uint32_t key;
    std::uint64_t address;             ///< as the work request has it
    std::uint64_t size;                ///< bytes
    std::uint32_t access;              ///< MemoryKey::Access
    std::uint32_t protection_domain;   ///< of the queue pair
};

struct UserMemory {
    std::uint8_t* memory;
    std::uint64_t size;
};

struct HostMemory {
    std::unordered_map<std::uint32_t, MemoryKey> keys;                             ///< by memory key
    std::map<std::uint32_t, UserMemory> user_memory;                               ///< by umem id
    std::map<std::uint32_t, std::shared_ptr<CompletionQueue>> completion_queues;   ///< by CQ number

    /// Null if the key does not grant all of it.
    [[nodiscard]] std::uint8_t* at(const Icm& icm, const MemoryRange& range) const {
        const auto found = keys.find(range.key);
        if (found == keys.end()) return nullptr;
        const MemoryKey& granted = found->second;
        if ((range.access & ~granted.access) != 0) return nullptr;
        if (range.protection_domain != granted.protection_domain) return nullptr;
        const std::uint64_t offset = range.address - granted.first;
        if (offset > granted.size || range.size > granted.size - offset) return nullptr;
        return granted.icm_address ? icm.at(*granted.icm_address + offset, range.size) : granted.memory + offset;
    }
};

}   // namespace ovsdr::connectx
