// What becomes of a NIC whose peers aim at memory that is not there: registered on demand and never mapped, or gone
// from under its region. The copies run on a worker of a whole soft NIC; each operation is a process of its own, as a
// fault that nobody guards is its end.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;

constexpr std::size_t page = 4096;
constexpr unsigned all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

/// How the memory is not there, and which signal tells.
enum class Lost { no_access, beyond_the_file };

void check(bool good, const char* what) {
    if (good) return;
    std::perror(what);
    _exit(2);
}

ibv_context* open_nic() {
    const std::string path = "/tmp/ovsdr-lost-memory-" + std::to_string(getpid()) + ".json";
    std::ofstream(path) << R"({"workers": 1, "memory_mb": 128, "control_socket": "", "devices": [{"name": "mlx5_0",
        "ports": [{"vport": 65535, "dpdk": "net_null,no-rx=1", "roce_address": "192.0.2.1/24"}]}]})";
    setenv("OVSDR_SOFTNIC", path.c_str(), 1);
    int length = 0;
    ibv_device** const list = ibv_get_device_list(&length);
    unlink(path.c_str());
    check(length == 1, "no device");
    ibv_context* const context = ibv_open_device(list[0]);
    check(context != nullptr, "ibv_open_device");
    ibv_free_device_list(list);
    return context;
}

/// Two RC queue pairs that are each other's peers, memory that is there, and memory that is not.
class Ends {
public:
    explicit Ends(Lost how) : context_(open_nic()), pd_(ibv_alloc_pd(context_)) {
        lost_ = how == Lost::no_access
                    ? mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                    : mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, memfd_create("empty", MFD_CLOEXEC), 0);
        check(lost_ != MAP_FAILED, "mmap");
        lost_region_ = ibv_reg_mr(pd_, lost_, page, all_access | IBV_ACCESS_ON_DEMAND);
        region_ = ibv_reg_mr(pd_, bytes_.data(), bytes_.size(), all_access);
        check(lost_region_ != nullptr && region_ != nullptr, "ibv_reg_mr");
        connect();
    }

    [[nodiscard]] ibv_sge there(std::uint32_t size = 8) const {
        return {reinterpret_cast<std::uint64_t>(bytes_.data()), size, region_->lkey};
    }
    [[nodiscard]] ibv_sge lost(std::uint32_t size = 8) const {
        return {reinterpret_cast<std::uint64_t>(lost_), size, lost_region_->lkey};
    }

    /// The status that the request completes with at queue 0.
    ibv_wc_status request(ibv_wr_opcode opcode, ibv_sge local, const ibv_sge& remote) {
        ibv_send_wr wr{};
        wr.sg_list = &local;
        wr.num_sge = 1;
        wr.opcode = opcode;
        wr.send_flags = IBV_SEND_SIGNALED;
        wr.wr.rdma = {remote.addr, remote.lkey};
        if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
            wr.wr.atomic = {remote.addr, 1, 2, remote.lkey};
        }
        ibv_send_wr* bad = nullptr;
        check(ibv_post_send(qps_[0], &wr, &bad) == 0, "ibv_post_send");
        return completion(cqs_[0]);
    }
    void receive_into(ibv_sge piece) {
        ibv_recv_wr wr{1, nullptr, &piece, 1};
        ibv_recv_wr* bad = nullptr;
        check(ibv_post_recv(qps_[1], &wr, &bad) == 0, "ibv_post_recv");
    }
    [[nodiscard]] ibv_wc_status received() { return completion(cqs_[1]); }

    /// New queue pairs for those that an error has ended.
    void connect() {
        for (unsigned i = 0; i < 2; ++i) {
            cqs_[i] = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
            ibv_qp_init_attr attr{};
            attr.send_cq = attr.recv_cq = cqs_[i];
            attr.cap = {8, 8, 1, 1, 0};
            attr.qp_type = IBV_QPT_RC;
            qps_[i] = ibv_create_qp(pd_, &attr);
            check(qps_[i] != nullptr, "ibv_create_qp");
        }
        for (unsigned i = 0; i < 2; ++i) make_ready(qps_[i], qps_[1 - i]->qp_num);
    }

    std::array<std::uint64_t, 512> bytes_{};

