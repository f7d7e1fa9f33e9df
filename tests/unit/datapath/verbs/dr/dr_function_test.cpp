// Direct Rules on a plain function: what is refused in its FDB, and that its own domains are as those of any device.
#include <gtest/gtest.h>

#include <cerrno>

#include "datapath/steering/plain_function.hpp"
#include "datapath/verbs/dr/dr_handle.hpp"
#include "match_parameters.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

class DrFunction : public ::testing::Test {
protected:
    DrFunction() { make_plain_function(open.device.steering()); }

    mlx5dv_dr_matcher* match_all(mlx5dv_dr_table* table) {
        Match none(64);
        return mlx5dv_dr_matcher_create(table, 0, 0, none.get());
    }

    OpenDevice open;
};

/// libmlx5 makes the domain without steering; the kernel refuses matchers in its root table.
TEST_F(DrFunction, NothingCanBeMadeInItsFdb) {
    mlx5dv_dr_domain* fdb = mlx5dv_dr_domain_create(open.context, MLX5DV_DR_DOMAIN_TYPE_FDB);
    ASSERT_NE(fdb, nullptr);
    EXPECT_EQ(mlx5dv_dr_domain_sync(fdb, MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW), EOPNOTSUPP);
    EXPECT_EQ(mlx5dv_dr_table_create(fdb, 1), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
    mlx5dv_dr_table* root = mlx5dv_dr_table_create(fdb, 0);
    ASSERT_NE(root, nullptr);
    EXPECT_EQ(match_all(root), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(mlx5dv_dr_table_destroy(root), 0);
    EXPECT_EQ(mlx5dv_dr_domain_destroy(fdb), 0);
}

TEST_F(DrFunction, ItsOwnDomainsHaveTables) {
    for (const auto type : {MLX5DV_DR_DOMAIN_TYPE_NIC_RX, MLX5DV_DR_DOMAIN_TYPE_NIC_TX}) {
        mlx5dv_dr_domain* own = mlx5dv_dr_domain_create(open.context, type);
        mlx5dv_dr_table* table = mlx5dv_dr_table_create(own, 1);
        ASSERT_NE(table, nullptr);
        mlx5dv_dr_matcher* matcher = match_all(table);
        EXPECT_NE(matcher, nullptr);
        EXPECT_EQ(mlx5dv_dr_domain_sync(own, MLX5DV_DR_DOMAIN_SYNC_FLAGS_SW), 0);
        EXPECT_EQ(mlx5dv_dr_matcher_destroy(matcher), 0);
        EXPECT_EQ(mlx5dv_dr_table_destroy(table), 0);
        EXPECT_EQ(mlx5dv_dr_domain_destroy(own), 0);
    }
}

TEST_F(DrFunction, ItsPortIsNoVport) {
    mlx5dv_port port{};
    port.flags = MLX5DV_QUERY_PORT_VPORT;
    EXPECT_EQ(mlx5dv_query_port(open.context, 1, &port), 0);
    EXPECT_EQ(port.flags, 0U);
}

}  // namespace
}  // namespace ovsdr::soft::test
