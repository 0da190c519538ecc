//! Takes over the terminal and reliably restores it: at the end, on an error, a panic or a signal,
//! and while the program is suspended.

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

/// Set while this program has taken over the terminal.
static IS_TAKEN_OVER: AtomicBool = AtomicBool::new(false);

/// A terminal with the alternate screen, in raw mode.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Switches the terminal to raw mode and the alternate screen.
    pub(super) fn take_over() -> io::Result<Self> {
        restore_on_panic();
        enter_screen()?;
        // The terminal has been taken over, so an error must restore it.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        let terminal = terminal.inspect_err(|_| restore())?;
        Ok(Self { terminal })
    }

    /// Clears the screen, so that the next drawing repaints all of it.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        Ok(())
    }

    /// Restores the terminal and suspends the program until the shell resumes it.
    pub(super) fn suspend(&mut self) -> io::Result<()> {
        restore();
        kill_process(getpid(), Signal::TSTP)?;
        enter_screen()?;
        self.clear()
    }

    /// Returns whether a panic in another thread restored the terminal.
    pub(super) fn is_restored(&self) -> bool {
        !IS_TAKEN_OVER.load(Ordering::SeqCst)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn enter_screen() -> io::Result<()> {
    IS_TAKEN_OVER.store(true, Ordering::SeqCst);
    let entered =
        enable_raw_mode().and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Hide));
    entered.inspect_err(|_| restore())
}

/// Restores the terminal. Only the first call has an effect.
pub(super) fn restore() {
    if IS_TAKEN_OVER.swap(false, Ordering::SeqCst) {
        // Ignore errors, since they could not be reported, and attempt every step.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
        let _ = disable_raw_mode();
    }
}

/// Installs a panic hook that restores the terminal before the panic message is printed, so that
/// the message is readable.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}
