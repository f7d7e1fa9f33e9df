// The names of the matches and actions of a megaflow: what coverage is reported and asked for by (wanted.csv).
//
// As OVS prints them; "/mask": not all of the field's bits.
//
// Threads: pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/differential/judge/megaflows.hpp"

namespace ovsdr::differential {

[[nodiscard]] std::string name_of_match(const Megaflow& megaflow, Feature feature, bool masked);
[[nodiscard]] std::string name_of_set(SetHeader header, std::size_t field, bool masked);

/// All that the megaflow has.
[[nodiscard]] std::set<std::string> names_of(const Megaflow& megaflow);

/// How often each was drawn, so that what is rare comes next.
class Rarity {
public:
    /// Of what a ConnectX-5 takes, or later ones.
    Rarity(Chance& chance, bool connectx_5) : chance_(chance), connectx_5_(connectx_5) {}
    [[nodiscard]] bool of_connectx_5() const { return connectx_5_; }

    /// Counts what a NIC takes.
    void add(const Megaflow& megaflow);
    [[nodiscard]] std::size_t drawn(const std::string& name) const;
    /// Of the rarest of what megaflows of this ethertype, these tags and this protocol have.
    [[nodiscard]] std::size_t drawn_like(const Megaflow& root) const;

    /// Whether a match or a write is to be masked.
    [[nodiscard]] bool wants_mask(const Megaflow& megaflow, Feature feature);
    [[nodiscard]] bool wants_mask(SetHeader header, std::size_t field);
    /// The rarest come first, mostly.
    void sort(const Megaflow& megaflow, std::vector<Feature>& features);
    void sort(std::vector<SetHeader>& headers);
    void sort(const Megaflow& megaflow, std::vector<std::uint8_t>& protocols);

private:
    [[nodiscard]] bool is_rarer(const std::string& one, const std::string& other);
    [[nodiscard]] std::size_t drawn(SetHeader header) const;
    [[nodiscard]] std::size_t drawn(Megaflow megaflow, std::uint8_t protocol) const;

    Chance& chance_;
    const bool connectx_5_;
    std::map<std::string, std::size_t> drawn_;
};

}  // namespace ovsdr::differential
