//! Splits text into tokens, one at a time.

use std::borrow::Cow;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token<'s> {
    Word(&'s str),
    /// A number with its suffix, or a float by its bits.
    Number(&'s str),
    Quoted(Cow<'s, str>),
    Mark(&'static str),
    /// Something that no token starts with, or a quoted name without its end.
    Bad,
    End,
}

pub(super) struct Lexer<'s> {
    source: &'s str,
    at: usize,
    /// The last token was a dot, so digits that follow are a member's position and nothing more.
    after_dot: bool,
}

/// Longest first. `>>` is not among them: it also ends two types.
const MARKS: &[&str] = &[
    "..", "->", "<<", "<=", ">=", "==", "!=", "(", ")", "[", "]", "{", "}", ",", ";", ":", ".", "=", "<", ">", "+",
    "-", "*", "/", "%", "&", "|", "^", "!", "$", "@",
];

impl<'s> Lexer<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Lexer { source, at: 0, after_dot: false }
    }

    /// The next token and where it stands.
    pub(super) fn next(&mut self) -> (Token<'s>, usize, usize) {
        self.skip_blanks();
        let start = self.at;
        let token = self.token();
        self.after_dot = token == Token::Mark(".");
        (token, start, self.at)
    }

    fn skip_blanks(&mut self) {
        loop {
            let rest = &self.source[self.at..];
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            if !trimmed.starts_with("//") {
                return;
            }
            self.at += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    fn take_while(&mut self, test: impl Fn(u8) -> bool) {
        let bytes = self.source.as_bytes();
        while self.at < bytes.len() && test(bytes[self.at]) {
            self.at += 1;
        }
    }

    fn byte(&self, ahead: usize) -> u8 {
        self.source.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) -> Token<'s> {
        let start = self.at;
        let Some(first) = self.source[start..].chars().next() else { return Token::End };
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if first.is_ascii_alphabetic() || first == '_' {
            self.take_while(word);
            if self.byte(0) == b'#' && matches!(&self.source[start..self.at], "f16" | "f32" | "f64") {
                self.at += 1;
                self.take_while(word);
                return Token::Number(&self.source[start..self.at]);
            }
            return Token::Word(&self.source[start..self.at]);
        }
        if first.is_ascii_digit() {
            self.take_while(|byte| byte.is_ascii_digit());
            if !self.after_dot {
                if self.byte(0) == b'.' && self.byte(1).is_ascii_digit() {
                    self.at += 1;
                    self.take_while(|byte| byte.is_ascii_digit());
                }
                let sign = usize::from(matches!(self.byte(1), b'+' | b'-'));
                if self.byte(0) == b'e' && self.byte(1 + sign).is_ascii_digit() {
                    self.at += 1 + sign;
                }
                self.take_while(word);
            }
            return Token::Number(&self.source[start..self.at]);
        }
        if first == '"' {
            return self.quoted();
        }
        for mark in MARKS {
            if self.source[start..].starts_with(mark) {
                self.at += mark.len();
                return Token::Mark(mark);
            }
        }
        self.at += first.len_utf8();
        Token::Bad
    }

    fn quoted(&mut self) -> Token<'s> {
        let start = self.at + 1;
        let rest = &self.source[start..];
        if let Some(end) = rest.find(['"', '\\', '\n'])
            && rest.as_bytes()[end] == b'"'
        {
            self.at = start + end + 1;
            return Token::Quoted(Cow::Borrowed(&rest[..end]));
        }
        let mut text = String::new();
        let mut chars = rest.char_indices();
        while let Some((at, next)) = chars.next() {
            match next {
                '"' => {
                    self.at = start + at + 1;
                    return Token::Quoted(Cow::Owned(text));
                }
                '\n' => break,
                '\\' => {
                    let escaped = match chars.next() {
                        Some((_, 'n')) => Some('\n'),
                        Some((_, 'r')) => Some('\r'),
                        Some((_, 't')) => Some('\t'),
                        Some((_, '0')) => Some('\0'),
                        Some((_, mark @ ('"' | '\'' | '\\'))) => Some(mark),
                        Some((_, 'u')) if matches!(chars.next(), Some((_, '{'))) => {
                            let hex: String =
                                chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').take(8).collect();
                            u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32)
                        }
                        _ => None,
                    };
                    match escaped {
                        Some(escaped) => text.push(escaped),
                        None => break,
                    }
                }
                other => text.push(other),
            }
        }
        // To the end of the line, so that what follows is read as usual.
        self.at = start + rest.find('\n').unwrap_or(rest.len());
        Token::Bad
    }
}
