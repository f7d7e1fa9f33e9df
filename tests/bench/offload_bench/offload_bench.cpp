// How fast megaflows come, change and go through dr::Eswitch, and the memory that they take. Prints one JSON object:
// megaflows a second by the clock, and nanoseconds of the processor (`_ns`), which other programs disturb less. By whom
// they are put is the program's (flow_api.hpp); they are deleted by dr::Eswitch.
//
// The NIC is whichever libmlx5 the process finds: the soft NIC, or null_provider.cpp, which is linked into a program of
// its own and takes no time and no memory: what is measured with that is offload/ alone.
//
// Deletions are in batches of 50, in the order in which revalidators ask for them; their counters are settled.
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "offload/dr/compile/compile.hpp"
#include "offload/dr/eswitch.hpp"
#include "offload/dr/device/ib_port.hpp"
#include "offload/slowpath/port_queue.hpp"
#include "tests/bench/offload_bench/flow_api.hpp"
#include "tests/bench/offload_bench/megaflows.hpp"

namespace ovsdr::bench {
namespace {

constexpr std::uint32_t batch = 50;   // operations that a revalidator passes to dpif_operate() at most

struct Options {
    std::uint64_t megaflows = 100000;
    unsigned threads = 1;
    std::uint32_t ports = 4;   // and one more that no megaflow mentions
    std::string device = "mlx5_0";
    bool queues = true;        // the null provider has none
};

double cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

/// Pages of memory that this thread was the first to touch.
double page_faults() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    return static_cast<double>(usage.ru_minflt);
}

struct Took {
    double seconds = 0;
    double cpu = 0;   ///< seconds of the threads that did it
    double faults = 0;   ///< page_faults() of theirs
};

Took time_of(auto&& work) {
    const auto start = std::chrono::steady_clock::now();
    const double cpu = cpu_seconds(), faults = page_faults();
    work();
    return {std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), cpu_seconds() - cpu,
            page_faults() - faults};
}

/// Of lock_waits.c, where that is preloaded.
void call_if_there(const char* name) {
    auto* const function = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, name));
    if (function != nullptr) function();
}

