//! A snapshot that is held, as the bytes of a backup: what `GET /backup` sends and recovery reads.

use std::io::{self, Read};

use super::{Encoder, Header, Held, Parts, Unreadable};

/// The bytes, as they are read.
pub struct Encoded<'a, P> {
    held: &'a mut Held,
    parts: P,
    encoder: Option<Encoder>,
    piece: Vec<u8>,
    used: usize,
}

impl<'a, P: Parts> Encoded<'a, P> {
    /// From the beginning, however far the snapshot was read before.
    pub fn begin(held: &'a mut Held, header: &Header, parts: P) -> Self {
        held.rewind();
        let (encoder, piece) = Encoder::begin(header);
        Self {
            held,
            parts,
            encoder: Some(encoder),
            piece,
            used: 0,
        }
    }

    /// The next piece; empty at the end.
    pub fn next_piece(&mut self) -> Result<Vec<u8>, Unreadable> {
        if self.used < self.piece.len() {
            let rest = self.piece.split_off(self.used);
            (self.piece, self.used) = (Vec::new(), 0);
            return Ok(rest);
        }
        let Some(encoder) = &mut self.encoder else {
            return Ok(Vec::new());
        };
        match self.held.next(&mut self.parts)? {
            Some(content) => Ok(encoder.chunks(&content)),
            None => {
                let encoder = self.encoder.take();
                Ok(encoder.map_or_else(Vec::new, |encoder| encoder.end().1))
            }
        }
    }
}

impl<P: Parts> Read for Encoded<'_, P> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.used == self.piece.len() {
            let piece = self.next_piece().map_err(|why| match why {
                Unreadable::Io(error) => error,
                Unreadable::Damaged(what) => io::Error::new(io::ErrorKind::InvalidData, what),
            })?;
            (self.piece, self.used) = (piece, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.used);
        buffer[..count].copy_from_slice(&self.piece[self.used..self.used + count]);
        self.used += count;
        Ok(count)
    }
}
