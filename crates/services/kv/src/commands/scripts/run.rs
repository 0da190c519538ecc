//! Execution of scripts: on every node, or on one node if read-only.

use std::cell::RefCell;

use quorate_lua::{Data, Host, Interpreter, Outcome, Run};

use super::{Script, replies};
use crate::{
    command::{Handler, Local, Refusal, Request, Spec},
    commands::{
        self,
        budget::VISITS_MAX,
        lookup,
        selection::{
            SELECT_IN_CLUSTER_MODE, in_database, parse_database, refusal_in_cluster_mode, within,
        },
        state::{ReadContext, WriteContext, too_large},
        stream::read::block_ms,
        visits::{execute_bounded, execute_within},
    },
    encode::{Decoder, Encoder, Fault},
    op::Op,
    resp::{reply::Reply, request::Words},
    scripts::WRITES,
    store::{Database, Store},
};

/// Commands of a running script, encoded like those of clients and executed like those in the log.
struct Calls<'a> {
    script: &'a Script<'a>,
    /// The later of the group's time and the front's clock.
    now_ms: u64,
    /// Database of the next command. At first that of the script, whose client keeps its own.
    database: Database,
    reads: bool,
    calls_made: u64,
    words: Words,
    command: Vec<u8>,
    reply: Vec<u8>,
}

fn error_reply(text: &str) -> Data {
    Data::Error(text.as_bytes().to_vec())
}

impl<'a> Calls<'a> {
    fn new(script: &'a Script<'a>, store: &dyn Store, reads: bool) -> Self {
        let now_ms = script.wall_ms.max(store.time());
        let database = store.selected();
        let (words, command, reply) = Default::default();
        Self { script, now_ms, database, reads, calls_made: 0, words, command, reply }
    }