/// Resident memory.
std::size_t used_bytes() {
    std::size_t size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Calls `work(begin, end)` in each thread with its share of 0 to `length`.
Took in_threads(unsigned threads, std::uint64_t length, auto&& work) {
    std::vector<std::thread> running;
    std::vector<Took> others(threads);
    Took took = time_of([&] {
        for (unsigned i = 1; i < threads; ++i) {
            running.emplace_back([&, i] {
                others[i] = time_of([&] { work(length * i / threads, length * (i + 1) / threads); });
            });
        }
        work(0, length / threads);
        for (std::thread& thread : running) thread.join();
    });
    for (const Took& other : others) {
        took.cpu += other.cpu;
        took.faults += other.faults;
    }
    return took;
}

class Bench {
public:
    explicit Bench(const Options& options) : options_(options) {
        auto opened = dr::Eswitch::open(options.device);
        if (!opened) throw std::runtime_error(opened.error().what);
        eswitch_ = *opened;
        for (std::uint32_t port = 1; port <= options.ports + 1; ++port) attach(port);
        api_ = FlowApi::create({eswitch_, options.ports, options.megaflows});
    }
    ~Bench() {
        api_.reset();
        eswitch_->flush(std::nullopt);
        for (std::uint32_t port = 1; port <= options_.ports + 1; ++port) detach(port);
    }
    Bench(const Bench&) = delete;
    Bench& operator=(const Bench&) = delete;

    void run() {
        const std::uint64_t length = options_.megaflows;
        const std::size_t before = used_bytes();
        call_if_there("lock_waits_begin");
        const Took first = all([&](auto a, auto b) { put_all(a, b, 1); });
        call_if_there("lock_waits_end");
        const std::size_t after = used_bytes();
        expect_offloaded(length);
        sort_as_revalidators_do();
        const Took get = time_of([&] { get_all(); });
        const Took modify = all([&](auto a, auto b) { put_all(a, b, 2); });
        const Took idle_port = time_of([&] { detach(options_.ports + 1); });
        attach(options_.ports + 1);
        const Took moved_port = time_of([&] { (void)eswitch_->set_odp_port(dr::VportId{1}, dr::OdpPort{1000}); });
        (void)eswitch_->set_odp_port(dr::VportId{1}, dr::OdpPort{1});
        expect_offloaded(length);
        const Took del = all([&](auto a, auto b) { del_all(a, b); });
        expect_offloaded(0);
        const Took again = all([&](auto a, auto b) { put_all(a, b, 1); });
        const auto rate = [length](const Took& took) { return static_cast<double>(length) / took.seconds; };
        const auto ns = [length](const Took& took) { return took.cpu * 1e9 / static_cast<double>(length); };
        const Took compile = compile_all();
        fmt::print(
            R"({{"megaflows": {}, "threads": {}, "compile": {:.0f}, "compile_ns": {:.0f}, "install": {:.0f}, )"
            R"("install_ns": {:.0f}, "install_faults": {:.3f}, "install_again": {:.0f}, )"
            R"("install_again_ns": {:.0f}, "get_ns": {:.0f}, )"
            R"("modify": {:.0f}, "delete": {:.0f}, "delete_ns": {:.0f}, )"
            R"("detach_other_ms": {:.3f}, "move_port_ms": {:.3f}, "bytes": {:.0f}, "thread_seconds": {:.6f}}})" "\n",
            length, options_.threads, rate(compile), ns(compile), rate(first), ns(first),
            first.faults / static_cast<double>(length), rate(again), ns(again), ns(get), rate(modify), rate(del),
            ns(del), idle_port.seconds * 1e3, moved_port.seconds * 1e3,
            static_cast<double>(after - before) / static_cast<double>(length), first.seconds * options_.threads);
    }

private:
    void attach(std::uint32_t port) {
        if (options_.queues) {
            const auto ib_port = dr::find_ib_port(eswitch_->context(), dr::VportId{static_cast<std::uint16_t>(port)});
            if (!ib_port) throw std::runtime_error(ib_port.error().what);
            auto queue = slowpath::PortQueue::create(
                {.context = eswitch_->context(), .pd = eswitch_->pd(), .ib_port = ib_port->number});
            if (!queue) throw std::runtime_error(queue.error().what);
            queues_.resize(std::max<std::size_t>(queues_.size(), port + 1));
            queues_[port] = std::move(*queue);
        }
        const dr::VportId vport{static_cast<std::uint16_t>(port)};
        auto attached = eswitch_->attach_port({dr::OdpPort{port}, vport, fmt::format("port{}", port),
                                               options_.queues ? queues_[port]->qp() : nullptr,
                                               options_.queues ? queues_[port]->sqn() : port});
        if (!attached) throw std::runtime_error(attached.error().what);
    }
    void detach(std::uint32_t port) {
        eswitch_->detach_port(dr::VportId{static_cast<std::uint16_t>(port)});
        if (options_.queues) queues_[port].reset();
    }

    Took all(auto&& work) { return in_threads(options_.threads, options_.megaflows, work); }

    void expect_offloaded(std::uint64_t megaflows) const {
        const std::uint64_t offloaded = eswitch_->totals().offloaded;
        if (offloaded == megaflows) return;
        throw std::runtime_error(fmt::format("{} megaflows are in the NIC, not {}", offloaded, megaflows));
    }

    void put_all(std::uint64_t begin, std::uint64_t end, std::uint32_t turn) {
        const auto putter = api_->putter(turn);
        for (std::uint64_t i = begin; i < end; ++i) putter->put(i);
    }

    /// Neighbourhood after neighbourhood, at random within each.
    void sort_as_revalidators_do() {
        order_.resize(options_.megaflows);
        for (std::uint64_t i = 0; i < order_.size(); ++i) order_[i] = i;
        std::shuffle(order_.begin(), order_.end(), std::mt19937_64(1));
        std::ranges::stable_sort(order_, {}, neighbourhood);
    }
    void get_all() {
        for (const std::uint64_t i : order_) {
            if (!api_->get(i)) throw std::runtime_error("a megaflow is not known");
        }
    }
    void del_all(std::uint64_t begin, std::uint64_t end) {
        std::vector<dr::Eswitch::Deletion> deletions;
        for (std::uint64_t i = begin; i < end;) {
            deletions.clear();
            for (; i < end && deletions.size() < batch; ++i) deletions.push_back({ufid(order_[i])});
            eswitch_->del(deletions);
        }
    }

    /// The compiler alone: a pure function.
    Took compile_all() const {
        dr::PortMap ports;
        for (std::uint32_t port = 1; port <= options_.ports; ++port) {
            ports.set(dr::OdpPort{port}, {dr::VportId{static_cast<std::uint16_t>(port)}, "port"});
        }
        dr::DeviceCaps caps;
        std::uint64_t compiled = 0;
        const Took took = time_of([&] {
            for (std::uint64_t i = 0; i < options_.megaflows; ++i) {
                compiled += dr::compile(megaflow(i, options_.ports), ports, caps).has_value();
            }
        });
        if (compiled != options_.megaflows) throw std::runtime_error("a megaflow was not compiled");
        return took;
    }

    Options options_;
    std::shared_ptr<dr::Eswitch> eswitch_;
    std::unique_ptr<FlowApi> api_;
    std::vector<std::unique_ptr<slowpath::PortQueue>> queues_;
    std::vector<std::uint64_t> order_;
};

}  // namespace
}  // namespace ovsdr::bench

int main(int argc, char** argv) {
    CLI::App app("Megaflows through dr::Eswitch");
    ovsdr::bench::Options options;
    app.add_option("--megaflows", options.megaflows)->check(CLI::PositiveNumber);
    app.add_option("--threads", options.threads)->check(CLI::Range(1, 64));
    app.add_option("--device", options.device);
    app.add_flag("!--no-queues", options.queues);
    CLI11_PARSE(app, argc, argv);
    try {
        ovsdr::bench::Bench(options).run();
    } catch (const std::exception& error) {
        fmt::print(stderr, "offload_bench: {}\n", error.what());
        return 1;
    }
    return 0;
}
