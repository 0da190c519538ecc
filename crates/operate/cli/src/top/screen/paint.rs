//! Text styles. Colours are optional, so every colour is accompanied by a symbol.

use ratatui::{
    style::{Color, Modifier, Style},
    text::{Line, Span},
};

use super::super::health::Severity;

/// Provides text styles, with colours if these are enabled.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct TextStyles {
    pub(in super::super) has_colours: bool,
}

impl TextStyles {
    fn colour(self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    pub(super) fn severity_style(self, is: Severity) -> Style {
        match is {
            Severity::Good => self.colour(Color::Green),
            Severity::Note => self.colour(Color::Cyan),
            Severity::Wait => self.colour(Color::Yellow),
            Severity::Bad => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    pub(super) fn data_style(self) -> Style {
        self.colour(Color::Cyan)
    }

    pub(super) fn dim_style(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    pub(super) fn bold_style(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn chosen_style(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    pub(super) fn heading_line(self, text: &str) -> Line<'static> {
        Line::styled(text.to_owned(), self.bold_style())
    }
}

/// Returns the symbol that has the same meaning as the colour.
pub(super) const fn severity_mark(is: Severity) -> &'static str {
    match is {
        Severity::Good => "●",
        Severity::Note => "○",
        Severity::Wait => "◐",
        Severity::Bad => "✕",
    }
}

pub(super) fn plain_line(text: impl Into<String>) -> Line<'static> {
    Line::from(Span::raw(text.into()))
}
