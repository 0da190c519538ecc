//! Broken programs, derived from valid ones: the compiler returns an error or a program, and never
//! panics.

use quorate_conformance::p4::{Machine, Sources, committed_sources, compile};
use quorate_core::dice::Dice;

const MUTATIONS: u64 = 1500;
/// Tokens that are meaningful to the compiler, separated by `|`.
const WORDS: &str = "{|}|(|)|;|<|>|[|]|=|&&&|++|if|else|apply|state|transition|select|control|\
register|bit<64>|0|0xffffffffffffffffffffffffffffffff|999999999999|129|hdr|meta|\
#include \"frame.p4\"|#if\n|default";

fn mutate(text: &str, dice: &mut Dice) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for _ in 0..=dice.below(3) {
        let at = dice.index(letters.len());
        let end = (at + dice.index(40)).min(letters.len());
        match dice.below(6) {
            0 => drop(letters.drain(at..end)),
            1 => letters[at] = char::from(u8::try_from(dice.between(9, 126)).unwrap()),
            2 => {
                let copy: Vec<char> = letters[at..end].to_vec();
                let to = dice.index(letters.len());
                letters.splice(to..to, copy);
            }
            3 => letters.truncate(at.max(1)),
            4 => {
                let many = dice.pick(&["(", "{", "-", "a.", "1+", "if(true)", "else if (x) ", "!"]);
                letters.splice(at..at, many.repeat(dice.index(3000)).chars());
            }
            _ => {
                let word = dice.pick(&WORDS.split('|').collect::<Vec<_>>());
                letters.splice(at..end, word.chars());
            }
        }
    }
    letters.into_iter().collect()
}

/// Compiles a program. If it is valid, it must also accept any packet.
fn survive(sources: &Sources, name: &str) -> bool {
    match compile(sources, name, &[("CELLS", "64")]) {
        Err(error) => {
            assert!(error.place.line > 0 && error.place.column > 0, "{error}");
            false
        }
        Ok(program) => {
            let mut machine = Machine::new(program);
            for length in [0, 14, 60, 112, 136, 2000] {
                let _ = machine.process(0, &vec![0x5a; length]);
            }
            true
        }
    }
}

#[test]
fn no_text_breaks_the_interpreter() {
    let committed = committed_sources();
    let mut programs = 0;
    for seed in 0..MUTATIONS {
        let mut dice = Dice::new(seed);
        let mut sources = committed.clone();
        let name = dice.pick(&["acceptor.p4", "coordinator.p4"]);
        let changed = dice.pick(&[name, "frame.p4"]);
        let text = mutate(committed.get(changed).unwrap(), &mut dice);
        sources.set_text(changed, text);
        programs += u64::from(survive(&sources, name));
    }
    // Most mutations that leave a valid program changed only a comment.
    assert!((MUTATIONS / 100..MUTATIONS / 2).contains(&programs), "{programs}");
}

#[test]
fn nothing_is_too_deep() {
    for text in ["(", "{", "-", "a.", "1+", "if(true)", "else if (x) ", "!", "[", "<", "@a("] {
        for around in
            ["control I() { apply { ", "const bit<8> X = ", "", "parser P() { state start { "]
        {
            let mut sources = Sources::default();
            sources.set_text("t.p4", format!("{around}{}", text.repeat(100_000)));
            assert!(!survive(&sources, "t.p4"));
        }
    }
}
