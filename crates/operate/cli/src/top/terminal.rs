//! The terminal is taken, and always given back as it was: at the end, at an error, at a panic, at
//! a signal, and while this is stopped.

use std::{
    io::{self, Stdout, Write as _},
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use ratatui::{
    Terminal,
    backend::CrosstermBackend,
    crossterm::{
        cursor::{Hide, Show},
        execute,
        terminal::{
            Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
            enable_raw_mode,
        },
    },
};
use rustix::process::{Signal, getpid, kill_process};

/// The terminal is in use by this program.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A screen of its own, and every key at once.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn take() -> io::Result<Self> {
        give_back_at_a_panic();
        enter()?;
        // From here on it is given back, whatever happens.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        let terminal = terminal.inspect_err(|_| give_back())?;
        Ok(Self { terminal })
    }

    /// Redraws everything next time.
    pub(super) fn forget(&mut self) -> io::Result<()> {
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// The shell has the terminal until it wants this to go on.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        kill_process(getpid(), Signal::TSTP)?;
        enter()?;
        self.forget()
    }

    /// Returns whether a panic elsewhere restored the terminal.
    pub(super) fn is_lost(&self) -> bool {
        !TAKEN.load(Ordering::SeqCst)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    let entered =
        enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide));
    entered.inspect_err(|_| give_back())
}

/// Restores the terminal; only the first call has an effect.
pub(super) fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // An error could not be reported, and each of these is worth trying.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}

/// Restores the terminal before a panic's message is printed, so that it can be read.
fn give_back_at_a_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
    });
}