    /// Encodes a command. Returns its operation, or the reply if there is nothing to execute.
    fn encode(&mut self, words: &[&[u8]]) -> Result<Op, Data> {
        self.calls_made += 1;
        let name = words.first().copied().unwrap_or_default();
        let (_, spec) = lookup(name)
            .ok_or_else(|| error_reply("ERR Unknown Redis command called from script"))?;
        let encode = match spec.handler {
            Handler::Data(encode) => encode,
            Handler::Local(local) => return Err(self.local(local, spec, words)),
            Handler::Script(_) => return Err(error_reply(NOT_ALLOWED)),
        };
        if spec.is_operator_command() && !self.script.permissions.operator {
            let text = format!(
                "NOPERM the script may not run '{}': it needs the role operator",
                spec.name
            );
            return Err(error_reply(&text));
        }
        self.words.set(words);
        let arguments = self.words.arguments();
        let told = |refusal: Refusal| match refusal {
            Refusal::Arity => {
                error_reply("ERR Wrong number of args calling Redis command from script")
            }
            other => error_reply(&other.text(spec.name)),
        };
        spec.check(&arguments).map_err(told)?;
        self.command.clear();
        let request = Request {
            name: spec.name,
            arguments: arguments.from(1),
            database: self.database,
            wall_ms: self.now_ms,
            value_bytes_max: self.script.value_bytes_max,
            seed: self.script.seed ^ self.calls_made.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        encode(&request, &mut Encoder(&mut self.command)).map_err(told)?;
        let op =
            self.command.first().copied().and_then(Op::from_byte).filter(|op| !op.stands_alone());
        let op = op.ok_or_else(|| error_reply(NOT_ALLOWED))?;
        if !self.script.permissions.databases
            && let Some(text) = refusal_in_cluster_mode(op)
        {
            return Err(error_reply(text));
        }
        if block_ms(&self.command).is_some() {
            let name = String::from_utf8_lossy(name);
            let text = format!("ERR {name} command is not allowed with BLOCK option from scripts");
            return Err(error_reply(&text));
        }
        if self.reads && !op.is_read() {
            return Err(error_reply(WRITES));
        }
        Ok(op)
    }

    fn local(&mut self, local: Local, spec: &Spec, words: &[&[u8]]) -> Data {
        match local {
            _ if !spec.accepts_count(words.len()) => {
                error_reply("ERR Wrong number of args calling Redis command from script")
            }
            Local::Time => {
                // The clock has a resolution of milliseconds. The microseconds differ between the
                // requests of a front, for programs that expect TIME to be unique.
                let micros = self.now_ms % 1000 * 1000 + self.script.seed % 1000;
                let seconds = self.now_ms / 1000;
                Data::Array(
                    [seconds, micros].map(|part| Data::Bulk(part.to_string().into_bytes())).into(),
                )
            }
            Local::Ping if words.len() == 1 => Data::Status(b"PONG".to_vec()),
            Local::Ping | Local::Echo => Data::Bulk(words[1].to_vec()),
            Local::Select => match parse_database(words[1]) {
                Err(text) => error_reply(text),
                Ok(database)
                    if database != Database::ZERO && !self.script.permissions.databases =>
                {
                    error_reply(SELECT_IN_CLUSTER_MODE)
                }
                Ok(database) => {
                    self.database = database;
                    Data::Status(b"OK".to_vec())
                }
            },
            _ => error_reply(NOT_ALLOWED),
        }
    }

    /// Returns the arguments of the encoded command and an empty reply buffer.
    fn parts(&mut self) -> (&[u8], &mut Vec<u8>) {
        self.reply.clear();
        (&self.command[1..], &mut self.reply)
    }

    /// Returns the reply to a command and its cost in visits. The command has made `visits` visits
    /// and moved `bytes` bytes of values.
    fn finish_call(&self, done: Result<(), Fault>, visits: u64, bytes: u64) -> (Data, u64) {
        let talked = (self.command.len() + self.reply.len()) as u64;
        let reply = match done {
            Ok(()) => replies::parse(&self.reply),
            Err(fault) => error_reply(fault.text()),
        };
        let more = bytes / VALUE_BYTES_PER_VISIT + talked / TALK_BYTES_PER_VISIT;
        let base = COMMAND_VISITS + self.words.arguments().len() as u64 * WORD_VISITS;
        (reply, visits.saturating_add(more).saturating_add(base))
    }
}

// [visit-4] The bytes of a client's commands are limited by the network; those of a script's
// commands are not.
/// Cost in visits of a command and of each of its words. A key or an element that the store has not
/// cached is read from the disk.
const COMMAND_VISITS: u64 = 64;
const WORD_VISITS: u64 = 8;
/// Number of bytes of values that can be copied or searched in the time of one visit.
const VALUE_BYTES_PER_VISIT: u64 = 128;
/// Number of bytes of commands and replies that can be written and parsed in the time of one visit.
const TALK_BYTES_PER_VISIT: u64 = 256;

const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";

struct Writing<'a, 'w, 's> {
    calls: Calls<'a>,
    state: &'w mut WriteContext<'s>,
}

impl Host for Writing<'_, '_, '_> {
    fn call(&mut self, words: &[&[u8]]) -> (Data, u64) {
        let op = match self.calls.encode(words) {
            Ok(op) => op,
            Err(reply) => return (reply, 0),
        };
        let before = self.state.budget.visits_left();
        let moved = self.state.store.meter().moved_bytes();
        let database = self.calls.database;
        let (from, reply) = self.calls.parts();
        let done = within(self.state, database, |state| {
            execute_bounded(op, &mut Decoder(from), state, &mut Reply(reply))
        });
        let cost = match done {
            // The account lacks the work done before the refusal, and a script could repeat it.
            Err(Fault::Visits | Fault::Budget) => u64::MAX,
            _ => before - self.state.budget.visits_left(),
        };
        self.calls.finish_call(
            done,
            cost,
            self.state.store.meter().moved_bytes().wrapping_sub(moved),
        )
    }
}

