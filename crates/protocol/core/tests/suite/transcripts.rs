//! Transcripts: the exact exchanges between nodes. Each file in `testdata` is a story told in
//! commands. The lines below `----` are the output of the production core.
//!
//! `REWRITE=1 cargo test -p quorate-core --test suite transcripts` rewrites the output, and the
//! diff is the review. The grammar of each command is documented at its handler in `stage/mod.rs`.

use std::{fmt::Write as _, fs, path::Path};

/// A command with its comment lines, and the output that the file expects.
struct Block {
    head: String,
    commands: Vec<String>,
    expected: String,
}

fn parse(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for part in text.split("\n\n").filter(|part| !part.trim().is_empty()) {
        let (question, answer) = part.split_once("----").unwrap_or((part, ""));
        let (mut head, mut commands) = (String::new(), Vec::new());
        for line in question.lines() {
            if line.starts_with('#') || line.is_empty() {
                let _ = writeln!(head, "{line}");
            } else {
                commands.push(line.to_owned());
            }
        }
        blocks.push(Block { head, commands, expected: answer.trim().to_owned() });
    }
    blocks
}

fn run(path: &Path) {
    let text = fs::read_to_string(path).expect("transcript is readable");
    let rewrite = std::env::var_os("REWRITE").is_some();
    let mut stage = crate::stage::Stage::default();
    let mut out = String::new();
    for block in parse(&text) {
        let mut answer = String::new();
        for command in &block.commands {
            answer.push_str(&stage.run(command));
        }
        let answer = answer.trim().to_owned();
        if !rewrite {
            assert_eq!(
                answer,
                block.expected,
                "\n{}: after `{}` (REWRITE=1 takes the new answer)\n",
                path.display(),
                block.commands.join("; "),
            );
        }
        out.push_str(&block.head);
        for command in &block.commands {
            let _ = writeln!(out, "{command}");
        }
        if !block.commands.is_empty() {
            out.push_str("----\n");
            if !answer.is_empty() {
                let _ = writeln!(out, "{answer}");
            }
        }
        out.push('\n');
    }
    if rewrite {
        fs::write(path, out.trim_end().to_owned() + "\n").expect("transcript is writable");
    }
}

macro_rules! stories {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(&Path::new("tests/testdata").join(concat!(stringify!($name), ".txt")));
        })*

        /// Every story in the folder is covered by a test.
        #[test]
        fn every_file_is_run() {
            let known = [$(concat!(stringify!($name), ".txt")),*];
            for entry in fs::read_dir("tests/testdata").expect("testdata exists") {
                let name = entry.expect("entry is readable").file_name();
                let name = name.to_string_lossy();
                assert!(known.contains(&name.as_ref()), "{name} is run by no test");
            }
        }
    };
}

stories! {
    life_of_a_value
    leader_dies
    older_vote_is_finished
    hole_becomes_no_op
    no_bytes_no_vote
    lost_proposal_is_sent_again
    far_behind_leads_last
    follower_falls_behind
    era_changes
    leader_goes_who_alone_knew_that_an_era_began
    casting_vote
    casting_vote_given_up_for_bytes
    decided_anew_without_the_leader
    leader_of_an_era_unknown_to_others_stays
    transfer
    leader_cannot_write
    unfit_node_does_not_campaign
    transfer_to_a_node_that_dies
    transfer_to_an_unfit_node_ends
    reads
    pre_vote_protects_leader
    volatile_group
    storage_fails
    conflicting_votes_raise_alarm
    stray_node_is_taken_in_again
    stray_node_is_taken_in_again_under_reads
    one_refusal_does_not_end_phase_1
    refusal_tells_of_an_era
    refusal_of_a_later_era_is_not_answered_by_another_ballot
    late_word_of_a_decision
    leader_steps_down_when_another_value_was_decided
    standing_leader_repeats_1a
    lost_decision_is_learned_again
    node_that_lost_decisions_does_not_campaign
    inherited_changes_bind_reads
    lagging_learner_needs_a_snapshot
    candidate_installs_first
    leader_installs_and_steps_down
    grow_from_one_to_five
    replace
    two_operators_at_once
    removed_for_good
    change_waits_for_holders
    lacking_bytes_block_no_election
    inherited_change_holds_back_the_next
    auxiliary_engaged_and_retired
    auxiliary_tells_a_new_leader
    auxiliary_enters_an_era
    thrifty
    roles_and_rules
    ring
    ring_after_another_ballot
}