private:
    void make_ready(ibv_qp* qp, std::uint32_t peer) {
        ibv_gid gid{};
        int index = 0;
        const auto is_ipv4 = [&gid] { return gid.raw[10] == 0xff && gid.raw[11] == 0xff; };
        while (ibv_query_gid(context_, 1, index, &gid) == 0 && !is_ipv4()) ++index;
        check(is_ipv4(), "no IPv4 GID");
        ibv_qp_attr attr{};
        attr.qp_state = IBV_QPS_INIT;
        attr.port_num = 1;
        attr.qp_access_flags = all_access & ~IBV_ACCESS_LOCAL_WRITE;
        modify(qp, attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
        attr = {};
        attr.qp_state = IBV_QPS_RTR;
        attr.path_mtu = IBV_MTU_1024;
        attr.dest_qp_num = peer;
        attr.max_dest_rd_atomic = 1;
        attr.min_rnr_timer = 12;
        attr.ah_attr.is_global = 1;
        attr.ah_attr.port_num = 1;
        attr.ah_attr.grh.dgid = gid;
        attr.ah_attr.grh.hop_limit = 64;
        attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(index);
        modify(qp, attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
        attr = {};
        attr.qp_state = IBV_QPS_RTS;
        attr.timeout = 14;
        attr.retry_cnt = attr.rnr_retry = 7;
        attr.max_rd_atomic = 1;
        modify(qp, attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC);
    }
    static void modify(ibv_qp* qp, ibv_qp_attr attr, int mask) {
        check(ibv_modify_qp(qp, &attr, mask) == 0, "ibv_modify_qp");
    }

    static ibv_wc_status completion(ibv_cq* cq) {
        ibv_wc wc{};
        for (unsigned patience = 0; ibv_poll_cq(cq, 1, &wc) == 0; ++patience) {
            check(patience < 30'000, "no completion");
            std::this_thread::sleep_for(1ms);
        }
        return wc.status;
    }

    ibv_context* context_;
    ibv_pd* pd_;
    void* lost_;
    ibv_mr *lost_region_, *region_;
    std::array<ibv_cq*, 2> cqs_{};
    std::array<ibv_qp*, 2> qps_{};
};

/// An operation meets memory that is not there: it fails, and the next one, of other queues, does not.
[[noreturn]] void expect_error(Lost how, ibv_wr_opcode opcode, bool remote) {
    Ends ends(how);
    const ibv_wc_status status = remote ? ends.request(opcode, ends.there(), ends.lost())
                                        : ends.request(opcode, ends.lost(), ends.there());
    const ibv_wc_status expected = remote ? IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;
    if (status != expected) std::fprintf(stderr, "%s\n", ibv_wc_status_str(status));
    check(status == expected, "not the error that was due");
    ends.connect();
    ends.bytes_[0] = 41;
    const ibv_sge before{reinterpret_cast<std::uint64_t>(&ends.bytes_[1]), 8, ends.there().lkey};
    check(ends.request(IBV_WR_ATOMIC_FETCH_AND_ADD, before, ends.there()) == IBV_WC_SUCCESS, "the NIC goes on");
    check(ends.bytes_[0] == 42 && ends.bytes_[1] == 41, "the sum");
    _exit(0);
}

class MemoryDeathTest : public testing::TestWithParam<Lost> {
protected:
    MemoryDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(MemoryDeathTest, APeersReadOfItIsRefused) {
    EXPECT_EXIT(expect_error(GetParam(), IBV_WR_RDMA_READ, true), testing::ExitedWithCode(0), "");
}
TEST_P(MemoryDeathTest, APeersWriteToItIsRefused) {
    EXPECT_EXIT(expect_error(GetParam(), IBV_WR_RDMA_WRITE, true), testing::ExitedWithCode(0), "");
}
TEST_P(MemoryDeathTest, APeersAtomicsOnItAreRefused) {
    EXPECT_EXIT(expect_error(GetParam(), IBV_WR_ATOMIC_FETCH_AND_ADD, true), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(expect_error(GetParam(), IBV_WR_ATOMIC_CMP_AND_SWP, true), testing::ExitedWithCode(0), "");
}
TEST_P(MemoryDeathTest, ItIsNotSentAndTakesNoAnswer) {
    EXPECT_EXIT(expect_error(GetParam(), IBV_WR_RDMA_WRITE, false), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(expect_error(GetParam(), IBV_WR_RDMA_READ, false), testing::ExitedWithCode(0), "");
    EXPECT_EXIT(expect_error(GetParam(), IBV_WR_ATOMIC_FETCH_AND_ADD, false), testing::ExitedWithCode(0), "");
}
TEST_P(MemoryDeathTest, AReceiveBufferThatIsNotThereFailsTheReceive) {
    EXPECT_EXIT(
        {
            Ends ends(GetParam());
            ends.receive_into(ends.lost());
            check(ends.request(IBV_WR_SEND, ends.there(), {}) == IBV_WC_REM_OP_ERR, "the sender's error");
            check(ends.received() == IBV_WC_LOC_PROT_ERR, "the receiver's error");
            _exit(0);
        },
        testing::ExitedWithCode(0), "");
}

/// Of a thread of this process, from the kernel: the signals that it blocks.
std::uint64_t blocked_by(const std::string& thread) {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name, line;
        std::ifstream(task.path() / "comm") >> name;
        if (name != thread) continue;
        for (std::ifstream status(task.path() / "status"); std::getline(status, line);) {
            if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
        }
    }
    check(false, "no such thread");
    return 0;
}

/// A fault of a worker's that is no copy's reaches whoever handles it, as if the device were not there.
TEST(LostMemoryDeathTest, WorkersBlockEachSignalButThoseOfTheirOwnFaults) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            const Ends ends(Lost::no_access);
            for (const char* const thread : {"softnic-0", "softnic-control"}) {
                const std::uint64_t blocked = blocked_by(thread);
                const auto blocks = [&](int signal) { return (blocked >> (signal - 1) & 1) != 0; };
                for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) check(!blocks(own), "its own fault");
                for (const int other : {SIGINT, SIGTERM, SIGCHLD, SIGALRM, SIGUSR1}) check(blocks(other), "others");
            }
            _exit(0);
        },
        testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Lost, MemoryDeathTest, testing::Values(Lost::no_access, Lost::beyond_the_file),
                         [](const auto& kind) { return kind.param == Lost::no_access ? "NoAccess" : "BeyondTheFile"; });

}  // namespace
