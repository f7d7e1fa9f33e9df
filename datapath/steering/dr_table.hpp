// A DR table: matchers at one level of a domain. Level 0 is the root, where every packet of the domain begins.
//
// Refers to its domain; EBUSY while a matcher or an action that leads here lives.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "datapath/steering/dr_domain.hpp"
#include "datapath/steering/structure.hpp"

namespace ovsdr::soft {

class Matcher;

class Table : public Referenced {
public:
    /// Throws std::bad_alloc.
    Table(Domain& domain, std::uint32_t level);
    /// Not busy any more.
    ~Table();
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;

    [[nodiscard]] Domain& domain() const noexcept { return domain_; }
    [[nodiscard]] std::uint32_t level() const noexcept { return level_; }
    [[nodiscard]] bool root() const noexcept { return level_ == 0; }

    /// Non-root only.
    [[nodiscard]] const TableView& view() const noexcept { return *view_; }

    /// The matchers that packets walk here (for a root: of all domains of its kind), and where lanes read them.
    /// Under a Change.
    [[nodiscard]] std::vector<Matcher*>& walked() noexcept;
    [[nodiscard]] std::atomic<const MatcherList*>& published() noexcept;

    /// Made in this table, oldest first; guarded by the domain's tables_mutex().
    [[nodiscard]] std::vector<Matcher*>& matchers() noexcept { return matchers_; }

private:
    Domain& domain_;
    std::uint32_t level_;
    TableView* view_ = nullptr;  // retired, not deleted
    std::vector<Matcher*> walked_;
    std::vector<Matcher*> matchers_;
};

}  // namespace ovsdr::soft
