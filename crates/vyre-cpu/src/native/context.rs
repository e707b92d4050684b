//! What compiled code is given: a block of words whose layout the code knows.

/// Workgroups along x, y and z, three words of 32 bits.
pub(super) const GROUPS: i32 = 0;
/// Address of the word that tells loops to stop.
pub(super) const STOP: i32 = 16;
/// Address of 64 zero bytes, read where a uniform load is out of bounds.
pub(super) const ZEROS: i32 = 24;
/// Workgroup memory.
pub(super) const SHARED: i32 = 32;
/// Arrays of the invocations.
pub(super) const LOCALS: i32 = 40;
/// The helper function.
pub(super) const HELPER: i32 = 48;
/// Columns through which the helper is given operands and gives its result.
pub(super) const SCRATCH: i32 = 56;
/// For the helper: the launch it belongs to.
pub(super) const LAUNCH: i32 = 64;
/// Where values of a workgroup wait that one part of a kernel makes and another needs.
pub(super) const FRAME: i32 = 72;
/// Not zero once the code has returned because of the stop word.
pub(super) const ENDED: i32 = 80;
/// Not zero where results go past the caches.
pub(super) const STREAM: i32 = 88;
/// Not zero where buffers that are only added to are copies of the thread's own.
pub(super) const COPIES: i32 = 96;
/// Address and number of elements of each buffer.
pub(super) const BUFFERS: i32 = 128;

/// Words before the buffers.
pub(super) const HEADER_WORDS: usize = BUFFERS as usize / 8;

/// Bytes of one column of the scratch memory: 16 lanes of 64 bits.
pub(super) const COLUMN: i32 = 128;
/// Columns: three operands, then the result (four wide), then the mask.
pub(super) const RESULT: i32 = 3 * COLUMN;
/// Where the mask of the active lanes lies, a word of 32 bits.
pub(super) const MASK: i32 = 7 * COLUMN;
/// The first invocation of the piece of a workgroup that runs, a word of 32 bits.
pub(super) const FIRST: i32 = MASK + 8;
/// A subgroup's operands, the arguments that say which lanes, and its results: two columns each.
pub(super) const SUBGROUP_OPERAND: i32 = 8 * COLUMN;
pub(super) const SUBGROUP_ARGUMENT: i32 = 10 * COLUMN;
pub(super) const SUBGROUP_RESULT: i32 = 12 * COLUMN;
/// For atomics, the places of the lanes and then their values, a column for each vector of so many.
pub(super) const PLACES: i32 = 14 * COLUMN;
pub(super) const PLACED_VECTORS: usize = 16;
/// Indices of lanes, and behind them the words that they read in the next rounds of a loop.
pub(super) const TILE_INDEX: i32 = PLACES + PLACED_VECTORS as i32 * COLUMN;
pub(super) const TILES: i32 = TILE_INDEX + COLUMN;
/// Bytes of scratch memory.
pub(super) const SCRATCH_BYTES: usize = TILES as usize + (8 << 10);
