//! Extraction of headers from a packet, their emission, and checksums over fields.

use super::{Fault, Packet, fault};
use crate::p4::{
    Place,
    ir::{Checksum, Header, low_bits_mask},
};

impl Packet<'_> {
    /// Extracts a header. If the packet is too short for the header, nothing is extracted.
    pub(super) fn extract(&mut self, header: usize, place: &Place) -> Result<bool, Fault> {
        let Header { validity: valid, fields, bit_width: bits } = &self.program.headers[header];
        if self.values[*valid] == 1 {
            return Err(fault(place, "a header is extracted twice"));
        }
        let bytes = *bits as usize / 8;
        let Some(from) = self.bytes.get(self.parse_offset..self.parse_offset + bytes) else {
            return Ok(false);
        };
        let mut reader = BitBuffer::default();
        let mut rest = from.iter();
        for (slot, width) in fields {
            self.values[*slot] = reader.take(*width, &mut rest);
            self.defined[*slot] = true;
        }
        self.values[*valid] = 1;
        self.parse_offset += bytes;
        Ok(true)
    }

    pub(super) fn emit(&mut self, header: usize) -> Result<(), Fault> {
        let Header { validity: valid, fields, .. } = &self.program.headers[header];
        if self.values[*valid] == 0 {
            return Ok(());
        }
        let mut writer = BitBuffer::default();
        for (slot, width) in fields {
            if !self.defined[*slot] {
                let name = &self.program.slots[*slot].name;
                let what = format!("{name} is sent without a value");
                return Err(Fault { place: None, message: what });
            }
            writer.put(self.values[*slot], *width, |byte| self.output.push(byte));
        }
        Ok(())
    }

    pub(super) fn verify(&mut self, checksum: &Checksum) -> Result<(), Fault> {
        if self.value(&checksum.condition)? == 0 {
            return Ok(());
        }
        let sum = self.compute_checksum(checksum)?;
        let expected = checksum.expected.as_ref().expect("of a verification");
        if self.value(expected)? != sum {
            self.values[self.program.standard_metadata.checksum_error] = 1;
        }
        Ok(())
    }

    /// Returns the complement of the one's-complement sum of words of 16 bits.
    pub(super) fn compute_checksum(&mut self, checksum: &Checksum) -> Result<u128, Fault> {
        let mut writer = BitBuffer::default();
        let (mut sum, mut high) = (0_u64, None);
        for (expr, width) in &checksum.data {
            let value = self.value(expr)?;
            writer.put(value, *width, |byte| match high.take() {
                None => high = Some(byte),
                Some(high) => sum += u64::from(u16::from_be_bytes([high, byte])),
            });
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        Ok(u128::from(!sum & 0xffff))
    }
}

/// Bit buffer for fields that do not end at byte boundaries.
#[derive(Default)]
struct BitBuffer {
    bits: u128,
    bit_count: u32,
}

impl BitBuffer {
    fn take<'a>(&mut self, width: u32, bytes: &mut impl Iterator<Item = &'a u8>) -> u128 {
        let mut value = 0;
        let mut missing = width;
        while missing > 0 {
            if self.bit_count == 0 {
                self.bits = bytes.next().copied().unwrap_or(0).into();
                self.bit_count = 8;
            }
            let taken = missing.min(self.bit_count);
            self.bit_count -= taken;
            value = value << taken | self.bits >> self.bit_count & low_bits_mask(taken);
            missing -= taken;
        }
        value
    }

    fn put(&mut self, value: u128, width: u32, mut to: impl FnMut(u8)) {
        let mut left = width;
        while left > 0 {
            let taken = left.min(8 - self.bit_count);
            left -= taken;
            self.bits = self.bits << taken | value >> left & low_bits_mask(taken);
            self.bit_count += taken;
            if self.bit_count == 8 {
                to(self.bits.to_le_bytes()[0]);
                (self.bits, self.bit_count) = (0, 0);
            }
        }
    }
}