struct Reading<'a> {
    calls: Calls<'a>,
    state: ReadContext<'a>,
}

impl Host for Reading<'_> {
    fn call(&mut self, words: &[&[u8]]) -> (Data, u64) {
        let op = match self.calls.encode(words) {
            Ok(op) => op,
            Err(reply) => return (reply, 0),
        };
        let meter = self.state.store.meter();
        let (before, moved) = (meter.left(), meter.moved_bytes());
        let database = self.calls.database;
        let (from, reply) = self.calls.parts();
        let done = in_database(self.state.store, database, || {
            commands::read(op, &mut Decoder(from), &self.state, &mut Reply(reply))
        });
        // Beyond the limit, reads find nothing, and the whole query fails.
        let cost = if meter.is_limit_exceeded() { u64::MAX } else { before - meter.left() };
        self.calls.finish_call(done, cost, meter.moved_bytes().wrapping_sub(moved))
    }
}

/// Executes a script and replies. Returns the visits used, with those of the script's commands.
fn execute(
    script: &Script<'_>,
    interpreter: &RefCell<Interpreter>,
    host: &mut dyn Host,
    reply: &mut Reply<'_>,
) -> u64 {
    let (keys, arguments): (Vec<&[u8]>, Vec<&[u8]>) =
        (script.keys.collect(), script.arguments.collect());
    let run = Run {
        text: script.text,
        keys: &keys,
        arguments: &arguments,
        seed: script.seed,
        visits: VISITS_MAX,
    };
    let (outcome, used) = interpreter.borrow_mut().run(&run, host);
    let start = reply.0.len();
    match outcome {
        Outcome::Returned(data) => replies::write(&data, reply),
        Outcome::Failed(text) => reply.error(&text),
        Outcome::Stopped(limit) => reply.error(&format!(
            "TOOBIG the script was stopped, and what it wrote before stays: it reached {limit}"
        )),
    }
    too_large(reply, start);
    used
}

/// Refuses a script if its batch has less budget left than a script may use. A script that starts
/// can thus use its full limit, and is never stopped midway because of other commands.
fn may_begin(state: &WriteContext<'_>) -> Result<(), Fault> {
    match state.budget.visits_left() < VISITS_MAX {
        true => Err(Fault::Visits),
        false => Ok(()),
    }
}

fn write(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let script = Script::decode(from)?;
    may_begin(state)?;
    let before = state.budget.visits_left();
    let calls = Calls::new(&script, state.store, false);
    let interpreter = state.interpreter;
    let used = execute(&script, interpreter, &mut Writing { calls, state }, reply);
    // The commands have already been charged.
    let paid = before - state.budget.visits_left();
    state.budget.charge_visits(used.saturating_sub(paid).min(state.budget.visits_left()))
}

/// Executes a script from the log.
pub(crate) fn apply(
    op: Op,
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    if op != Op::ScriptRo {
        return write(from, state, reply);
    }
    may_begin(state)?;
    let reading = state.reading();
    let done = execute_within(VISITS_MAX, reading.store, || {
        read(from, &reading, state.interpreter, reply)
    });
    state.budget.charge_visits(*done.as_ref().unwrap_or(&VISITS_MAX))?;
    done.map(drop)
}

/// Executes a read-only script as a query, within the visit limit set on the store.
pub(crate) fn read(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    interpreter: &RefCell<Interpreter>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let script = Script::decode(from)?;
    let calls = Calls::new(&script, state.store, true);
    let meter = state.store.meter();
    let before = meter.left();
    let used = execute(&script, interpreter, &mut Reading { calls, state: *state }, reply);
    // A script stopped by its own limit has already replied with an error.
    if !meter.is_limit_exceeded() {
        let left = meter.left();
        meter.count_visits(used.saturating_sub(before - left).min(left - 1));
    }
    Ok(())
}
