//! `quorate top`: shows the cluster on the full screen of a terminal. The views correspond to those
//! of the web page.

mod app;
mod cluster;
#[cfg(test)]
pub(crate) mod fixtures;
mod gather;
mod health;
mod history;
mod keys;
mod places;
mod screen;
mod terminal;
mod text;

use std::{
    env,
    io::{self, IsTerminal as _},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    time::{Duration, Instant},
};

use clap::Args;
use ratatui::crossterm::event;

pub(crate) use self::health::lost_quorum_text;
use self::{
    app::{AfterKey, App},
    gather::NodeResponse,
    screen::TextStyles,
    terminal::Screen,
};
use crate::values::{Number, Unit};
use crate::{
    addresses::{DEFAULT_ADMIN, address_argument},
    output::{Exit, Output, Problem},
    signals,
};

/// Arguments of `quorate top`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Press ? for the keys and q to quit. Needs a terminal; programs can use 'quorate status --watch --json'."
)]
pub(crate) struct TopArgs {
    /// Admin addresses of one or more nodes; the other members are found
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', default_value = DEFAULT_ADMIN, value_parser = address_argument)]
    admin: Vec<String>,
    /// Seconds between updates
    #[arg(long, env = "QUORATE_EVERY", value_name = "SECONDS", default_value_t = 1, value_parser = Number::between(1, 60, Unit::Count).argument::<u64>())]
    every: u64,
}

/// Maximum delay in handling updates, keys and signals.
const EVENT_DELAY_MAX: Duration = Duration::from_millis(100);
/// Interval between redraws while no update arrives, so that displayed ages remain current.
const REDRAW_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &TopArgs, output: Output) -> Result<Exit, Problem> {
    check_terminal(output)?;
    let every = Duration::from_secs(args.every);
    let is_ended = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_ended);
    signals::on_first_then_end(move || end.store(true, Ordering::SeqCst), terminal::restore)?;
    let news = gather::start(&args.admin, every);
    let news = news.map_err(|error| Problem::io_error("start a thread", &error))?;
    let failed = |error: io::Error| Problem::io_error("the terminal", &error);
    let mut screen = Screen::take_over().map_err(failed)?;
    let exit = run_until_quit(&mut screen, &news, &is_ended, App::new(every)).map_err(failed);
    let is_lost = screen.is_restored();
    drop(screen);
    match exit {
        // The panic message has been printed on the restored terminal.
        Ok(_) if is_lost => {
            let what = "a thread of 'quorate top' failed";
            Err(Problem::new(Exit::Failed, "internal", what))
        }
        exit => exit,
    }
}

/// Returns an error if there is no terminal, or if `--json` is given. A continuous view is not a
/// single JSON document.
fn check_terminal(output: Output) -> Result<(), Problem> {
    let needs = "'quorate top' needs a terminal";
    let no_terminal = |why: &str| {
        Problem::new(Exit::Usage, "no_terminal", format_args!("{needs}, {why}"))
            .with_hint("use 'quorate status --watch', with --json for programs")
    };
    if output.json {
        return Err(no_terminal("and has no JSON output"));
    }
    if !io::stdout().is_terminal() {
        return Err(no_terminal("and standard output is not a terminal"));
    }
    if env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err(no_terminal("and TERM=dumb is not supported"));
    }
    Ok(())
}

/// Handles updates and keys, and redraws the screen, until the user quits.
fn run_until_quit(
    screen: &mut Screen,
    news: &Receiver<NodeResponse>,
    is_ended: &AtomicBool,
    mut app: App,
) -> io::Result<Exit> {
    // https://no-color.org
    let colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let paint = TextStyles { has_colours: colours };
    let (mut drawn, mut looked) = (None::<Instant>, Instant::now());
    let mut is_new = true;
    loop {
        let now = Instant::now();
        while let Ok(news) = news.try_recv() {
            app.record_response(news, now);
            is_new = true;
        }
        if now.duration_since(looked) >= app.poll_interval {
            app.record_state(now);
            (looked, is_new) = (now, true);
        }
        if is_new || drawn.is_none_or(|drawn| now.duration_since(drawn) >= REDRAW_INTERVAL) {
            let mut scroll_max = 0;
            let draw = |frame: &mut ratatui::Frame<'_>| {
                scroll_max = screen::draw_screen(frame, &app, now, paint);
            };
            screen.terminal.draw(draw)?;
            app.scrolled_lines_max = scroll_max;
            (drawn, is_new) = (Some(now), false);
        }
        let is_key = event::poll(EVENT_DELAY_MAX);
        if screen.is_restored() {
            return Ok(Exit::Failed);
        }
        if is_ended.load(Ordering::SeqCst) {
            return Ok(Exit::Interrupted);
        }
        if !is_key? {
            continue;
        }
        let event = event::read()?;
        is_new = true;
        let Some(wish) = keys::event_action(&event) else {
            continue;
        };
        match app.apply_action(wish, Instant::now()) {
            AfterKey::Continue => {}
            AfterKey::Quit => return Ok(Exit::Done),
            AfterKey::Interrupt => return Ok(Exit::Interrupted),
            AfterKey::Suspend => screen.suspend()?,
            AfterKey::Redraw => screen.clear()?,
        }
    }
}
