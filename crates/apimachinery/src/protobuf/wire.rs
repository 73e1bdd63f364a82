//! The wire format of protobuf: tagged numbers and byte strings.

/// A value as it is on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wire<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
    /// A number of 32 bits, which no Kubernetes message has.
    Short,
}

/// The fields of a message in order; None in place of a malformed field, which is the last.
pub(crate) fn fields(mut body: &[u8]) -> impl Iterator<Item = Option<(u64, Wire<'_>)>> {
    std::iter::from_fn(move || {
        if body.is_empty() {
            return None;
        }
        let field = take_field(&mut body);
        if field.is_none() {
            body = &[];
        }
        Some(field)
    })
}

fn take_field<'a>(body: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let tag = take_number(body)?;
    let wire = match tag & 7 {
        0 => Wire::Number(take_number(body)?),
        1 => {
            let (bytes, rest) = body.split_first_chunk::<8>()?;
            *body = rest;
            Wire::Double(f64::from_le_bytes(*bytes))
        }
        2 => {
            let length = usize::try_from(take_number(body)?).ok()?;
            let (bytes, rest) = body.split_at_checked(length)?;
            *body = rest;
            Wire::Bytes(bytes)
        }
        5 => {
            let (_, rest) = body.split_first_chunk::<4>()?;
            *body = rest;
            Wire::Short
        }
        _ => return None,
    };
    Some((tag >> 3, wire))
}

fn take_number(body: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = body.split_first()?;
        *body = rest;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Writes fields.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn number(&mut self, field: u64, number: u64) {
        self.put(field << 3);
        self.put(number);
    }

    pub(crate) fn double(&mut self, field: u64, number: f64) {
        self.put(field << 3 | 1);
        self.0.extend(number.to_le_bytes());
    }

    pub(crate) fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.put(field << 3 | 2);
        // A length in memory fits.
        self.put(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.0.extend(bytes);
    }

    pub(crate) fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.0.push(number.to_le_bytes()[0]);
    }
}
