//! The load of `xtask bench` inside a guest, and its counterpart on the host: one static program that the
//! bench builds by itself and hands to guests as a disk.
//!
//! Each command prints one line that begins with `load:` when it is done.

use std::{
    env,
    fs::OpenOptions,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::{FileExt, OpenOptionsExt},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

/// `O_DIRECT` of Linux on x86-64, past the guest's own cache.
const DIRECT: i32 = 0o40_000;
/// Memory for direct requests begins at a multiple of it.
const ALIGNMENT: usize = 4096;
const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
/// Of one connection's messages.
const CHUNK: usize = 64 << 10;

/// Numbers without a pattern that anything could compress.
struct Numbers(u64);

impl Numbers {
    fn new() -> Self {
        Self(0x9E37_79B9_7F4A_7C15)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let number = self.next().to_le_bytes();
            part.copy_from_slice(&number[..part.len()]);
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(line) => say(&format!("load: {line}")),
        Err(err) => {
            say(&format!("load: failed: {err}"));
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) -> ExitCode {
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(words: &[&str]) -> io::Result<String> {
    match words {
        ["disk", device, pattern, mib, seconds] => {
            let work = Work {
                size: number(mib)? << 20,
                time: Duration::from_secs(number(seconds)?),
            };
            disk(device, pattern, &work)
        }
        ["send", address, seconds] => send(address, Duration::from_secs(number(seconds)?)),
        ["receive", address, seconds] => receive(address, Duration::from_secs(number(seconds)?)),
        ["echo", address, count] => echo(address, number(count)?),
        ["serve", address] => serve(address),
        ["memory", mib, rate] => memory(number(mib)?, number(rate)?),
        ["tick", milliseconds] => tick(Duration::from_millis(number(milliseconds)?)),
        ["write", path, mib] => write(path, number(mib)?),
        _ => Err(wrong(
            "disk DEVICE PATTERN MIB SECONDS | send ADDRESS SECONDS | receive ADDRESS SECONDS | echo ADDRESS COUNT | \
             serve ADDRESS | memory MIB MIB_PER_SECOND | tick MILLISECONDS | write FILE MIB",
        )),
    }
}

fn wrong(text: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, text.to_owned())
}

fn number(text: &str) -> io::Result<u64> {
    text.parse()
        .map_err(|_| wrong(&format!("{text} is no number")))
}

struct Work {
    size: u64,
    time: Duration,
}

/// Bytes per second by one thread, which waits for each request.
fn disk(device: &str, pattern: &str, work: &Work) -> io::Result<String> {
    let (is_write, is_random) = match pattern {
        "sequential-read" => (false, false),
        "sequential-write" => (true, false),
        "random-read" => (false, true),
        "random-write" => (true, true),
        _ => return Err(wrong("no such pattern")),
    };
    let file = OpenOptions::new()
        .read(true)
        .write(is_write)
        .custom_flags(DIRECT)
        .open(device)?;
    let length = if is_random { SMALL } else { LARGE };
    let mut memory = vec![0; length + ALIGNMENT];
    let offset = memory.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut memory[offset..offset + length];
    let mut numbers = Numbers::new();
    numbers.fill(buffer);
    let blocks = work.size / length as u64;
    if blocks == 0 {
        return Err(wrong("the region is too small"));
    }
    let began = Instant::now();
    let mut done = 0_u64;
    while began.elapsed() < work.time {
        let block = if is_random {
            numbers.next() % blocks
        } else {
            done % blocks
        };
        let at = block * length as u64;
        if is_write {
            file.write_all_at(buffer, at)?;
        } else {
            file.read_exact_at(buffer, at)?;
        }
        done += 1;
    }
    if is_write {
        file.sync_data()?;
    }
    Ok(rate(done * length as u64, began.elapsed()))
}

fn rate(bytes: u64, time: Duration) -> String {
    let nanoseconds = u128::from(bytes) * 1_000_000_000 / time.as_nanos().max(1);
    nanoseconds.to_string()
}

fn connect(address: &str, command: u8) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&[command])?;
    Ok(stream)
}

/// Bytes per second to the other end, which says when it has them all.
fn send(address: &str, time: Duration) -> io::Result<String> {
    let mut stream = connect(address, b's')?;
    let mut chunk = vec![0; CHUNK];
    Numbers::new().fill(&mut chunk);
    let began = Instant::now();
    let mut sent = 0;
    while began.elapsed() < time {
        stream.write_all(&chunk)?;
        sent += CHUNK as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    stream.read_exact(&mut [0])?;
    Ok(rate(sent, began.elapsed()))
}

/// Bytes per second from the other end.
fn receive(address: &str, time: Duration) -> io::Result<String> {
    let mut stream = connect(address, b'r')?;
    let mut chunk = vec![0; CHUNK];
    let began = Instant::now();
    let mut received = 0;
    while began.elapsed() < time {
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        received += count as u64;
    }
    Ok(rate(received, began.elapsed()))
}

/// Nanoseconds of a round trip of one byte: the median.
fn echo(address: &str, count: u64) -> io::Result<String> {
    let mut stream = connect(address, b'e')?;
    let mut times = Vec::new();
    for _ in 0..count.max(1) {
        let began = Instant::now();
        stream.write_all(&[0])?;
        stream.read_exact(&mut [0])?;
        times.push(began.elapsed().as_nanos());
    }
    times.sort_unstable();
    Ok(times[times.len() / 2].to_string())
}

/// The other end of the three above, on the host; runs until it is killed.
fn serve(address: &str) -> io::Result<String> {
    let listener = TcpListener::bind(address)?;
    say(&format!("load: {}", listener.local_addr()?.port()));
    for stream in listener.incoming() {
        let stream = stream?;
        thread::spawn(move || {
            // A guest that goes away ends its connection.
            drop(answer(stream));
        });
    }
    Ok(String::new())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut command = [0];
    stream.read_exact(&mut command)?;
    let mut chunk = vec![0; CHUNK];
    match command[0] {
        b's' => {
            while stream.read(&mut chunk)? > 0 {}
            stream.write_all(&[0])
        }
        b'r' => {
            Numbers::new().fill(&mut chunk);
            loop {
                stream.write_all(&chunk)?;
            }
        }
        _ => loop {
            stream.read_exact(&mut command)?;
            stream.write_all(&command)?;
        },
    }
}

/// Fills that much memory, and then changes that much of it in each second; with 0 it only keeps it.
fn memory(mib: u64, mib_per_second: u64) -> io::Result<String> {
    let mut numbers = Numbers::new();
    let mut parts = Vec::new();
    for _ in 0..mib.max(1) {
        let mut part = vec![0; LARGE];
        numbers.fill(&mut part);
        parts.push(part);
    }
    say("load: filled");
    let began = Instant::now();
    let mut changed: u64 = 0;
    loop {
        let due = began.elapsed().as_millis() * u128::from(mib_per_second) / 1000;
        while u128::from(changed) < due {
            let index = usize::try_from(changed % parts.len() as u64).map_err(io::Error::other)?;
            // A page is sent again whatever changed in it.
            for page in parts[index].chunks_mut(SMALL) {
                numbers.fill(&mut page[..8]);
            }
            changed += 1;
        }
        pause(Duration::from_millis(10));
    }
}

/// Prints a dot each time, so that an interruption is visible from outside.
fn tick(time: Duration) -> io::Result<String> {
    let mut out = io::stdout();
    loop {
        out.write_all(b".")?;
        out.flush()?;
        pause(time);
    }
}

/// Writes so much that has no pattern, past the cache, and waits until it is on the device.
fn write(path: &str, mib: u64) -> io::Result<String> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let mut chunk = vec![0; LARGE];
    let mut numbers = Numbers::new();
    for _ in 0..mib {
        numbers.fill(&mut chunk);
        file.write_all(&chunk)?;
    }
    file.sync_all()?;
    Ok(mib.to_string())
}

#[expect(
    clippy::disallowed_methods,
    reason = "a load has a pace; it waits for nothing"
)]
fn pause(time: Duration) {
    thread::sleep(time);
}
