//! An NBD server for tests: answers what a client has written, from memory.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

/// 4 KiB with a hole of 1 KiB in it.
pub(crate) fn disk() -> Vec<u8> {
    let mut disk: Vec<u8> = (1..=250).cycle().take(4096).collect();
    disk[1024..2048].fill(0);
    disk
}

fn count(length: usize) -> u32 {
    length.try_into().unwrap()
}

/// How the server behaves.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent of each other")]
pub(crate) struct Answers {
    pub(crate) is_missing: bool,
    /// Its map has one byte at a time.
    pub(crate) is_grained: bool,
    /// Every read fails.
    pub(crate) fails: bool,
    /// Added to the place of every piece.
    pub(crate) shift: i64,
    /// The last byte is missing.
    pub(crate) is_short: bool,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct Scripted {
    answers: Answers,
    written: Vec<u8>,
    to_read: VecDeque<u8>,
    has_greeted: bool,
    /// After so many bytes, these follow.
    damage: Option<(usize, Vec<u8>)>,
}

impl Scripted {
    pub(crate) fn new(answers: Answers) -> Self {
        let mut to_read = VecDeque::new();
        to_read.extend(0x4e42_444d_4147_4943_u64.to_be_bytes());
        to_read.extend(0x4948_4156_454f_5054_u64.to_be_bytes());
        to_read.extend(3_u16.to_be_bytes());
        Self {
            answers,
            written: Vec::new(),
            to_read,
            has_greeted: false,
            damage: None,
        }
    }

    pub(crate) fn damaged(good: usize, bytes: Vec<u8>) -> Self {
        Self {
            damage: Some((good, bytes)),
            ..Self::new(Answers::default())
        }
    }

    fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        (self.written.len() >= length).then(|| self.written.drain(..length).collect())
    }

    /// Answers all that is complete.
    fn serve(&mut self) {
        if !self.has_greeted {
            let Some(_flags) = self.take(4) else { return };
            self.has_greeted = true;
        }
        loop {
            let is_option = self.written.first() == Some(&b'I');
            if is_option {
                let Some(length) = self.written.get(12..16) else {
                    return;
                };
                let length =
                    usize::try_from(u32::from_be_bytes(length.try_into().unwrap())).unwrap();
                let Some(message) = self.take(16 + length) else {
                    return;
                };
                self.negotiate(u32::from_be_bytes(message[8..12].try_into().unwrap()));
            } else {
                let Some(message) = self.take(28) else { return };
                let command = u16::from_be_bytes(message[6..8].try_into().unwrap());
                let at = u64::from_be_bytes(message[16..24].try_into().unwrap());
                let length = u32::from_be_bytes(message[24..28].try_into().unwrap());
                let cookie = message[8..16].to_vec();
                if command == 0 {
                    self.read_disk(&cookie, at, usize::try_from(length).unwrap());
                } else {
                    self.map_disk(&cookie);
                }
            }
        }
    }

    fn reply(&mut self, option: u32, kind: u32, body: &[u8]) {
        self.to_read.extend(0x0003_e889_0455_65a9_u64.to_be_bytes());
        self.to_read.extend(option.to_be_bytes());
        self.to_read.extend(kind.to_be_bytes());
        self.to_read.extend(count(body.len()).to_be_bytes());
        self.to_read.extend(body);
    }

    fn negotiate(&mut self, option: u32) {
        match option {
            10 => {
                let mut body = 9_u32.to_be_bytes().to_vec();
                body.extend(b"base:allocation");
                self.reply(option, 4, &body);
            }
            7 if self.answers.is_missing => {
                self.reply(option, (1 << 31) + 6, b"no such export");
                return;
            }
            7 => {
                let mut body = 0_u16.to_be_bytes().to_vec();
                body.extend(u64::try_from(disk().len()).unwrap().to_be_bytes());
                body.extend(3_u16.to_be_bytes());
                self.reply(option, 3, &body);
            }
            _ => {}
        }
        self.reply(option, 1, &[]);
    }

    fn chunk(&mut self, cookie: &[u8], (flags, kind): (u16, u16), body: &[u8]) {
        self.to_read.extend(0x668e_33ef_u32.to_be_bytes());
        self.to_read.extend(flags.to_be_bytes());
        self.to_read.extend(kind.to_be_bytes());
        self.to_read.extend(cookie);
        self.to_read.extend(count(body.len()).to_be_bytes());
        self.to_read.extend(body);
    }

    fn read_disk(&mut self, cookie: &[u8], at: u64, length: usize) {
        if self.answers.fails {
            let mut body = 5_u32.to_be_bytes().to_vec();
            body.extend(0_u16.to_be_bytes());
            self.chunk(cookie, (1, (1 << 15) + 1), &body);
            return;
        }
        let begin = usize::try_from(at).unwrap();
        let mut end = begin + length;
        if self.answers.is_short {
            end -= 1;
        }
        let mut place = begin;
        while place < end {
            let next = [1024, 2048, end].into_iter().find(|next| *next > place);
            let next = next.unwrap_or(end).min(end);
            let offset = u64::try_from(place).unwrap();
            let offset = offset.wrapping_add_signed(self.answers.shift);
            let mut body = offset.to_be_bytes().to_vec();
            let kind = if (1024..2048).contains(&place) {
                body.extend(count(next - place).to_be_bytes());
                2
            } else {
                body.extend(&disk()[place..next]);
                1
            };
            self.chunk(cookie, (0, kind), &body);
            place = next;
        }
        self.chunk(cookie, (1, 0), &[]);
    }

    fn map_disk(&mut self, cookie: &[u8]) {
        let mut body = 9_u32.to_be_bytes().to_vec();
        let whole = [(1024_u32, 0_u32), (1024, 3), (2048, 0)];
        let entries: &[(u32, u32)] = if self.answers.is_grained {
            &[(1, 0)]
        } else {
            &whole
        };
        for (length, flags) in entries {
            body.extend(length.to_be_bytes());
            body.extend(flags.to_be_bytes());
        }
        self.chunk(cookie, (1, 5), &body);
    }
}

impl Read for Scripted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some((good, bytes)) = &mut self.damage else {
            return self.to_read.read(buffer);
        };
        if *good == 0 {
            let amount = buffer.len().min(bytes.len());
            for (to, from) in buffer.iter_mut().zip(bytes.drain(..amount)) {
                *to = from;
            }
            return Ok(amount);
        }
        let amount = buffer.len().min(*good);
        let amount = self.to_read.read(&mut buffer[..amount])?;
        *good -= amount;
        Ok(amount)
    }
}

impl Write for Scripted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written.extend(bytes);
        self.serve();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
