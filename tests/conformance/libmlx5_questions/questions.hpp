// The groups of questions. Each asks in all three domains.
#pragma once

#include "tests/conformance/libmlx5_questions/answers.hpp"
#include "tests/conformance/libmlx5_questions/session.hpp"

namespace ovsdr::oracle {

/// Rules with sequences of up to four actions, per domain and side.
void ask_sequences(const Session& session, Answers& answers);

/// Matchers and a rule of each: every bit, every field, pairs, criteria, sizes, and masks at random.
void ask_masks(const Session& session, Answers& answers);

/// Values of rules: IP versions, protocols and a further field; values outside their mask; sizes.
void ask_values(const Session& session, Answers& answers);

/// Modify-header actions: fields, operations, offsets, lengths, pairs of commands, sizes of lists.
void ask_edits(const Session& session, Answers& answers);

/// Actions of each kind with good and bad arguments.
void ask_actions(const Session& session, Answers& answers);
void ask_arrays(const Session& session, Answers& answers);
void ask_stateful_actions(const Session& session, Answers& answers);

/// Domains, tables, levels, matchers, layouts, duplicates.
void ask_objects(const Session& session, Answers& answers);

/// What may be destroyed while who uses it, in every order.
void ask_lifetimes(const Session& session, Answers& answers);

}  // namespace ovsdr::oracle
