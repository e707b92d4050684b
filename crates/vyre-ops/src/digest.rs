//! Checksums and hashes of many messages at once: each row of bytes, or of words with their bytes in the order of memory, is a message.

use std::fmt::Write;

use vyre::expression::Term;
use vyre::variant::{HostSlice, Workers};
use vyre::{Array, DataType, Error};

use crate::host::{self, variant};
use crate::launch::{GROUP, MOST, engine, extents, grid, misfit, mistyped, room, runnable, with_variants};
use crate::output::Output;

const LANES: usize = 64;

/// What is made of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Digest {
    /// The CRC-32 of zlib and Ethernet, a word.
    Crc32,
    /// SHA-256, eight words; the first byte of the hash is the highest of the first.
    Sha256,
}

impl Digest {
    fn words(self) -> usize {
        match self {
            Digest::Crc32 => 1,
            Digest::Sha256 => 8,
        }
    }
}

/// Of messages along the last axis.
pub(crate) fn digest(term: &Term, kind: Digest) -> Result<Output, Error> {
    let of_bytes = matches!(term.stored(), Some((_, DataType::U8)));
    if *term.data_type() != DataType::U32 || matches!(term.stored(), Some((_, DataType::U16))) {
        return Err(mistyped(format!("messages are bytes or words, u8 or u32, not {}", term.data_type())));
    }
    let mut shape = extents(term)?;
    let Some(length) = shape.pop() else { return Err(misfit("a number is no message")) };
    let messages: usize = shape.iter().product();
    if (length * messages).max(messages * kind.words()) > MOST {
        return Err(misfit(format!("{} words are more than are taken at once, which is {MOST}", length * messages)));
    }
    let engine = engine(term)?;
    let mut out = room(&engine, &DataType::U32, messages * kind.words());
    if kind == Digest::Sha256 {
        shape.push(kind.words());
    }
    if messages > 0 {
        // Nothing is loaded where there is nothing.
        let source = match term.stored() {
            _ if length == 0 => engine.buffer(4),
            Some((bytes, DataType::U8)) => bytes.clone(),
            _ => term.evaluate()?,
        };
        let kernel = engine.kernel_from_with(&format!("{kind:?} {of_bytes}"), || {
            let (text, variants) = match kind {
                Digest::Crc32 => (crc32(of_bytes), vec![variant("crc32fast", 1, crc32_of_slices(of_bytes))]),
                Digest::Sha256 => (sha256(of_bytes), Vec::new()),
            };
            Ok((crate::launch::parsed(&text)?, with_variants(runnable(&engine, variants))))
        })?;
        let sizes = [length as u32, messages as u32];
        let call = kernel.bind("x", &source).value("sizes", &sizes).bind("out", &mut out);
        call.grid(grid(messages.div_ceil(LANES))).overwrites().launch()?;
    }
    Ok(Output { buffer: out, ty: DataType::U32, shape })
}

/// The CRC-32 of messages of bytes along the last axis, of any length.
///
/// ```
/// # fn main() -> Result<(), vyre::Error> {
/// # let engine = vyre::Engine::builder().without_disk().open()?;
/// let message = engine.array(b"123456789")?;
/// assert_eq!(vyre_ops::crc32_bytes(&message)?.to_vec()?, [0xcbf4_3926]);
/// # Ok(())
/// # }
/// ```
pub fn crc32_bytes(messages: &Array<u8>) -> Result<Array<u32>, Error> {
    digest(messages.lazy().term(), Digest::Crc32)?.typed()
}

/// The SHA-256 of messages of bytes along the last axis, of any length, as eight words each; the first byte of a hash is the highest of its
/// first word.
pub fn sha256_bytes(messages: &Array<u8>) -> Result<Array<u32>, Error> {
    digest(messages.lazy().term(), Digest::Sha256)?.typed()
}

fn begin(name: &str, memory: &str, of_bytes: bool) -> String {
    let ty = if of_bytes { "u8" } else { "u32" };
    format!(
        "read x: {ty} @0;\nread sizes: u32 @1;\noutput out: u32 @2;\n{memory}workgroup_size [{LANES}, 1, 1];\nentry {name} {{\n{GROUP}\
         let l = local_index;\nlet own = group * {LANES} + l;\nlet length = sizes[0];\nlet start = own * length;\n"
    )
}

