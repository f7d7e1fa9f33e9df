// Regions and what is like them, seen by a send queue that copies out of them: re-registration, memory that goes away,
// regions on demand, null regions, device memory, parent domains' allocators, imports.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <vector>

#include "datapath/ports/guarded_copy.hpp"
#include "tests/unit/datapath/rdma/fake_device.hpp"

namespace ovsdr::soft::test {
namespace {

constexpr std::size_t page = 4096;

/// Pages of the process, unmapped at the end.
struct Pages {
    explicit Pages(unsigned count = 1, int access = PROT_READ | PROT_WRITE)
        : size(count * page),
          bytes(static_cast<char*>(mmap(nullptr, count * page, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
    ~Pages() { munmap(bytes, size); }
    std::size_t size;
    char* bytes;
};

TEST(GuardedCopy, CopiesEverySizeExactly) {
    std::vector<std::uint8_t> from(600), to(620);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + 1);
    for (std::size_t size = 0; size <= from.size(); ++size) {
        std::fill(to.begin(), to.end(), 0xee);
        ASSERT_TRUE(guarded_copy(to.data() + 3, from.data(), size));
        ASSERT_EQ(std::memcmp(to.data() + 3, from.data(), size), 0) << size;
        ASSERT_EQ(to[2], 0xee);
        ASSERT_EQ(to[3 + size], 0xee) << size;
    }
}

TEST(GuardedCopy, EndsWhereMemoryEnds) {
    guard_copies();
    Pages pages(2);
    mprotect(pages.bytes + page, page, PROT_NONE);
    std::vector<char> host(2 * page, 'x');
    for (const std::size_t size : {1u, 15u, 16u, 17u, 255u, 256u, 257u, 4000u}) {
        EXPECT_TRUE(guarded_copy(pages.bytes + page - size, host.data(), size));
        EXPECT_TRUE(guarded_copy(host.data(), pages.bytes + page - size, size));
        EXPECT_FALSE(guarded_copy(pages.bytes + page - size + 1, host.data(), size)) << size;
        EXPECT_FALSE(guarded_copy(host.data(), pages.bytes + page - size + 1, size)) << size;
    }
}

TEST(GuardedCopy, PassesOnOtherFaults) {
    guard_copies();
    EXPECT_DEATH(*static_cast<volatile int*>(nullptr) = 1, "");
}

/// A send queue whose packets the test takes.
class MemoryVerbsTest : public ::testing::Test {
protected:
    MemoryVerbsTest() { make_queue(open.pd); }
    ~MemoryVerbsTest() override { drop_queue(); }
    void make_queue(ibv_pd* pd) {
        cq = ibv_create_cq(open.context, 64, nullptr, nullptr, 0);
        ibv_qp_init_attr attr{};
        attr.send_cq = attr.recv_cq = cq;
        attr.qp_type = IBV_QPT_RAW_PACKET;
        attr.cap = {16, 4, 4, 1, 0};
        attr.sq_sig_all = 1;
        qp = ibv_create_qp(pd, &attr);
        ASSERT_NE(qp, nullptr);
        restate();
    }
    void drop_queue() {
        if (qp) {
            EXPECT_EQ(ibv_destroy_qp(qp), 0);
        }
        if (cq) {
            EXPECT_EQ(ibv_destroy_cq(cq), 0);
        }
        qp = nullptr;
        cq = nullptr;
    }
    void restate() {
        ibv_qp_attr state{};
        state.port_num = 1;
        for (const auto& [to, mask] :
             {std::pair{IBV_QPS_RESET, int{IBV_QP_STATE}}, std::pair{IBV_QPS_INIT, IBV_QP_STATE | IBV_QP_PORT},
              std::pair{IBV_QPS_RTR, int{IBV_QP_STATE}}, std::pair{IBV_QPS_RTS, int{IBV_QP_STATE}}}) {
            state.qp_state = to;
            ASSERT_EQ(ibv_modify_qp(qp, &state, mask), 0);
        }
    }
    /// Sends the bytes and gives what left; the completion's status is in `status`.
    std::string send(const void* address, std::uint32_t size, std::uint32_t lkey) {
        ibv_sge sge{reinterpret_cast<std::uintptr_t>(address), size, lkey};
        ibv_send_wr wr{};
        wr.sg_list = &sge;
        wr.num_sge = 1;
        wr.opcode = IBV_WR_SEND;
        ibv_send_wr* bad = nullptr;
        EXPECT_EQ(ibv_post_send(qp, &wr, &bad), 0);
        rte_mbuf* packet = nullptr;
        std::string bytes;
        if (open.device.poll(Qp::of(qp).raw->spec().sqn, &packet, 1) == 1) {
            bytes.assign(rte_pktmbuf_mtod(packet, const char*), packet->data_len);
            rte_pktmbuf_free(packet);
        }
        ibv_wc done{};
        EXPECT_EQ(ibv_poll_cq(cq, 1, &done), 1);
        status = done.status;
        if (status != IBV_WC_SUCCESS) restate();
        return bytes;
    }

    OpenDevice open;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
    ibv_wc_status status = IBV_WC_SUCCESS;
};

TEST_F(MemoryVerbsTest, UnmappedMemoryFailsTheRequestAndNothingElse) {
    auto pages = std::make_unique<Pages>();
    std::memset(pages->bytes, 'a', page);
    char* const address = pages->bytes;
    ibv_mr* const mr = ibv_reg_mr(open.pd, address, page, IBV_ACCESS_LOCAL_WRITE);
    EXPECT_EQ(send(address, 64, mr->lkey), std::string(64, 'a'));
    pages.reset();
    send(address, 64, mr->lkey);
    EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryVerbsTest, RegionsOnDemandArePagedAsTheProcessIs) {
    Pages pages(2, PROT_NONE);
    EXPECT_EQ(ibv_reg_mr(open.pd, pages.bytes, pages.size, IBV_ACCESS_LOCAL_WRITE), nullptr);
    EXPECT_EQ(errno, EFAULT);
    constexpr int on_demand = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND;
    ibv_mr* const mr = ibv_reg_mr(open.pd, pages.bytes, pages.size, on_demand);
    ASSERT_NE(mr, nullptr);
    send(pages.bytes, 64, mr->lkey);
    EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR);
    mprotect(pages.bytes, pages.size, PROT_READ | PROT_WRITE);
    EXPECT_EQ(send(pages.bytes + page - 8, 16, mr->lkey), std::string(16, '\0'));
    EXPECT_EQ(status, IBV_WC_SUCCESS);
    ibv_mr* const all = ibv_reg_mr(open.pd, nullptr, SIZE_MAX, on_demand);
    ASSERT_NE(all, nullptr);
    std::strcpy(pages.bytes, "anywhere in the process");
    EXPECT_EQ(send(pages.bytes, 23, all->lkey), "anywhere in the process");
    EXPECT_EQ(ibv_dereg_mr(all), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_reg_mr(open.pd, nullptr, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE), nullptr);
}

TEST_F(MemoryVerbsTest, AdviceIsForRegionsOnDemand) {
    Pages pages(2);
    ibv_mr* const mr = ibv_reg_mr(open.pd, pages.bytes, pages.size, IBV_ACCESS_ON_DEMAND);
    ibv_mr* const plain = ibv_reg_mr(open.pd, pages.bytes, pages.size, IBV_ACCESS_LOCAL_WRITE);
    const auto address = reinterpret_cast<std::uintptr_t>(pages.bytes);
    const auto advise = [&](ibv_sge piece, ibv_advise_mr_advice advice, std::uint32_t flags = 0) {
        return ibv_advise_mr(open.pd, advice, flags, &piece, 1);
    };
    EXPECT_EQ(advise({address, 100, mr->lkey}, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH), 0);
    unsigned char present[2];
    ASSERT_EQ(mincore(pages.bytes, pages.size, present), 0);
    EXPECT_TRUE(present[0] & 1);
    EXPECT_EQ(advise({address, 100, mr->lkey}, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE), EPERM);
    EXPECT_EQ(advise({address, 100, plain->lkey}, IBV_ADVISE_MR_ADVICE_PREFETCH), EINVAL);
    EXPECT_EQ(advise({address + page, 2 * page, mr->lkey}, IBV_ADVISE_MR_ADVICE_PREFETCH), EFAULT);
    EXPECT_EQ(advise({address, 100, 0x77777700}, IBV_ADVISE_MR_ADVICE_PREFETCH), ENOENT);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dereg_mr(plain), 0);
}

TEST_F(MemoryVerbsTest, ReregistrationChangesWhatItNamesAndKeepsTheKey) {
    Pages first, second;
    std::memset(first.bytes, '1', page);
    std::memset(second.bytes, '2', page);
    ibv_mr* const mr = ibv_reg_mr(open.pd, first.bytes, page, IBV_ACCESS_LOCAL_WRITE);
    const std::uint32_t key = mr->lkey;
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, second.bytes, 100, 0), 0);
    EXPECT_EQ(mr->lkey, key);
    EXPECT_EQ(mr->addr, second.bytes);
    EXPECT_EQ(mr->length, 100u);
    EXPECT_EQ(send(second.bytes, 100, key), std::string(100, '2'));
    send(second.bytes, 101, key);
    EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR) << "past the new length";
    send(first.bytes, 4, key);
    EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR) << "the old place";
    ibv_pd* const other = ibv_alloc_pd(open.context);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
    send(second.bytes, 4, key);
    EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR) << "another domain's";
    EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, open.pd, nullptr, 0, 0), 0);
    EXPECT_EQ(ibv_dealloc_pd(other), 0);
    EXPECT_EQ(send(second.bytes, 4, key), "2222");
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE),
              IBV_REREG_MR_ERR_CMD);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_rereg_mr(mr, 0x80, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 4, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, open.pd, nullptr, 0, 1), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryVerbsTest, ANullRegionReadsZerosAndForgetsWhatIsWritten) {
    ibv_mr* const mr = ibv_alloc_null_mr(open.pd);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(mr->rkey, 0u);
    EXPECT_EQ(send(reinterpret_cast<void*>(0x123456789), 64, mr->lkey), std::string(64, '\0'));
    MemoryTable& memory = open.state.memory();
    std::byte* const sink = memory.lookup(mr->lkey, 77, 4096, IBV_ACCESS_LOCAL_WRITE, Pd::of(open.pd).domain());
    std::memset(sink, 0xff, 4096);
    EXPECT_EQ(send(reinterpret_cast<void*>(77), 64, mr->lkey), std::string(64, '\0'));
    EXPECT_EQ(memory.lookup(mr->lkey, 77, 8, IBV_ACCESS_REMOTE_READ, Pd::of(open.pd).domain()), nullptr);
    EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, open.pd, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(MemoryVerbsTest, DeviceMemoryIsCopiedSentAndCounted) {
    ibv_device_attr_ex device{};
    ASSERT_EQ(ibv_query_device_ex(open.context, nullptr, &device), 0);
    ibv_alloc_dm_attr attr{device.max_dm_size / 2, 6, 0};
    ibv_dm* const dm = ibv_alloc_dm(open.context, &attr);
    ASSERT_NE(dm, nullptr);
    ASSERT_EQ(ibv_memcpy_to_dm(dm, 8, "device!", 8), 0);
    char back[8];
    ASSERT_EQ(ibv_memcpy_from_dm(back, dm, 8, 8), 0);
    EXPECT_STREQ(back, "device!");
    EXPECT_EQ(ibv_memcpy_to_dm(dm, 3, back, 4), EINVAL);
    EXPECT_EQ(ibv_memcpy_to_dm(dm, 4, back, 3), EINVAL);
    EXPECT_EQ(ibv_memcpy_to_dm(dm, attr.length, back, 4), EFAULT);
    ibv_mr* const mr = ibv_reg_dm_mr(open.pd, dm, 8, 16, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(send(nullptr, 7, mr->lkey), "device!");
    send(nullptr, 17, mr->lkey);
    EXPECT_EQ(status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(ibv_reg_dm_mr(open.pd, dm, 0, 16, IBV_ACCESS_LOCAL_WRITE), nullptr) << "not zero based";
    EXPECT_EQ(ibv_reg_dm_mr(open.pd, dm, attr.length, 4, IBV_ACCESS_ZERO_BASED), nullptr);
    EXPECT_EQ(ibv_free_dm(dm), EBUSY);
    ibv_dm* const rest = ibv_alloc_dm(open.context, &attr);
    ASSERT_NE(rest, nullptr);
    attr.length = 4;
    EXPECT_EQ(ibv_alloc_dm(open.context, &attr), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    attr.length = device.max_dm_size + 1;
    EXPECT_EQ(ibv_alloc_dm(open.context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_free_dm(dm), 0);
    EXPECT_EQ(ibv_free_dm(rest), 0);
    EXPECT_EQ(open.state.device_memory_taken().load(), 0u);
}

/// Counts what an application's allocator is asked for, by resource type.
struct Allocator {
    std::map<std::uint64_t, int> live;
    int calls = 0;
    bool use_default = false, empty = false;
    static void* allocate(ibv_pd*, void* context, std::size_t size, std::size_t alignment, std::uint64_t type) {
        auto& self = *static_cast<Allocator*>(context);
        ++self.calls;
        if (self.use_default) return IBV_ALLOCATOR_USE_DEFAULT;
        if (self.empty) return nullptr;
        ++self.live[type];
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    }
    static void release(ibv_pd*, void* context, void* memory, std::uint64_t type) {
        --static_cast<Allocator*>(context)->live[type];
        std::free(memory);
    }
};

TEST_F(MemoryVerbsTest, QueuesOfAParentDomainLiveInTheApplicationsMemory) {
    Allocator allocator;
    ibv_td_init_attr td_attr{};
    ibv_td* const td = ibv_alloc_td(open.context, &td_attr);
    ibv_parent_domain_init_attr attr{open.pd,
                                     td,
                                     IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT,
                                     Allocator::allocate,
                                     Allocator::release,
                                     &allocator};
    ibv_pd* const parent = ibv_alloc_parent_domain(open.context, &attr);
    ASSERT_NE(parent, nullptr);
    EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
    drop_queue();
    make_queue(parent);
    EXPECT_EQ(allocator.live[MLX5DV_RES_TYPE_QP], 2) << "a send and a receive queue";
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = 10;
    cq_attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    cq_attr.parent_domain = parent;
    ibv_cq_ex* const own = ibv_create_cq_ex(open.context, &cq_attr);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(allocator.live[MLX5DV_RES_TYPE_CQ], 1);
    EXPECT_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(own), 100), 0);
    EXPECT_EQ(allocator.live[MLX5DV_RES_TYPE_CQ], 1);
    // A region of the PD serves queues of its parent domain: they are one protection domain.
    Pages pages;
    std::memset(pages.bytes, 'p', page);
    ibv_mr* const mr = ibv_reg_mr(open.pd, pages.bytes, page, 0);
    EXPECT_EQ(send(pages.bytes, 5, mr->lkey), "ppppp");
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(own)), 0);
    drop_queue();
    EXPECT_EQ(allocator.live[MLX5DV_RES_TYPE_QP], 0);
    EXPECT_EQ(allocator.live[MLX5DV_RES_TYPE_CQ], 0);
    allocator.empty = true;
    cq = ibv_create_cq(open.context, 8, nullptr, nullptr, 0);
    ibv_qp_init_attr qp_attr{};
    qp_attr.send_cq = qp_attr.recv_cq = cq;
    qp_attr.qp_type = IBV_QPT_RAW_PACKET;
    qp_attr.cap = {1, 1, 1, 1, 0};
    EXPECT_EQ(ibv_create_qp(parent, &qp_attr), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(ibv_create_cq_ex(open.context, &cq_attr), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    allocator.empty = false;
    allocator.use_default = true;
    qp = ibv_create_qp(parent, &qp_attr);
    EXPECT_NE(qp, nullptr);
    drop_queue();
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    EXPECT_EQ(ibv_dealloc_td(td), 0);
    attr.alloc = nullptr;
    EXPECT_EQ(ibv_alloc_parent_domain(open.context, &attr), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(MemoryVerbsTest, ImportsAreOtherViewsOfTheSame) {
    Pages pages;
    std::memset(pages.bytes, 'i', page);
    ibv_mr* const mr = ibv_reg_mr(open.pd, pages.bytes, page, 0);
    ibv_pd* const pd = ibv_import_pd(open.context, open.pd->handle);
    ASSERT_NE(pd, nullptr);
    ibv_mr* const again = ibv_import_mr(pd, mr->handle);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->addr, nullptr);
    EXPECT_EQ(again->lkey, mr->lkey);
    EXPECT_EQ(again->length, page);
    drop_queue();
    make_queue(pd);
    EXPECT_EQ(send(pages.bytes, 3, again->lkey), "iii");
    drop_queue();
    ibv_unimport_mr(again);
    ibv_unimport_pd(pd);
    ibv_pd* const stranger = ibv_alloc_pd(open.context);
    EXPECT_EQ(ibv_import_mr(stranger, mr->handle), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_dealloc_pd(stranger), 0);
    EXPECT_EQ(ibv_import_pd(open.context, 0x777777), nullptr);
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    const int other = dup(open.context->cmd_fd);
    EXPECT_TRUE(open.state.is_file(other));
    EXPECT_FALSE(open.state.is_file(0));
    close(other);
}

TEST_F(MemoryVerbsTest, WindowsAreKeysThatLeadNowhereYet) {
    for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
        ibv_mw* const mw = ibv_alloc_mw(open.pd, type);
        ASSERT_NE(mw, nullptr);
        EXPECT_EQ(mw->type, type);
        EXPECT_NE(open.state.memory().mkey(mw->rkey), nullptr);
        EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    }
    EXPECT_EQ(ibv_alloc_mw(open.pd, static_cast<ibv_mw_type>(3)), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(MemoryVerbsTest, TheClockIsThatOfCompletions) {
    ibv_values_ex values{IBV_VALUES_MASK_RAW_CLOCK, {}};
    ASSERT_EQ(ibv_query_rt_values_ex(open.context, &values), 0);
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    EXPECT_NEAR(static_cast<double>(values.raw_clock.tv_nsec),
                static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec), 1e9);
    mlx5dv_clock_info info{};
    ASSERT_EQ(mlx5dv_get_clock_info(open.context, &info), 0);
    clock_gettime(CLOCK_REALTIME, &now);
    const std::uint64_t told = mlx5dv_ts_to_ns(&info, static_cast<std::uint64_t>(values.raw_clock.tv_nsec));
    EXPECT_NEAR(static_cast<double>(told), static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec),
                1e9);
    values.comp_mask = 0;
    EXPECT_EQ(ibv_query_rt_values_ex(open.context, &values), EINVAL);
}

}  // namespace
}  // namespace ovsdr::soft::test
