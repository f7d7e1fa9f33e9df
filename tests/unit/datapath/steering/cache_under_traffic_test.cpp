// Rules of random ports that come and go while lanes of their own threads forward: each packet's verdict is that of the
// naive pipeline at one of the states that there were between the packet's beginning and its end.
//
// The writer says which state it begins and which is done, and works out afterwards what becomes of each frame at each
// port. A lane that has seen a state done sends a frame; what comes out must be the verdict of that state or of one
// that had begun by then. A line that outlives the rule that it rests on shows here, and so does one that was written
// across a change.
//
// A walk is no snapshot, here as in a NIC: of a packet's copies one may meet a rule that is gone when the next one
// comes, so where one change was under way each copy is judged by itself, and where there were several, none is.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <iterator>
#include <thread>

#include "random_pipeline.hpp"

namespace ovsdr::soft::test {
namespace {

constexpr unsigned frame_count = 16, port_count = 4, states = 200, workers = 2;

/// What becomes of one frame: the hashes of all that comes out, and where, sorted.
using Verdict = std::vector<std::size_t>;

[[nodiscard]] Verdict verdict_of(const std::vector<std::string>& outputs) {
    Verdict verdict;
    for (const std::string& output : outputs) verdict.push_back(std::hash<std::string>{}(output));
    std::sort(verdict.begin(), verdict.end());
    return verdict;
}

[[nodiscard]] std::string output_of(unsigned port, const Frame& frame) {
    return std::to_string(port) + ':' + hex(frame);
}

/// Takes what any worker sends to one port, and tells the workers apart.
struct PortSink {
    unsigned port = 0;
    std::array<std::vector<std::string>, max_workers>* outputs = nullptr;

    [[nodiscard]] Sink sink() noexcept {
        return {.deliver =
                    [](void* self, unsigned worker, rte_mbuf** packets, unsigned length) noexcept {
                        const PortSink& one = *static_cast<PortSink*>(self);
                        for (unsigned i = 0; i < length; ++i) {
                            const auto* bytes = rte_pktmbuf_mtod(packets[i], const std::uint8_t*);
                            (*one.outputs)[worker].push_back(
                                output_of(one.port, Frame(bytes, bytes + packets[i]->data_len)));
                        }
                        rte_pktmbuf_free_bulk(packets, length);
                    },
                .self = this};
    }
};

class CacheUnderTraffic : public RandomPipeline, public ::testing::WithParamInterface<unsigned> {
protected:
    CacheUnderTraffic() : RandomPipeline(GetParam()) {
        for (unsigned i = 0; i < port_count; ++i) {
            sinks_[i] = {ports[i], &outputs_};
            steering.detach(VportId{ports[i]});
            EXPECT_EQ(steering.attach(VportId{ports[i]}, sinks_[i].sink()), 0);
        }
        sinks_[port_count] = {0, &outputs_};
        steering.set_cotenant_sink(sinks_[port_count].sink());
        while (frames_.size() < frame_count) frames_.push_back(random_frame());
    }

    /// What the state `number` does, which is the naive pipeline's now.
    void work_out(unsigned number) {
        for (unsigned port = 0; port < port_count; ++port) {
            for (unsigned i = 0; i < frame_count; ++i) {
                naive.delivered.clear();
                naive.receive(ports[port], frames_[i]);
                std::vector<std::string> outputs;
                for (const auto& [to, delivered] : naive.delivered) {
                    for (const Frame& frame : delivered) outputs.push_back(output_of(to, frame));
                }
                verdicts_[number][port][i] = verdict_of(outputs);
            }
        }
    }

    struct Observation {
        unsigned done, begun, port, frame;
        Verdict verdict;
    };

    /// One worker's thread.
    void forward(unsigned worker) {
        Lane own(steering, worker);
        own.online();
        std::mt19937 random(worker);
        std::vector<Observation>& observed = observed_[worker];
        while (!stop_) {
            Observation one{.done = done_, .begun = 0, .port = 0, .frame = 0, .verdict = {}};
            one.port = static_cast<unsigned>(random() % port_count);
            one.frame = static_cast<unsigned>(random() % frame_count);
            outputs_[worker].clear();
            rte_mbuf* packet = packet_of(frames_[one.frame]);
            own.from_vport(VportId{ports[one.port]}, &packet, 1);
            own.quiescent();
            one.verdict = verdict_of(outputs_[worker]);
            one.begun = begun_;
            observed.push_back(std::move(one));
            ++sent_;
        }
        own.offline();
    }

    /// With one change under way at most.
    [[nodiscard]] bool was_right(const Observation& one) const {
        const Verdict& before = verdicts_[one.done][one.port][one.frame];
        const Verdict& after = verdicts_[one.begun][one.port][one.frame];
        if (one.verdict == before || one.verdict == after) return true;
        Verdict either;
        std::ranges::merge(before, after, std::back_inserter(either));
        return one.begun > one.done && !one.verdict.empty() && std::ranges::includes(either, one.verdict);
    }

    /// Waits until so many packets more have been sent.
    void let_pass(std::uint64_t packets) const {
        for (const std::uint64_t before = sent_; sent_ < before + packets;) std::this_thread::yield();
    }

    std::array<PortSink, port_count + 1> sinks_;
    std::array<std::vector<std::string>, max_workers> outputs_;
    std::array<std::vector<Observation>, max_workers> observed_;
    std::vector<Frame> frames_;
    std::vector<std::array<std::array<Verdict, frame_count>, port_count>> verdicts_{states};
    std::atomic<unsigned> begun_{0}, done_{0};
    std::atomic<bool> stop_{false};
    std::atomic<std::uint64_t> sent_{0};
};

TEST_P(CacheUnderTraffic, EachVerdictIsOfAStateThatThereWas) {
    for (unsigned i = 0; i < 12; ++i) add_matcher();
    for (unsigned i = 0; i < 20; ++i) add_rule();
    work_out(0);
    std::vector<std::thread> threads;
    for (unsigned worker = 1; worker <= workers; ++worker) threads.emplace_back([this, worker] { forward(worker); });
    for (unsigned state = 1; state < states; ++state) {
        if (chance(2)) let_pass(frame_count * port_count);  // else changes close upon one another
        begun_ = state;
        if (chance(2)) {
            add_rule();
        } else {
            remove_rule();
        }
        done_ = state;
        work_out(state);
        if (chance(8)) add_matcher();
    }
    let_pass(frame_count * port_count);
    stop_ = true;
    for (std::thread& thread : threads) thread.join();
    std::uint64_t wrong = 0, judged = 0, seen = 0;
    for (const std::vector<Observation>& observed : observed_) {
        for (const Observation& one : observed) {
            ++seen;
            if (one.begun > one.done + 1) continue;
            ++judged;
            wrong += !was_right(one);
        }
    }
    EXPECT_EQ(wrong, 0U) << "of " << judged;
    EXPECT_GT(judged, seen / 2);
    EXPECT_GT(accepted, 50U);
    const Steering::CacheUse use = steering.cache_use();
    EXPECT_GT(use.hits, use.misses);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CacheUnderTraffic, ::testing::Range(1U, 4U));

}  // namespace
}  // namespace ovsdr::soft::test
