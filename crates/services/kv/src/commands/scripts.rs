//! EVAL, EVALSHA and SCRIPT, for the scripts that are known ([`crate::scripts`]).

use crate::{
    command::{Handler, Local, ScriptBy, Spec},
    commands::family::Family,
};

/// The family.
pub const FAMILY: Family = Family {
    commands: COMMANDS,
    operations: &[],
};

const COMMANDS: &[Spec] = &[
    Spec {
        flags: &["noscript", "movablekeys"],
        handler: Handler::Script(ScriptBy::Text),
        ..Spec::local("eval", -3, Local::Script)
    },
    Spec {
        flags: &["noscript", "movablekeys"],
        handler: Handler::Script(ScriptBy::Hash),
        ..Spec::local("evalsha", -3, Local::Script)
    },
    Spec::local("script", -2, Local::Script),
    Spec::local("function", -2, Local::Function),
];
