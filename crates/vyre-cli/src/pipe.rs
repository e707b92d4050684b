//! Pipes that have a name. They are opened without waiting, so that one at whose other end nobody is gets told.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::memory;

/// How long somebody may take to open the other end.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(2);

fn without_waiting() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits() as i32
}

/// All that is written into a pipe, up to so many bytes.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(without_waiting()).open(path)?;
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let mut piece = vec![0; 1 << 16];
    let mut connected = false;
    loop {
        match file.read(&mut piece) {
            Ok(0) if connected => return Ok(bytes),
            // Nobody has opened its other end yet.
            Ok(0) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            Ok(0) => {
                let waited = PATIENCE.as_secs();
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

/// Gives all bytes to whoever reads from a pipe.
pub(crate) fn write(path: &Path, mut bytes: &[u8]) -> io::Result<()> {
    let begun = Instant::now();
    let mut file = loop {
        match OpenOptions::new().write(true).custom_flags(without_waiting()).open(path) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                if begun.elapsed() > PATIENCE {
                    let waited = PATIENCE.as_secs();
                    return Err(io::Error::other(format!("it is a pipe, and nobody read from it for {waited} s")));
                }
                std::thread::sleep(PAUSE);
            }
            opened => break opened?,
        }
    };
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
