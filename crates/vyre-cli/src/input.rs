//! Bytes of files, pipes, devices and standard input, without waiting for ever and without end.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use vyre::{Diagnostic, codes};

use crate::data::Place;
use crate::memory;

/// What a device such as `/dev/urandom`, which has no end, may give.
#[cfg(unix)]
const MOST_OF_DEVICE: u64 = 256 << 20;

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
            return crate::pipe::read(path, room());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        assert_eq!(until(&[1, 2, 3][..], 3).unwrap(), [1, 2, 3]);
        assert!(until(io::repeat(0), 1000).unwrap_err().to_string().contains("no end"));
    }
}
