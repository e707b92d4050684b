//! Bytes of files, pipes, devices and standard input, without waiting for ever and without end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use vyre::{Diagnostic, codes};

use crate::data::Place;
use crate::memory;

/// What a device such as `/dev/urandom`, which has no end, may give.
const MOST_OF_DEVICE: u64 = 256 << 20;
/// How long somebody may take to begin to write into a pipe that has a name, or to read from one.
pub(crate) const PIPE_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

/// All bytes of a place.
pub(crate) fn read(place: &Place<'_>) -> Result<Vec<u8>, Diagnostic> {
    let path = Path::new(place.path);
    let read = if place.is_standard() { until(io::stdin().lock(), room()) } else { open(path) };
    read.map_err(|error| {
        let what = if place.is_standard() { "standard input".to_owned() } else { format!("`{}`", place.path) };
        let problem = Diagnostic::new(&codes::command::CANT_READ, format!("{what} can't be read: {error}"));
        match error.kind() {
            // It is there and may be read, but nobody writes it, or it has no end, or there is no room for it.
            io::ErrorKind::Other => problem.with_fix(
                "Give something that ends, such as a part of it: `head -c 1M FILE | vyre run … --in NAME=raw:-`.",
            ),
            _ => problem,
        }
    })
}

fn room() -> u64 {
    memory::available().map_or(u64::MAX, |room| room / 2)
}

fn open(path: &Path) -> io::Result<Vec<u8>> {
    let there = std::fs::metadata(path)?;
    if there.is_file() {
        memory::room_for(there.len()).map_err(io::Error::other)?;
        return std::fs::read(path);
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if there.file_type().is_fifo() {
            return pipe(path);
        }
        if there.file_type().is_char_device() {
            return until(File::open(path)?, MOST_OF_DEVICE.min(room()));
        }
    }
    until(File::open(path)?, room())
}

/// Everything up to the end, which must come within so many bytes.
fn until(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has no end within {}", memory::size(most))));
    }
    Ok(bytes)
}

/// A pipe is opened without waiting, so that one that nobody writes into is told.
#[cfg(unix)]
fn pipe(path: &Path) -> io::Result<Vec<u8>> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let (begun, most) = (Instant::now(), room());
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let mut connected = false;
    loop {
        match file.read(&mut piece) {
            Ok(0) if connected => return Ok(bytes),
            // Nobody has opened its other end yet.
            Ok(0) if begun.elapsed() < PIPE_PATIENCE => std::thread::sleep(PAUSE),
            Ok(0) => {
                let waited = PIPE_PATIENCE.as_secs();
                return Err(io::Error::other(format!("it is a pipe, and nobody wrote into it for {waited} s")));
            }
            Ok(count) => {
                connected = true;
                bytes.extend_from_slice(&piece[..count]);
                if bytes.len() as u64 > most {
                    return Err(io::Error::other(format!("it has no end within {}", memory::size(most))));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                connected = true;
                std::thread::sleep(PAUSE);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        assert_eq!(until(&[1, 2, 3][..], 3).unwrap(), [1, 2, 3]);
        assert!(until(io::repeat(0), 1000).unwrap_err().to_string().contains("no end"));
    }
}
