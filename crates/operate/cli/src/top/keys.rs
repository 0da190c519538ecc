//! Maps terminal events to actions.

use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};

use super::app::{Action, View};

/// Number of lines that a page key moves. It does not depend on the screen's height.
const PAGE_LINES: isize = 10;

/// Returns the action that a terminal event triggers, if any.
pub(super) fn event_action(event: &Event) -> Option<Action> {
    let key = match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => key,
        _ => return None,
    };
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Some(Action::Interrupt),
            KeyCode::Char('z') => Some(Action::Suspend),
            KeyCode::Char('l') => Some(Action::Redraw),
            _ => None,
        };
    }
    match key.code {
        KeyCode::Char(c @ '1'..='5') => Some(Action::Show(View::ALL[c as usize - '1' as usize])),
        KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => Some(Action::NextView),
        KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => Some(Action::PreviousView),
        KeyCode::Down | KeyCode::Char('j') => Some(Action::Move(1)),
        KeyCode::Up | KeyCode::Char('k') => Some(Action::Move(-1)),
        KeyCode::PageDown => Some(Action::Move(PAGE_LINES)),
        KeyCode::PageUp => Some(Action::Move(-PAGE_LINES)),
        KeyCode::Home | KeyCode::Char('g') => Some(Action::First),
        KeyCode::End | KeyCode::Char('G') => Some(Action::Last),
        KeyCode::Enter => Some(Action::Details),
        KeyCode::Char('p' | ' ') => Some(Action::Pause),
        KeyCode::Char('s') => Some(Action::Sort),
        KeyCode::Char('?') => Some(Action::Help),
        KeyCode::Char('q' | 'Q') => Some(Action::Quit),
        KeyCode::Esc => Some(Action::Back),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn keys_trigger_the_documented_actions() {
        let press = |code, with| event_action(&Event::Key(KeyEvent::new(code, with)));
        let (plain, control) = (KeyModifiers::NONE, KeyModifiers::CONTROL);
        for (code, with, expected) in [
            (KeyCode::Char('q'), plain, Some(Action::Quit)),
            (KeyCode::Esc, plain, Some(Action::Back)),
            (KeyCode::Char('c'), control, Some(Action::Interrupt)),
            (KeyCode::Char('c'), plain, None),
            (KeyCode::Char('z'), control, Some(Action::Suspend)),
            (KeyCode::Char('1'), plain, Some(Action::Show(View::Overview))),
            (KeyCode::Char('5'), plain, Some(Action::Show(View::Tuning))),
            (KeyCode::Char('6'), plain, None),
            (KeyCode::Tab, plain, Some(Action::NextView)),
            (KeyCode::Char('j'), plain, Some(Action::Move(1))),
            (KeyCode::Up, plain, Some(Action::Move(-1))),
            (KeyCode::Char('?'), plain, Some(Action::Help)),
            (KeyCode::Char('G'), KeyModifiers::SHIFT, Some(Action::Last)),
        ] {
            assert_eq!(press(code, with), expected, "{code:?} {with:?}");
        }
        assert_eq!(event_action(&Event::Resize(3, 4)), None);
    }
}
