//! EVAL, EVALSHA and SCRIPT. Only known scripts can be executed ([`crate::scripts`]).

use crate::{
    command::{Doc, Handler, Local, ScriptBy, Spec},
    commands::family::Family,
};

pub const FAMILY: Family = Family { commands: COMMANDS, operations: &[] };

const COMMANDS: &[Spec] = &[
    Spec {
        flags: &["noscript", "movablekeys"],
        handler: Handler::Script(ScriptBy::Text),
        ..Spec::local(
            "eval",
            -3,
            Local::Script,
            Doc::new(
                "scripting",
                "2.6.0",
                "O(1)",
                "Executes one of the scripts of lock libraries.",
            )
            .differs("only the scripts of lock libraries"),
        )
    },
    Spec {
        flags: &["noscript", "movablekeys"],
        handler: Handler::Script(ScriptBy::Hash),
        ..Spec::local(
            "evalsha",
            -3,
            Local::Script,
            Doc::new(
                "scripting",
                "2.6.0",
                "O(1)",
                "Executes one of the scripts of lock libraries by SHA1 digest.",
            )
            .differs("only the scripts of lock libraries"),
        )
    },
    Spec::local(
        "script",
        -2,
        Local::Script,
        Doc::new(
            "scripting",
            "2.6.0",
            "Depends on subcommand.",
            "A container for Lua scripts management commands.",
        )
        .differs("only the scripts of lock libraries"),
    ),
    Spec::local(
        "function",
        -2,
        Local::Function,
        Doc::new(
            "scripting",
            "7.0.0",
            "Depends on subcommand.",
            "A container for function commands.",
        )
        .differs("there are none"),
    ),
];
