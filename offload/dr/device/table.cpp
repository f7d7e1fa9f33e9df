#include "offload/dr/device/table.hpp"

#include <fmt/format.h>

#include <cerrno>

#include "offload/dr/device/leak.hpp"

namespace ovsdr::dr {

Result<std::shared_ptr<Table>> Table::create(std::shared_ptr<Domain> domain, std::uint32_t level) noexcept {
    mlx5dv_dr_table* table = mlx5dv_dr_table_create(domain->get(), level);
    if (table == nullptr) {
        return tl::unexpected(
            failure(errno, "mlx5dv_dr_table_create", fmt::format("{} level {}", name_of(domain->type()), level)));
    }
    return std::shared_ptr<Table>(new Table(std::move(domain), table, level));
}

Table::Table(std::shared_ptr<Domain> domain, mlx5dv_dr_table* table, std::uint32_t level) noexcept
    : domain_(std::move(domain)), table_(table), level_(level) {}

Table::~Table() { destroyed([this] { return mlx5dv_dr_table_destroy(table_); }); }

}  // namespace ovsdr::dr
