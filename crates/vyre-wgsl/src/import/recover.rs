//! More than one problem at a time. naga stops at its first; here the statement that holds it is blanked out and the rest is looked at
//! again, so that places in the source stay where they are.

use std::collections::HashSet;
use std::ops::Range;

use vyre_spec::Diagnostic;

/// Problems that are shown at most, of small and of large sources.
const MOST: usize = 20;
const MOST_OF_LARGE: usize = 3;
const LARGE: usize = 64 << 10;

/// A problem with the place where it is.
pub(crate) type Problem = (Diagnostic, Option<Range<usize>>);

/// The first problem and those that are left when the statement with the problem is gone. What only follows from that (a name that it
/// declared, a value that it returned) is left out.
pub(super) fn all(source: &str, first: Problem, look: impl Fn(&str) -> Result<(), Vec<Problem>>) -> Vec<Diagnostic> {
    let most = if source.len() > LARGE { MOST_OF_LARGE } else { MOST };
    let mut text = without_comments(source);
    let mut gone = Gone::default();
    let mut found = Vec::new();
    let mut next = Some(first);
    // Problems that follow from others count as rounds too, so that there is an end.
    for _ in 0..2 * most {
        let Some((diagnostic, place)) = next.take() else { break };
        let follows = gone.explains(&diagnostic, place.clone().and_then(|place| source.get(place)));
        if !follows {
            found.push(diagnostic);
        }
        let Some(place) = place.filter(|_| found.len() < most) else { break };
        let statement = statement_around(&text, place);
        if text[statement.clone()].iter().all(u8::is_ascii_whitespace) {
            break;
        }
        gone.add(&text[statement.clone()]);
        for byte in &mut text[statement] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        let Ok(rest) = std::str::from_utf8(&text) else { break };
        next = look(rest).err().and_then(|problems| problems.into_iter().next());
    }
    found
}

/// What the blanked statements declared and did.
#[derive(Default)]
struct Gone {
    names: HashSet<String>,
    returned: bool,
}

impl Gone {
    fn add(&mut self, statement: &[u8]) {
        let text = String::from_utf8_lossy(statement);
        let mut declares = false;
        let mut angle = 0usize;
        for word in words(&text) {
            match word {
                "let" | "var" | "const" | "override" | "fn" | "struct" | "alias" => declares = true,
                "return" => self.returned = true,
                // `var<storage, read> name`
                "<" => angle += 1,
                ">" => angle = angle.saturating_sub(1),
                name if declares && angle == 0 && name.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                    self.names.insert(name.to_owned());
                    declares = false;
                }
                _ => {}
            }
        }
    }

    fn explains(&self, diagnostic: &Diagnostic, place: Option<&str>) -> bool {
        place.is_some_and(|name| self.names.contains(name.trim()))
            || self.names.iter().any(|name| diagnostic.message.contains(&format!("`{name}`")))
            || (self.returned && diagnostic.message.contains("return"))
    }
}

/// Words, and every other character by itself.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let end = if is_word(first) { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

/// The source with blanks for its comments.
fn without_comments(source: &str) -> Vec<u8> {
    let mut text = source.as_bytes().to_vec();
    let mut at = 0;
    while at + 1 < text.len() {
        let start = at;
        match [text[at], text[at + 1]] {
            [b'/', b'/'] => {
                while at < text.len() && text[at] != b'\n' {
                    at += 1;
                }
            }
            [b'/', b'*'] => {
                let mut depth = 0;
                while at < text.len() {
                    match text.get(at..at + 2) {
                        Some(b"/*") => (depth, at) = (depth + 1, at + 2),
                        Some(b"*/") => (depth, at) = (depth - 1, at + 2),
                        _ => at += 1,
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => at += 1,
        }
        if at > start + 1 {
            // Marks that the importer reads in comments only decide kinds of buffers, which nobody asks for here.
            text[start..at].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        }
    }
    text
}

/// The statement, clause or declaration around a place: back to the `;`, `{` or `}` before it, on to the `;` or the end of the block after
/// it, which stay.
fn statement_around(text: &[u8], place: Range<usize>) -> Range<usize> {
    let mut start = place.start.min(text.len());
    let (mut closed, mut open) = (0usize, 0usize);
    while start > 0 {
        match text[start - 1] {
            b')' => closed += 1,
            b'(' if closed > 0 => closed -= 1,
            b'(' => open += 1,
            b';' | b'{' | b'}' if closed == 0 => break,
            _ => {}
        }
        start -= 1;
    }
    let mut end = place.start.min(text.len());
    let mut braces = 0usize;
    while end < text.len() {
        match text[end] {
            b'(' if braces == 0 => open += 1,
            b')' if braces == 0 && open == 0 => break,
            b')' if braces == 0 => open -= 1,
            b';' if braces == 0 && open == 0 => break,
            b'{' => braces += 1,
            b'}' if braces == 0 => break,
            b'}' => {
                braces -= 1;
                let after = text[end + 1..].trim_ascii_start();
                if braces == 0 && !after.starts_with(b"else") {
                    end += 1;
                    break;
                }
            }
            _ => {}
        }
        end += 1;
    }
    start..end.max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &str, word: &str) -> String {
        let at = text.find(word).unwrap();
        String::from_utf8(text.as_bytes()[statement_around(text.as_bytes(), at..at + word.len())].to_vec()).unwrap()
    }

    #[test]
    fn statements_end_where_they_should() {
        let text = "fn f() { let a = (1 + bad); for (var i = 0; wrong; i++) { a(x[i]); } if (no) { b(); } else { c(); } d(); }";
        assert_eq!(statement(text, "bad").trim(), "let a = (1 + bad)");
        assert_eq!(statement(text, "wrong").trim(), "wrong");
        assert_eq!(statement(text, "x[i]").trim(), "a(x[i])");
        assert_eq!(statement(text, "no").trim(), "if (no) { b(); } else { c(); }");
        assert_eq!(statement(text, "d()").trim(), "d()");
        assert!(statement(text, "f()").ends_with("d(); }"));
    }

    #[test]
    fn comments_are_blank_and_places_stay() {
        let text = "a /* b /* c */ d */ e // f\ng / h";
        let blank = without_comments(text);
        assert_eq!(blank.len(), text.len());
        let left: Vec<_> = std::str::from_utf8(&blank).unwrap().split_whitespace().collect();
        assert_eq!(left, ["a", "e", "g", "/", "h"]);
        assert_eq!(without_comments("/* never ends").trim_ascii(), b"");
    }
}
