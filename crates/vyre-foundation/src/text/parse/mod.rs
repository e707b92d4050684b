mod expr;
mod statement;
mod types;

use std::collections::{HashMap, HashSet};

use vyre_spec::codes::{self, Code};
use vyre_spec::{Diagnostic, SourceLocation};

use super::lex::{Lexer, Token};

use super::{Scope, is_reserved};
use crate::ir::{BufferDecl, BufferKind, Count, Function, Math, Name, Param, Parts, Program, SpecConstant, TypeDef};
use crate::wire;

/// The most bytes of text that [`parse`] reads.
pub const MAX_BYTES: usize = 16 << 20;
/// After so many problems the rest of the text is not read.
const MOST_PROBLEMS: usize = 20;
/// How deep braces may nest.
const MAX_BRACES: u32 = wire::MAX_DEPTH;
/// How deep parentheses and operators may nest. An expression level takes two at most: itself and its parentheses.
const MAX_NESTING: u32 = 2 * wire::MAX_DEPTH + 8;

/// The program of a text, or what is wrong with it, with places in the text.
pub fn parse(source: &str) -> Result<Program, Vec<Diagnostic>> {
    if source.len() > MAX_BYTES {
        let message = format!("the text has {} bytes, and the limit is {MAX_BYTES}", source.len());
        return Err(vec![Diagnostic::new(&codes::text::TEXT_LIMIT, message)]);
    }
    let mut lexer = Lexer::new(source);
    let ahead = [lexer.next(), lexer.next()];
    let mut parser = Parser {
        source,
        lexer,
        ahead,
        problems: Vec::new(),
        parts: Parts::default(),
        constants: HashSet::new(),
        structs: HashMap::new(),
        members: HashMap::new(),
        buffers: HashMap::new(),
        scope: Scope::default(),
        in_body: false,
        nesting: 0,
        braces: 0,
        items: 0,
        stopped: false,
    };
    parser.program();
    if parser.problems.is_empty() { Ok(Program::from_parts(parser.parts)) } else { Err(parser.problems) }
}

/// A problem was reported; whoever can, goes on after the statement.
struct Reported;
type Parsed<T> = Result<T, Reported>;

