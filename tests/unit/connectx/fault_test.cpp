// The Nth call of libmlx5 to the kernel fails: it must say so, and leave nothing behind. Runs under tests/connectx/run.
#include <cstdio>
#include <map>
#include <string>

#include "tests/unit/connectx/open_device.hpp"

namespace ovsdr::connectx {
namespace {

using namespace test;

struct Outcome {
    bool done;
    const char* failed_at;
    int error;
};

/// Opens the device and makes one of each. Destroys all of it.
Outcome make_everything(mlx5dv_dr_domain_type type) {
    errno = 0;
    const auto failed = [](const char* where) { return Outcome{false, where, errno}; };
    const Context context = open_device();
    if (context == nullptr) return failed("device");
    const Domain domain(mlx5dv_dr_domain_create(context.get(), type));
    if (domain == nullptr) return failed("domain");
    const DrTable table(mlx5dv_dr_table_create(domain.get(), 1)), next(mlx5dv_dr_table_create(domain.get(), 2));
    if (table == nullptr || next == nullptr) return failed("table");
    const DrTable root(mlx5dv_dr_table_create(domain.get(), 0));
    if (root == nullptr) return failed("root table");
    MatchParam mask, value;
    mask.number(smac_at, 0xFFFF'FFFF'FFFF, 6);
    value.number(smac_at, 0x0200'0000'0001, 6);
    const Matcher matcher(mlx5dv_dr_matcher_create(table.get(), 0, 1, mask.get()));
    if (matcher == nullptr) return failed("matcher");
    const Matcher root_matcher(mlx5dv_dr_matcher_create(root.get(), 0, 1, mask.get()));
    if (root_matcher == nullptr) return failed("root matcher");
    std::uint8_t in[16] = {0x09, 0x39}, out[16] = {};
    const DevxObj counter(mlx5dv_devx_obj_create(context.get(), in, sizeof in, out, sizeof out));
    if (counter == nullptr) return failed("counter");
    const Action count(mlx5dv_dr_action_create_flow_counter(counter.get(), 0)),
        forward(mlx5dv_dr_action_create_dest_table(next.get()));
    if (count == nullptr || forward == nullptr) return failed("action");
    __be64 edits[] = {htobe64(1ULL << 60 | 1ULL << 48 | 7), htobe64(1ULL << 60 | 4ULL << 48 | 8)};
    const Action edit(mlx5dv_dr_action_create_modify_header(domain.get(), 0, sizeof edits, edits));
    if (edit == nullptr) return failed("modify header");
    mlx5dv_dr_action* list[] = {count.get(), edit.get(), forward.get()};
    const Rule rule(mlx5dv_dr_rule_create(matcher.get(), value.get(), 3, list));
    if (rule == nullptr) return failed("rule");
    mlx5dv_dr_action* to_table[] = {forward.get()};
    const Rule root_rule(mlx5dv_dr_rule_create(root_matcher.get(), value.get(), 1, to_table));
    if (root_rule == nullptr) return failed("root rule");
    return {true, "", 0};
}

class Faults : public ::testing::TestWithParam<mlx5dv_dr_domain_type> {};

TEST_P(Faults, OfEachCallAreReportedAndLeaveNothing) {
    ASSERT_NE(device(), nullptr) << "not under tests/connectx/run";
    std::map<std::string, std::uint64_t> left = device()->left_behind();
    unsigned tolerated = 0;
    std::uint64_t nth = 1;
    for (;; ++nth) {
        ASSERT_TRUE(device()->fail("*", nth, ENOMEM));
        const Outcome outcome = make_everything(GetParam());
        if (device()->clear_faults() != 0) {
            EXPECT_TRUE(outcome.done) << outcome.failed_at << ": " << strerror(outcome.error);
            break;
        }
        if (outcome.done) {
            ++tolerated;
        } else {
            EXPECT_NE(outcome.error, 0) << outcome.failed_at << ", call " << nth;
        }
        const auto left_now = device()->left_behind();
        for (const auto& [kind, count] : left_now) {
            EXPECT_EQ(count, left[kind]) << "call " << nth << " (" << outcome.failed_at << ") left "
                                         << count - left[kind] << " " << kind;
        }
        left = left_now;
        EXPECT_EQ(device()->icm_bytes_alive(), 0U);
    }
    std::printf("FIGURE %llu calls made to fail, %u of them tolerated\n", static_cast<unsigned long long>(nth - 1),
                tolerated);
    EXPECT_GT(nth, 50U);
}

INSTANTIATE_TEST_SUITE_P(Domains, Faults,
                         ::testing::Values(MLX5DV_DR_DOMAIN_TYPE_NIC_RX, MLX5DV_DR_DOMAIN_TYPE_NIC_TX,
                                           MLX5DV_DR_DOMAIN_TYPE_FDB));

}   // namespace
}   // namespace ovsdr::connectx
