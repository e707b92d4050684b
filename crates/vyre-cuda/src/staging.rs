//! Large copies between host and device go through pinned memory, piece by piece, so that the device copies one piece while the
//! host fills or empties the next.

use crate::api::{Api, CudaError, DevicePointer, Handle, Pinned};

/// Copies up to this size go straight through the driver.
pub(crate) const DIRECT: usize = 256 << 10;

const PIECE: usize = 4 << 20;
const PIECES: usize = 4;

/// Pinned memory that is made when it is first needed.
#[derive(Default)]
pub(crate) struct Staging {
    pieces: Vec<Piece>,
    next: usize,
}

struct Piece {
    memory: Pinned,
    /// Recorded behind the last copy that uses the memory.
    done: Handle,
}

impl Staging {
    fn prepare(&mut self, api: &Api) -> Result<(), CudaError> {
        while self.pieces.len() < PIECES {
            let memory = api.pin(PIECE)?;
            match api.create_event(false) {
                Ok(done) => self.pieces.push(Piece { memory, done }),
                Err(error) => {
                    memory.free(api)?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Copies to the device in order with the stream. The bytes may be reused when it returns.
    pub(crate) fn upload(
        &mut self,
        api: &Api,
        to: DevicePointer,
        bytes: &[u8],
        stream: Handle,
    ) -> Result<(), CudaError> {
        self.prepare(api)?;
        for (index, part) in bytes.chunks(PIECE).enumerate() {
            let piece = &mut self.pieces[self.next];
            self.next = (self.next + 1) % PIECES;
            api.wait_event(piece.done)?;
            piece.memory.write(part);
            api.upload_pinned(to + (index * PIECE) as u64, &piece.memory, part.len(), stream)?;
            api.record(piece.done, stream)?;
        }
        Ok(())
    }

    /// Copies from the device after the stream's earlier work, and waits for it.
    pub(crate) fn download(
        &mut self,
        api: &Api,
        bytes: &mut [u8],
        from: DevicePointer,
        stream: Handle,
    ) -> Result<(), CudaError> {
        self.prepare(api)?;
        for piece in &self.pieces {
            api.wait_event(piece.done)?;
        }
        let size = bytes.len();
        let total = size.div_ceil(PIECE);
        let mut parts = bytes.chunks_mut(PIECE);
        for step in 0..total + PIECES {
            let piece = &self.pieces[step % PIECES];
            // The piece holds what was asked for one round ago.
            if step >= PIECES
                && let Some(part) = parts.next()
            {
                api.wait_event(piece.done)?;
                piece.memory.read(part);
            }
            if step < total {
                let first = step * PIECE;
                api.download_pinned(&piece.memory, from + first as u64, PIECE.min(size - first), stream)?;
                api.record(piece.done, stream)?;
            }
        }
        Ok(())
    }
}