/// Four bytes at a time, each by a table of its own, which the workgroup makes.
fn crc32(of_bytes: bool) -> String {
    let mut text = begin("crc32", "workgroup table: u32[1024] @0;\n", of_bytes);
    let _ = write!(text, "for byte in l..256 step {LANES} {{\nvar c: u32 = byte;\n");
    for _ in 0..8 {
        text.push_str("c = (c >> 1) ^ select((c & 1) == 1, 3988292384, 0);\n");
    }
    text.push_str("table[byte] = c;\n}\nbarrier;\n");
    for part in 1..4 {
        let _ = write!(
            text,
            "for byte in l..256 step {LANES} {{\nlet before = table[byte + {}];\ntable[byte + {}] = (before >> 8) ^ table[before & 255];\n}}\nbarrier;\n",
            256 * (part - 1),
            256 * part
        );
    }
    let (words, word, rest) = match of_bytes {
        false => ("length", "x[start + at]", ""),
        true => (
            "length / 4",
            "(x[start + at * 4] | (x[start + at * 4 + 1] << 8) | (x[start + at * 4 + 2] << 16) | (x[start + at * 4 + 3] << 24))",
            "for at in length / 4 * 4..length {\nc = table[(c ^ x[start + at]) & 255] ^ (c >> 8);\n}\n",
        ),
    };
    let _ = write!(
        text,
        "if own < sizes[1] {{\nvar c: u32 = 4294967295;\nfor at in 0..{words} {{\nlet word = c ^ {word};\n\
         c = table[768 + (word & 255)] ^ table[512 + ((word >> 8) & 255)] ^ table[256 + ((word >> 16) & 255)] ^ table[word >> 24];\n}}\n\
         {rest}out[own] = c ^ 4294967295;\n}}\n}}\n"
    );
    text
}

