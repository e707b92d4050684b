//! Refuses sources whose size or nesting would cost naga's recursive descent unbounded memory, before naga sees them.

use vyre_spec::{Diagnostic, codes};

use super::SourceText;

const MAX_BYTES: usize = 4 << 20;
/// naga's parser gives up at 200 levels of its own recursion; this keeps the message ours.
const MAX_NESTING: usize = 120;
/// Operators in one expression without brackets: each is a level of recursion in naga's lowering.
const MAX_CHAIN: u32 = 2000;
/// Names and numbers in one function or declaration: for each, naga goes over all that it has seen in the function before.
const MAX_WORDS: u32 = 50_000;

/// Sources up to so many open brackets, and operators in the expressions around them, are handled on the caller's stack: that
/// takes some hundred kilobytes.
const SHALLOW_NESTING: usize = 16;
const SHALLOW_CHAIN: u32 = 6 * SHALLOW_NESTING as u32;

/// How deep the front end's recursion will go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Shallow,
    Deep,
}

pub(super) fn check_text(text: &SourceText<'_>, source: &str) -> Result<Depth, Diagnostic> {
    if source.len() > MAX_BYTES {
        return Err(too_large(format!("the source has {} bytes; at most {MAX_BYTES} are accepted", source.len())));
    }
    let levels = vec![Level::default()];
    Scan { text, source, at: 0, levels, words: 0, after_block: false, depth: Depth::Shallow }.run()
}

pub(super) fn check_binary(bytes: &[u8]) -> Result<(), Diagnostic> {
    if bytes.len() > MAX_BYTES {
        return Err(too_large(format!("the module has {} bytes; at most {MAX_BYTES} are accepted", bytes.len())));
    }
    // A zero word count would keep naga's reader in place for ever.
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    let bad = |what: &str| Err(Diagnostic::new(&codes::wgsl::SPIRV_PARSE, what.to_owned()));
    if !bytes.len().is_multiple_of(4) || words.len() < 5 {
        return bad("a SPIR-V module is a sequence of at least five 32-bit words");
    }
    if words[0] != 0x0723_0203 {
        return bad("the first word is not the SPIR-V magic number 0x07230203");
    }
    let mut at = 5;
    while at < words.len() {
        let length = (words[at] >> 16) as usize;
        if length == 0 || length > words.len() - at {
            return bad(&format!("the instruction at word {at} has the impossible length {length}"));
        }
        at += length;
    }
    Ok(())
}

const BLANK: u8 = 1;
const WORD: u8 = 2;
const DOT: u8 = 4;

/// What each byte is: a blank, a part of a name or number, or a point within one.
const KINDS: [u8; 256] = {
    let mut kinds = [0; 256];
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        if byte.is_ascii_whitespace() {
            kinds[i] = BLANK;
        } else if byte == b'_' || byte.is_ascii_alphanumeric() || byte >= 0x80 {
            kinds[i] = WORD;
        } else if byte == b'.' {
            kinds[i] = DOT;
        }
        i += 1;
    }
    kinds
};

fn is(byte: u8, kinds: u8) -> bool {
    KINDS[usize::from(byte)] & kinds != 0
}

fn too_large(message: String) -> Diagnostic {
    Diagnostic::new(&codes::wgsl::WGSL_TOO_LARGE, message)
}

/// What is open at one bracket level.
#[derive(Default)]
struct Level {
    /// Operators since the expression began.
    chain: u32,
    /// `else` after `else`.
    elses: u32,
}

struct Scan<'a> {
    text: &'a SourceText<'a>,
    source: &'a str,
    at: usize,
    levels: Vec<Level>,
    /// Names and numbers since the function or declaration began.
    words: u32,
    /// The last token closed a block.
    after_block: bool,
    depth: Depth,
}

impl Scan<'_> {
    fn run(mut self) -> Result<Depth, Diagnostic> {
        let bytes = self.source.as_bytes();
        while self.at < bytes.len() {
            let start = self.at;
            let byte = bytes[start];
            self.at += 1;
            if is(byte, BLANK) {
                continue;
            }
            if byte == b'/' && matches!(bytes.get(self.at), Some(b'/' | b'*')) {
                self.skip_comment();
                continue;
            }
            let word = is(byte, WORD);
            if word {
                let rest = &bytes[self.at..];
                self.at += rest.iter().position(|&b| !is(b, WORD | DOT)).unwrap_or(rest.len());
            }
            self.words += u32::from(word);
            if self.words > MAX_WORDS {
                let message = format!("a function has more than {MAX_WORDS} names and numbers");
                let fix = "Move parts of it into functions of their own, or its numbers into a buffer.";
                return Err(self.problem(start, message).with_fix(fix));
            }
            if self.levels.len() == 1 && byte == b';' {
                self.words = 0;
            }
            let is_else = byte == b'e' && &bytes[start..self.at] == b"else";
            let after_block = std::mem::replace(&mut self.after_block, byte == b'}');
            let depth = self.levels.len();
            let Some(level) = self.levels.last_mut() else { continue };
            if after_block && !is_else {
                level.elses = 0;
            }
            match byte {
                b'(' | b'[' | b'{' => {
                    // A call or index chain such as `f(…)[…]` is one level of recursion a link, like an operator.
                    level.chain += 1;
                    self.levels.push(Level::default());
                    if depth > SHALLOW_NESTING {
                        self.depth = Depth::Deep;
                    }
                    if depth >= MAX_NESTING {
                        return Err(self.problem(start, format!("brackets are nested more than {MAX_NESTING} deep")));
                    }
                }
                b')' | b']' => {
                    if depth > 1 {
                        self.levels.pop();
                    }
                }
                b'}' => {
                    if depth > 1 {
                        self.levels.pop();
                    }
                    if depth == 2 {
                        self.words = 0;
                    }
                    if let Some(level) = self.levels.last_mut() {
                        level.chain = 0;
                    }
                }
                b';' | b',' => level.chain = 0,
                _ if is_else => level.elses += 1,
                _ if word => {}
                _ => level.chain += 1,
            }
            // Where no level has more than six, they can't be too many together.
            if self.depth == Depth::Shallow && self.levels.last().is_some_and(|level| level.chain + level.elses > 6) {
                let open: u32 = self.levels.iter().map(|level| level.chain + level.elses).sum();
                if open > SHALLOW_CHAIN {
                    self.depth = Depth::Deep;
                }
            }
            if let Some(level) = self.levels.last()
                && (level.chain > MAX_CHAIN || level.elses > MAX_CHAIN)
            {
                let what =
                    if level.chain > MAX_CHAIN { "operators in one expression" } else { "`else` branches in a row" };
                return Err(self.problem(start, format!("there are more than {MAX_CHAIN} {what}")));
            }
        }
        Ok(self.depth)
    }

    fn problem(&self, start: usize, message: String) -> Diagnostic {
        self.text.mark_range(too_large(message), self.source, start, start + 1)
    }

    /// Stands after the first `/`. Block comments nest in WGSL.
    fn skip_comment(&mut self) {
        let bytes = self.source.as_bytes();
        if bytes[self.at] == b'/' {
            self.at = bytes[self.at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| self.at + n);
            return;
        }
        self.at += 1;
        let mut depth = 1;
        while depth > 0 && self.at < bytes.len() {
            match (bytes[self.at], bytes.get(self.at + 1)) {
                (b'/', Some(b'*')) => (depth, self.at) = (depth + 1, self.at + 2),
                (b'*', Some(b'/')) => (depth, self.at) = (depth - 1, self.at + 2),
                _ => self.at += 1,
            }
        }
    }
}
