// A Direct Rules table: one level of a domain.
//
// Owns the provider's table, holds its Domain. Level 0 is the root: firmware rules, few action types. The level never
// changes, and rules only lead to tables of a higher one.
//
// Threads: any. Errors: errno of mlx5dv_dr_table_create(). Source: mlx5dv_dr_flow(3), "Table".
#pragma once

#include <cstdint>
#include <memory>

#include "offload/dr/device/domain.hpp"

namespace ovsdr::dr {

class Table {
public:
    [[nodiscard]] static Result<std::shared_ptr<Table>> create(std::shared_ptr<Domain> domain,
                                                               std::uint32_t level) noexcept;
    ~Table();
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;

    [[nodiscard]] mlx5dv_dr_table* get() const noexcept { return table_; }
    [[nodiscard]] std::uint32_t level() const noexcept { return level_; }
    [[nodiscard]] const std::shared_ptr<Domain>& domain() const noexcept { return domain_; }

private:
    Table(std::shared_ptr<Domain> domain, mlx5dv_dr_table* table, std::uint32_t level) noexcept;

    std::shared_ptr<Domain> domain_;
    mlx5dv_dr_table* table_;
    std::uint32_t level_;
};

}  // namespace ovsdr::dr
