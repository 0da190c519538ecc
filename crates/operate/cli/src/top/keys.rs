//! Maps keys to actions.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::app::{View, Wish};

/// Lines per page, independent of the screen's height.
const PAGE: isize = 10;

/// Returns the action that an event requests, if any.
pub(super) fn wish(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Wish::Interrupt),
            KeyCode::Char('z') => Some(Wish::Suspend),
            KeyCode::Char('l') => Some(Wish::Redraw),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Char(c @ '1'..='5') => Some(Wish::Show(View::ALL[c as usize - '1' as usize])),
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => Some(Wish::NextView),
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => Some(Wish::LastView),
        KeyCode::Down | KeyCode::Char('j') => Some(Wish::Move(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Wish::Move(-1)),
        KeyCode::PageDown => Some(Wish::Move(PAGE)),
        KeyCode::PageUp => Some(Wish::Move(-PAGE)),
        KeyCode::Home | KeyCode::Char('g') => Some(Wish::First),
        KeyCode::End | KeyCode::Char('G') => Some(Wish::Last),
        KeyCode::Enter => Some(Wish::Details),
        KeyCode::Char('p' | ' ') => Some(Wish::Pause),
        KeyCode::Char('s') => Some(Wish::Sort),
        KeyCode::Char('?') => Some(Wish::Help),
        KeyCode::Char('q' | 'Q') => Some(Wish::Quit),
        KeyCode::Esc => Some(Wish::Back),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_ask_for_what_the_help_says() {
        let press = |code, with| wish(&Event::Key(KeyEvent::new(code, with)));
        let (plain, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for (code, with, expected) in [
            (KeyCode::Char('q'), plain, Some(Wish::Quit)),
            (KeyCode::Esc, plain, Some(Wish::Back)),
            (KeyCode::Char('c'), control, Some(Wish::Interrupt)),
            (KeyCode::Char('c'), plain, None),
            (KeyCode::Char('z'), control, Some(Wish::Suspend)),
            (KeyCode::Char('1'), plain, Some(Wish::Show(View::Overview))),
            (KeyCode::Char('5'), plain, Some(Wish::Show(View::Tuning))),
            (KeyCode::Char('6'), plain, None),
            (KeyCode::Tab, plain, Some(Wish::NextView)),
            (KeyCode::Char('j'), plain, Some(Wish::Move(1))),
            (KeyCode::Up, plain, Some(Wish::Move(-1))),
            (KeyCode::Char('?'), plain, Some(Wish::Help)),
            (KeyCode::Char('G'), KeyModifiers::SHIFT, Some(Wish::Last)),
        ] {
            assert_eq!(press(code, with), expected, "{code:?} {with:?}");
        }
        assert_eq!(wish(&Event::Resize(3, 4)), None);
    }
}
