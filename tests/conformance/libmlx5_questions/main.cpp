// Asks whatever libibverbs and libmlx5 it is run on. tests/conformance/libmlx5 runs it on two and compares.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "tests/conformance/libmlx5_questions/questions.hpp"

using namespace ovsdr::oracle;

namespace {

struct Group {
    const char* name;
    void (*ask)(const Session&, Answers&);
};
constexpr Group groups[] = {{"sequences", ask_sequences},
                            {"masks", ask_masks},
                            {"values", ask_values},
                            {"edits", ask_edits},
                            {"actions", ask_actions},
                            {"arrays", ask_arrays},
                            {"stateful", ask_stateful_actions},
                            {"objects", ask_objects},
                            {"lifetimes", ask_lifetimes}};

struct Options {
    std::string device = "mlx5_0";
    std::string group;
    Choice choice;
};

void run(const Options& options) {
    const Session session(options.device);
    Answers answers(options.choice);
    for (const Group& group : groups) {
        if (!options.group.empty() && options.group != group.name) continue;
        group.ask(session, answers);
        std::fflush(stdout);
    }
    std::printf("# %llu questions\n", static_cast<unsigned long long>(answers.asked()));
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Asks a provider of libibverbs and libmlx5 what it takes; a line is question, tab, answer."};
    Options options;
    app.add_option("--device", options.device, "its name")->capture_default_str();
    app.add_option("--group", options.group, "only this group: sequences, masks, values, edits, actions, …");
    app.add_option("--seed", options.choice.seed, "of what is drawn and of what is made at random")
        ->capture_default_str();
    app.add_flag("--whole", options.choice.whole, "every question, not a draw");
    app.add_option("--ask", options.choice.only, "the one question of this name");
    CLI11_PARSE(app, argc, argv);
    try {
        run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s\n", options.device.c_str(), error.what());
        return 1;
    }
    return 0;
}