struct Parser<'s> {
    source: &'s str,
    lexer: Lexer<'s>,
    ahead: [(Token<'s>, usize, usize); 2],
    problems: Vec<Diagnostic>,
    parts: Parts,
    constants: HashSet<Name>,
    /// The first struct of each name, and the first member of each name in each struct.
    structs: HashMap<Name, u32>,
    members: HashMap<(u32, Name), u32>,
    /// The first buffer of each name.
    buffers: HashMap<Name, usize>,
    scope: Scope,
    /// Bodies come last; only they know the types of buffers.
    in_body: bool,
    nesting: u32,
    braces: u32,
    items: u32,
    /// Nothing more is reported or read.
    stopped: bool,
}

impl<'s> Parser<'s> {
    fn peek(&self) -> &Token<'s> {
        &self.ahead[0].0
    }

    fn second(&self) -> &Token<'s> {
        &self.ahead[1].0
    }

    fn next(&mut self) -> Token<'s> {
        let after = if self.stopped { (Token::End, self.source.len(), self.source.len()) } else { self.lexer.next() };
        let [first, second] = std::mem::replace(&mut self.ahead, [(Token::End, 0, 0), after]);
        self.ahead[0] = second;
        first.0
    }

    fn problem_at<T>(&mut self, code: Code, message: String, start: usize, end: usize) -> Parsed<T> {
        if !self.stopped {
            let place = SourceLocation::in_text(None, self.source, start, end);
            self.problems.push(Diagnostic::new(code, message).with_source(place));
            if self.problems.len() >= MOST_PROBLEMS {
                self.stop();
            }
        }
        Err(Reported)
    }

    fn stop(&mut self) {
        self.stopped = true;
        let end = self.source.len();
        self.ahead = [(Token::End, end, end), (Token::End, end, end)];
    }

    /// Reports the token in front.
    fn problem<T>(&mut self, code: Code, message: impl Into<String>) -> Parsed<T> {
        let (_, start, end) = self.ahead[0];
        self.problem_at(code, message.into(), start, end)
    }

    fn expected<T>(&mut self, what: &str) -> Parsed<T> {
        let found = match self.peek() {
            Token::Word(text) | Token::Number(text) => format!("`{text}`"),
            Token::Quoted(text) => format!("the name {text:?}"),
            Token::Mark(mark) => format!("`{mark}`"),
            Token::Bad => "something that can't be read".to_owned(),
            Token::End => "the end of the text".to_owned(),
        };
        self.problem(&codes::text::TEXT_SYNTAX, format!("{what} is expected here, not {found}"))
    }

    fn is_mark(&self, mark: &str) -> bool {
        matches!(self.peek(), Token::Mark(found) if *found == mark)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if *found == word)
    }

    /// Takes the mark if it is there.
    fn eat(&mut self, mark: &str) -> bool {
        let there = self.is_mark(mark);
        if there {
            self.next();
        }
        there
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let there = self.is_word(word);
        if there {
            self.next();
        }
        there
    }

    fn mark(&mut self, mark: &str) -> Parsed<()> {
        if self.eat(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        if self.eat_word(word) { Ok(()) } else { self.expected(&format!("`{word}`")) }
    }

    fn item(&mut self) -> Parsed<()> {
        self.items += 1;
        if self.items > wire::MAX_ITEMS {
            let result =
                self.problem(&codes::text::TEXT_LIMIT, format!("the program has more than {} items", wire::MAX_ITEMS));
            self.stop();
            return result;
        }
        Ok(())
    }

    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.nesting >= MAX_NESTING {
            return self.too_deep();
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    fn too_deep<T>(&mut self) -> Parsed<T> {
        let result = self.problem(&codes::text::TEXT_LIMIT, "the text nests too deep here");
        self.stop();
        result
    }

    fn is_name(&self) -> bool {
        match self.peek() {
            Token::Quoted(_) => true,
            Token::Word(word) => !is_reserved(word),
            _ => false,
        }
    }

    fn name(&mut self) -> Parsed<Name> {
        match self.peek() {
            Token::Word(word) if is_reserved(word) => {
                let message = format!("`{word}` is a word of the language; as a name it stands in quotes");
                self.problem(&codes::text::TEXT_SYNTAX, message)
            }
            Token::Word(_) | Token::Quoted(_) => match self.next() {
                Token::Word(word) => Ok(word.into()),
                Token::Quoted(name) => Ok((&*name).into()),
                _ => Err(Reported),
            },
            _ => self.expected("a name"),
        }
    }

    /// A plain number without suffix.
    fn number<T: std::str::FromStr>(&mut self) -> Parsed<T> {
        match self.peek() {
            Token::Number(text) => match text.parse() {
                Ok(number) => {
                    self.next();
                    Ok(number)
                }
                Err(_) => {
                    let message = format!("`{text}` is no whole number that fits here");
                    self.problem(&codes::text::TEXT_NUMBER, message)
                }
            },
            _ => self.expected("a number"),
        }
    }

    fn program(&mut self) {
        let (mut sized, mut entered) = (false, false);
        while *self.peek() != Token::End {
            if self.top_level(&mut sized, &mut entered).is_err() {
                self.recover(true);
            }
        }
        for (there, what) in [(sized, "workgroup_size"), (entered, "entry")] {
            if !there && self.problems.is_empty() {
                let _: Parsed<()> = self.problem(&codes::text::TEXT_SYNTAX, format!("the program has no `{what}`"));
            }
        }
    }

    /// Skips to the end of a broken statement or declaration.
    fn recover(&mut self, top_level: bool) {
        let mut depth = 0u32;
        loop {
            match self.peek() {
                Token::End => return,
                Token::Mark("{") => depth += 1,
                Token::Mark("}") if depth == 0 && !top_level => return,
                Token::Mark("}") => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        self.next();
                        self.eat(";");
                        return;
                    }
                }
                Token::Mark(";") if depth == 0 => {
                    self.next();
                    return;
                }
                _ => {}
            }
            self.next();
        }
    }

    fn once(&mut self, seen: &mut bool) -> Parsed<()> {
        if std::mem::replace(seen, true) {
            return self.problem(&codes::text::TEXT_SYNTAX, "this stands in the program already".to_owned());
        }
        Ok(())
    }

    fn top_level(&mut self, sized: &mut bool, entered: &mut bool) -> Parsed<()> {
        self.item()?;
        let kinds =
            [BufferKind::Read, BufferKind::ReadWrite, BufferKind::Output, BufferKind::Uniform, BufferKind::Workgroup];
        let word = match self.peek() {
            Token::Word(word) => *word,
            _ => return self.expected("a declaration"),
        };
        if self.in_body && !matches!(word, "fn" | "entry") {
            return self
                .problem(&codes::text::TEXT_SYNTAX, "declarations stand before functions and `entry`".to_owned());
        }
        if let Some(kind) = kinds.into_iter().find(|kind| kind.name() == word) {
            self.next();
            let buffer = self.buffer(kind)?;
            self.buffers.entry(buffer.name.clone()).or_insert(self.parts.buffers.len());
            self.parts.buffers.push(buffer);
            return Ok(());
        }
        match word {
            "override" => {
                self.next();
                let name = self.name()?;
                self.mark("=")?;
                let default = self.literal()?;
                self.mark(";")?;
                self.constants.insert(name.clone());
                self.parts.constants.push(SpecConstant { name, default });
            }
            "type" => {
                self.next();
                let def = self.type_def()?;
                let id = self.parts.types.len() as u32;
                if let TypeDef::Struct { name, members, .. } = &def {
                    self.structs.entry(name.clone()).or_insert(id);
                    for (at, member) in members.iter().enumerate() {
                        self.members.entry((id, member.name.clone())).or_insert(at as u32);
                    }
                }
                self.parts.types.push(def);
            }
            "workgroup_size" => {
                self.once(sized)?;
                self.next();
                self.mark("[")?;
                for axis in 0..3 {
                    if axis > 0 {
                        self.mark(",")?;
                    }
                    self.parts.workgroup_size[axis] = self.number()?;
                }
                self.mark("]")?;
                self.mark(";")?;
            }
            "workgroup_exprs" => {
                self.next();
                self.parts.workgroup_exprs =
                    self.axes(|this| if this.eat_word("_") { Ok(None) } else { this.expr(0).map(Some) })?;
            }
            "domain" => {
                self.next();
                self.parts.domain = Some(self.axes(|this| this.expr(0))?);
            }
            "math" => {
                self.next();
                let math = match self.peek() {
                    Token::Word(word) => Math::named(word),
                    _ => None,
                };
                let Some(math) = math else { return self.expected("`exact` or `fast`") };
                self.next();
                self.mark(";")?;
                self.parts.math = math;
            }
            "fn" => {
                self.next();
                self.in_body = true;
                let function = self.function();
                self.scope = Scope::default();
                self.parts.functions.push(function?);
            }
            "entry" => {
                self.once(entered)?;
                self.next();
                self.in_body = true;
                let name = self.name()?;
                self.parts.name = Some(name).filter(|name| *name != "main");
                let body = self.list();
                self.scope = Scope::default();
                self.parts.body = body?;
            }
            _ => return self.expected("a declaration"),
        }
        Ok(())
    }

    fn axes<T>(&mut self, mut one: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<[T; 3]> {
        self.mark("[")?;
        let x = one(self)?;
        self.mark(",")?;
        let y = one(self)?;
        self.mark(",")?;
        let z = one(self)?;
        self.mark("]")?;
        self.mark(";")?;
        Ok([x, y, z])
    }

    /// A count in brackets or after a comma: a bare number is fixed.
    fn count(&mut self, end: &str) -> Parsed<Count> {
        if let (Token::Number(text), Token::Mark(mark)) = (self.peek(), self.second())
            && *mark == end
            && let Ok(count) = text.parse()
        {
            self.next();
            return Ok(Count::Fixed(count));
        }
        // Inside `array<…>` a bare `>` ends the type, so nothing that binds less is read.
        let least = if end == ">" { 2 } else { 0 };
        Ok(Count::Constant(Box::new(self.expr(least)?)))
    }

    fn buffer(&mut self, kind: BufferKind) -> Parsed<BufferDecl> {
        let name = self.name()?;
        self.mark(":")?;
        let ty = self.ty()?;
        let mut count = Count::Runtime;
        if self.eat("[") {
            count = self.count("]")?;
            self.mark("]")?;
        }
        self.mark("@")?;
        let mut group = 0;
        let mut binding = self.number()?;
        if self.eat(":") {
            group = binding;
            binding = self.number()?;
        }
        self.mark(";")?;
        Ok(BufferDecl { name, group, binding, kind, ty, count })
    }

    fn function(&mut self) -> Parsed<Function> {
        let name = self.name()?;
        self.scope.open();
        self.mark("(")?;
        let mut params = Vec::new();
        while !self.is_mark(")") {
            self.item()?;
            let name = self.name()?;
            self.mark(":")?;
            let ty = self.ty()?;
            self.scope.declare(&name, Some(&ty));
            params.push(Param { name, ty });
            if !self.eat(",") {
                break;
            }
        }
        self.mark(")")?;
        let result = if self.eat("->") { Some(self.ty()?) } else { None };
        let body = self.list()?;
        Ok(Function { name, params, result, body })
    }
}