/// The same on the processor, which multiplies polynomials.
fn crc32_of_slices(of_bytes: bool) -> impl Fn(&mut [HostSlice<'_>], &dyn Workers) + Send + Sync + 'static {
    move |buffers, workers| {
        let [x, sizes, out] = buffers else { return };
        let (x, mut sizes) = (x.bytes(), host::words(sizes.bytes()).map(|size| size as usize));
        let (Some(length), Some(messages)) = (sizes.next(), sizes.next()) else { return };
        let length = if of_bytes { length } else { length * 4 };
        host::fill(out, x.len(), workers, |first, words| {
            for (message, word) in (first..messages).zip(words) {
                *word = crc32fast::hash(&x[message * length..(message + 1) * length]).to_le_bytes();
            }
        });
    }
}

/// A word of a block of bytes, the first byte the highest; behind the last byte stands one bit.
fn word_of_bytes(at: usize) -> String {
    let byte = |place: usize| {
        let place = format!("block * 64 + {}", at * 4 + place);
        format!("select({place} < length, x[start + {place}], select({place} == length, 128, 0))")
    };
    format!("({} << 24) | ({} << 16) | ({} << 8) | {}", byte(0), byte(1), byte(2), byte(3))
}

fn sha256(of_bytes: bool) -> String {
    let mut text = begin("sha256", "", of_bytes);
    text.push_str("if own < sizes[1] {\n");
    for (at, first) in fractions(2).iter().take(8).enumerate() {
        let _ = writeln!(text, "var h{at}: u32 = {first};");
    }
    // A bit and the length in bits stand behind the message; all of it is a number of blocks of 16 words.
    text.push_str(match of_bytes {
        true => "let blocks = (length + 8) / 64 + 1;\nfor block in 0..blocks {\n",
        false => "let blocks = length / 16 + select(length % 16 > 13, 2, 1);\nfor block in 0..blocks {\n",
    });
    for at in 0..16 {
        if of_bytes {
            let end = match at {
                14 => " | select(block + 1 == blocks, length >> 29, 0)",
                15 => " | select(block + 1 == blocks, length << 3, 0)",
                _ => "",
            };
            let _ = writeln!(text, "let w{at} = {}{end};", word_of_bytes(at));
            continue;
        }
        let _ = write!(
            text,
            "let at{at} = block * 16 + {at};\nlet given{at} = select(at{at} < length, x[start + at{at}], 0);\n\
             let turned{at} = ({}) & 16711935 | ({}) & 4278255360;\n",
            left(&format!("given{at}"), 8),
            left(&format!("given{at}"), 24)
        );
        let end = match at {
            14 => "select(block + 1 == blocks, length >> 27, 0)",
            15 => "select(block + 1 == blocks, length << 5, 0)",
            _ => "0",
        };
        let _ = writeln!(text, "let w{at} = turned{at} | select(at{at} == length, 2147483648, {end});");
    }
    for at in 16..64 {
        let (early, late) = (format!("w{}", at - 15), format!("w{}", at - 2));
        let _ = writeln!(
            text,
            "let w{at} = w{} + (({}) ^ ({}) ^ ({early} >> 3)) + w{} + (({}) ^ ({}) ^ ({late} >> 10));",
            at - 16,
            right(&early, 7),
            right(&early, 18),
            at - 7,
            right(&late, 17),
            right(&late, 19)
        );
    }
    let mut state: Vec<String> = (0..8).map(|at| format!("h{at}")).collect();
    for (at, constant) in fractions(3).iter().enumerate() {
        let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|at: usize| state[at].clone());
        let _ = write!(
            text,
            "let t{at} = {h} + (({}) ^ ({}) ^ ({})) + ({e} & {f} ^ (({e} ^ 4294967295) & {g})) + {constant} + w{at};\nlet e{at} = {d} + t{at};\n\
             let a{at} = t{at} + (({}) ^ ({}) ^ ({})) + ({a} & {b} ^ {a} & {c} ^ {b} & {c});\n",
            right(&e, 6),
            right(&e, 11),
            right(&e, 25),
            right(&a, 2),
            right(&a, 13),
            right(&a, 22)
        );
        state = vec![format!("a{at}"), a, b, c, format!("e{at}"), e, f, g];
    }
    for (at, last) in state.iter().enumerate() {
        let _ = writeln!(text, "let last{at} = h{at} + {last};");
    }
    for at in 0..8 {
        let _ = writeln!(text, "h{at} = last{at};");
    }
    text.push_str("}\n");
    for at in 0..8 {
        let _ = writeln!(text, "out[own * 8 + {at}] = h{at};");
    }
    text.push_str("}\n}\n");
    text
}

fn left(value: &str, by: u32) -> String {
    format!("({value} << {by}) | ({value} >> {})", 32 - by)
}

fn right(value: &str, by: u32) -> String {
    left(value, 32 - by)
}

/// The first 32 bits behind the point of the square or cube roots of the first 64 primes.
fn fractions(root: u32) -> Vec<u32> {
    let is_prime = |n: &u128| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    let root_of = |prime: u128| {
        // The largest number whose power is not above the prime times 2³² to that power.
        let scaled = prime << (32 * root);
        let mut found = 0u128;
        for bit in (0..37).rev() {
            let more = found | 1 << bit;
            if more.pow(root) <= scaled {
                found = more;
            }
        }
        found as u32
    };
    (2u128..).filter(is_prime).take(64).map(root_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_slices_are_those_of_single_bits() {
        let plain = |message: &[u8]| {
            let bit = |c: u32| (c >> 1) ^ (0xedb8_8320 & (c & 1).wrapping_neg());
            !message.iter().fold(!0u32, |c, &byte| (0..8).fold(c ^ u32::from(byte), |c, _| bit(c)))
        };
        for (length, messages) in [(0usize, 3usize), (1, 1), (9, 5), (64, 2), (333, 7), (4096, 300)] {
            let x: Vec<u8> = (0..(length * messages).max(4)).map(|at| (at * at / 7) as u8).collect();
            let sizes: Vec<u8> = [length as u32, messages as u32].into_iter().flat_map(u32::to_le_bytes).collect();
            let mut out = vec![0; 4 * messages];
            let slices = [HostSlice::Read(&x), HostSlice::Read(&sizes), HostSlice::Write(&mut out)];
            crc32_of_slices(true)(&mut { slices }, &crate::host::Several(2));
            let expected: Vec<u32> = (0..messages).map(|at| plain(&x[at * length..(at + 1) * length])).collect();
            assert_eq!(host::words(&out).collect::<Vec<_>>(), expected, "{messages} of {length}");
        }
    }
}
