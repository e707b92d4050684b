use std::collections::HashSet;

use smallvec::SmallVec;
use vyre_spec::codes::{self, Code};
use vyre_spec::{Diagnostic, SourceLocation};

use super::lex::{Lexer, Token};
use super::print::precedence;
use super::{LANES, Scope, TYPE_WORDS, is_reserved, type_name};
use crate::ir::typing::step;
use crate::ir::{
    Access, AtomicOp, BarrierScope, BinaryOp, BufferDecl, BufferKind, Builtin, Case, Count, DataType, Expr, Function,
    Literal, MathOp, Member, Name, Node, Param, Parts, Program, SpecConstant, SubgroupOp, TypeDef, TypeId, UnaryOp,
};
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

    fn type_def(&mut self) -> Parsed<TypeDef> {
        let number: usize = match self.peek() {
            Token::Number(text) if text.parse() == Ok(self.parts.types.len()) => self.parts.types.len(),
            _ => return self.expected(&format!("`{}`, the number of this type,", self.parts.types.len())),
        };
        debug_assert_eq!(number, self.parts.types.len());
        self.next();
        self.mark("=")?;
        if self.eat_word("array") {
            self.mark("<")?;
            let element = self.ty()?;
            let count = if self.eat(",") { self.count(">")? } else { Count::Runtime };
            self.mark(">")?;
            self.word("stride")?;
            let stride = self.number()?;
            self.mark(";")?;
            return Ok(TypeDef::Array { element, count, stride });
        }
        self.word("struct")?;
        let name = self.name()?;
        self.word("size")?;
        let size = self.number()?;
        self.word("align")?;
        let align = self.number()?;
        self.mark("{")?;
        let mut members = Vec::new();
        while !self.is_mark("}") {
            self.item()?;
            let name = self.name()?;
            self.mark(":")?;
            let ty = self.ty()?;
            self.word("at")?;
            members.push(Member { name, ty, offset: self.number()? });
            if !self.eat(",") {
                break;
            }
        }
        self.mark("}")?;
        self.mark(";")?;
        Ok(TypeDef::Struct { name, members, size, align })
    }

    fn ty(&mut self) -> Parsed<DataType> {
        self.nested(Self::ty_here)
    }

    fn ty_here(&mut self) -> Parsed<DataType> {
        let Token::Word(word) = *self.peek() else { return self.expected("a type") };
        let plain = [
            DataType::U32,
            DataType::I32,
            DataType::U64,
            DataType::Vec2U32,
            DataType::Vec4U32,
            DataType::Bool,
            DataType::Bytes,
            DataType::F16,
            DataType::BF16,
            DataType::F32,
            DataType::F64,
            DataType::U8,
            DataType::U16,
            DataType::I8,
            DataType::I16,
            DataType::I64,
            DataType::F8E4M3,
            DataType::F8E5M2,
            DataType::I4,
            DataType::FP4,
            DataType::NF4,
        ];
        if let Some(ty) = plain.into_iter().find(|ty| ty.to_string() == word) {
            self.next();
            return Ok(ty);
        }
        if !is_reserved(word) {
            let types = &self.parts.types;
            let id = (0..types.len() as u32)
                .map(TypeId)
                .find(|id| type_name(types, types.len(), *id).is_some_and(|name| *name == word));
            let Some(id) = id else {
                return self.problem(&codes::text::TEXT_NAME, format!("there is no type `{word}`"));
            };
            self.next();
            return Ok(DataType::Handle(id));
        }
        if !matches!(word, "raw" | "tensor" | "type" | "vec" | "csr" | "coo" | "bsr" | "mesh" | "opaque") {
            return self.expected("a type");
        }
        self.next();
        if word == "tensor" && !self.is_mark("<") {
            return Ok(DataType::Tensor);
        }
        self.mark("<")?;
        let ty = match word {
            "raw" => DataType::Array { element_size: self.number()? },
            "type" => DataType::Handle(TypeId(self.number()?)),
            "opaque" => DataType::Opaque(TypeId(self.number()?)),
            "mesh" => DataType::DeviceMesh { axes: self.axis_list()? },
            "csr" => DataType::SparseCsr { element: Box::new(self.ty()?) },
            "coo" => DataType::SparseCoo { element: Box::new(self.ty()?) },
            _ => {
                let element = Box::new(self.ty()?);
                self.mark(",")?;
                match word {
                    "vec" => DataType::Vec { element, count: self.number()? },
                    "tensor" => DataType::TensorShaped { element, shape: self.axis_list()? },
                    _ => match self.axis_list()?[..] {
                        [block_rows, block_cols] => DataType::SparseBsr { element, block_rows, block_cols },
                        _ => return self.expected("rows and columns as in `2x2`, before this"),
                    },
                }
            }
        };
        self.mark(">")?;
        Ok(ty)
    }

    /// `2x3x4`, or nothing.
    fn axis_list(&mut self) -> Parsed<SmallVec<[u32; 4]>> {
        let Token::Number(text) = *self.peek() else { return Ok(SmallVec::new()) };
        match text.split('x').map(str::parse).collect() {
            Ok(axes) => {
                self.next();
                Ok(axes)
            }
            Err(_) => self.problem(&codes::text::TEXT_NUMBER, format!("`{text}` is no shape such as `2x3`")),
        }
    }

    fn literal(&mut self) -> Parsed<Literal> {
        let start = self.ahead[0].1;
        let negative = self.eat("-");
        match *self.peek() {
            Token::Word(word @ ("true" | "false")) if !negative => {
                self.next();
                Ok(Literal::Bool(word == "true"))
            }
            Token::Number(text) => match literal(text, negative) {
                Some(literal) => {
                    self.next();
                    Ok(literal)
                }
                None => {
                    let end = self.ahead[0].2;
                    let message = format!("`{}{text}` is no number of its type", if negative { "-" } else { "" });
                    self.problem_at(&codes::text::TEXT_NUMBER, message, start, end)
                }
            },
            _ => self.expected("a literal"),
        }
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

    /// Statements in braces, with names of their own.
    fn list(&mut self) -> Parsed<Vec<Node>> {
        self.scope.open();
        let nodes = self.statements();
        self.scope.close();
        nodes
    }

    /// Statements in braces, in the open scope. A broken statement is reported and left out.
    fn statements(&mut self) -> Parsed<Vec<Node>> {
        self.mark("{")?;
        let mut nodes = Vec::new();
        while !self.is_mark("}") && *self.peek() != Token::End {
            if self.braces == MAX_BRACES {
                return self.too_deep();
            }
            self.braces += 1;
            let node = self.node();
            self.braces -= 1;
            match node {
                Ok(node) => nodes.push(node),
                Err(Reported) => self.recover(false),
            }
        }
        self.mark("}")?;
        Ok(nodes)
    }

    fn node(&mut self) -> Parsed<Node> {
        self.item()?;
        let word = match self.peek() {
            Token::Word(word) => *word,
            Token::Mark("{") => return Ok(Node::Block(self.list()?)),
            _ => return self.assignment(),
        };
        let simple = |this: &mut Self, node: Node| {
            this.next();
            this.mark(";")?;
            Ok(node)
        };
        match word {
            "let" => {
                self.next();
                let name = self.name()?;
                self.mark("=")?;
                let node = match self.peek() {
                    Token::Word("call") => self.call(Some(name.clone()))?,
                    Token::Word("atomic") => self.atomic(Some(name.clone()))?,
                    _ => Node::Let { name: name.clone(), value: self.expr(0)? },
                };
                self.mark(";")?;
                self.scope.declare(&name, None);
                Ok(node)
            }
            "var" => {
                self.next();
                let name = self.name()?;
                self.mark(":")?;
                let ty = self.ty()?;
                let init = if self.eat("=") { Some(self.expr(0)?) } else { None };
                self.mark(";")?;
                self.scope.declare(&name, Some(&ty));
                Ok(Node::Var { name, ty, init })
            }
            "if" => self.conditional(),
            "switch" => self.switch(),
            "for" => {
                self.next();
                let var = self.name()?;
                self.word("in")?;
                let from = self.expr(0)?;
                self.mark("..")?;
                let to = self.expr(0)?;
                let step = if self.eat_word("step") { self.number()? } else { 1 };
                self.scope.open();
                self.scope.declare(&var, None);
                let body = self.list();
                self.scope.close();
                Ok(Node::For { var, from, to, step, body: body? })
            }
            "loop" => {
                self.next();
                self.scope.open();
                let node = self.general_loop();
                self.scope.close();
                node
            }
            "break" => simple(self, Node::Break),
            "continue" => simple(self, Node::Continue),
            "barrier" => simple(self, Node::Barrier(BarrierScope::Workgroup)),
            "storage_barrier" => simple(self, Node::Barrier(BarrierScope::Storage)),
            "return" => {
                self.next();
                let value = if self.is_mark(";") { None } else { Some(self.expr(0)?) };
                self.mark(";")?;
                Ok(Node::Return(value))
            }
            "call" => {
                let node = self.call(None)?;
                self.mark(";")?;
                Ok(node)
            }
            "atomic" => {
                let node = self.atomic(None)?;
                self.mark(";")?;
                Ok(node)
            }
            _ => self.assignment(),
        }
    }

    fn conditional(&mut self) -> Parsed<Node> {
        self.word("if")?;
        let cond = self.expr(0)?;
        let then = self.list()?;
        let mut otherwise = Vec::new();
        if self.eat_word("else") {
            if self.is_word("if") {
                self.item()?;
                self.scope.open();
                if self.braces == MAX_BRACES {
                    return self.too_deep();
                }
                self.braces += 1;
                let chained = self.conditional();
                self.braces -= 1;
                self.scope.close();
                otherwise.push(chained?);
            } else {
                otherwise = self.list()?;
            }
        }
        Ok(Node::If { cond, then, otherwise })
    }

    fn switch(&mut self) -> Parsed<Node> {
        self.next();
        let selector = self.expr(0)?;
        self.mark("{")?;
        let mut cases = Vec::new();
        while !self.is_mark("}") {
            self.item()?;
            let mut case = Case { values: Vec::new(), default: false, body: Vec::new() };
            if self.eat_word("default") {
                case.default = true;
            } else {
                self.word("case")?;
                while !self.is_mark("{") {
                    if self.eat_word("default") {
                        case.default = true;
                        break;
                    }
                    self.item()?;
                    case.values.push(self.literal()?);
                    if !self.eat(",") {
                        break;
                    }
                }
            }
            case.body = self.list()?;
            cases.push(case);
        }
        self.mark("}")?;
        Ok(Node::Switch { selector, cases })
    }

    fn general_loop(&mut self) -> Parsed<Node> {
        let body = self.statements()?;
        let continuing = if self.eat_word("continuing") { self.statements()? } else { Vec::new() };
        let mut break_if = None;
        if self.eat_word("until") {
            break_if = Some(self.expr(0)?);
            self.mark(";")?;
        }
        Ok(Node::Loop { body, continuing, break_if })
    }

    fn call(&mut self, result: Option<Name>) -> Parsed<Node> {
        self.word("call")?;
        let function = self.name()?;
        Ok(Node::Call { function, args: self.args()?, result })
    }

    fn atomic(&mut self, result: Option<Name>) -> Parsed<Node> {
        self.word("atomic")?;
        self.mark(".")?;
        let op = match self.peek() {
            Token::Word(word) => AtomicOp::named(word),
            _ => None,
        };
        let Some(op) = op else { return self.expected("an atomic operation") };
        self.next();
        self.mark("(")?;
        self.eat("@");
        let buffer = self.name()?;
        let (index, path) = self.element(&buffer)?;
        let (mut value, mut compare) = (None, None);
        while self.eat(",") {
            let labelled = self.is_word("compare") && matches!(self.second(), Token::Mark(":"));
            if labelled && compare.is_none() {
                self.next();
                self.next();
                compare = Some(self.expr(0)?);
            } else if value.is_none() && compare.is_none() {
                value = Some(self.expr(0)?);
            } else {
                return self.expected("`)`");
            }
        }
        self.mark(")")?;
        Ok(Node::Atomic { op, buffer, index, path, value, compare, result })
    }

    /// `[index]` and the path after it.
    fn element(&mut self, buffer: &Name) -> Parsed<(Expr, Vec<Access>)> {
        self.mark("[")?;
        let index = self.expr(0)?;
        self.mark("]")?;
        let mut ty = None;
        if self.in_body {
            ty = self.parts.buffers.iter().find(|decl| decl.name == *buffer).map(|decl| decl.ty.clone());
        }
        let path = self.path(&mut ty)?;
        Ok((index, path))
    }

    /// Steps into something, up to a swizzle. `ty` is its type where that is known, and becomes that of the part.
    fn path(&mut self, ty: &mut Option<DataType>) -> Parsed<Vec<Access>> {
        let mut path = Vec::new();
        loop {
            let access = if self.eat("[") {
                self.item()?;
                let index = self.expr(0)?;
                self.mark("]")?;
                Access::Index(index)
            } else if self.is_mark(".") {
                match self.second() {
                    Token::Number(_) => {
                        self.next();
                        Access::Member(self.number()?)
                    }
                    Token::Word(_) | Token::Quoted(_) => {
                        let Some(members) = self.members(ty) else { return Ok(path) };
                        self.next();
                        let name: Name = match self.peek() {
                            Token::Word(word) => (*word).into(),
                            Token::Quoted(word) => (&**word).into(),
                            _ => return self.expected("a member"),
                        };
                        let Some(at) = members.iter().position(|member| *member == name) else {
                            return self.problem(&codes::text::TEXT_NAME, format!("the struct has no member `{name}`"));
                        };
                        self.next();
                        Access::Member(at as u32)
                    }
                    _ => return self.expected("a member or lanes after the dot"),
                }
            } else {
                return Ok(path);
            };
            *ty = ty.take().and_then(|ty| step(&ty, &access, &self.parts.types).ok());
            path.push(access);
        }
    }

    /// The members' names when the type is known to be a struct.
    fn members(&self, ty: &Option<DataType>) -> Option<Vec<Name>> {
        let Some(DataType::Handle(id)) = ty else { return None };
        match self.parts.types.get(id.0 as usize)? {
            TypeDef::Struct { members, .. } => Some(members.iter().map(|member| member.name.clone()).collect()),
            TypeDef::Array { .. } => None,
        }
    }

    fn assignment(&mut self) -> Parsed<Node> {
        let variable = self.eat("%");
        let buffer = !variable && self.eat("@");
        if !self.is_name() {
            return self.expected("a statement");
        }
        let name = self.name()?;
        let known = self.scope.get(name.as_str()).map(|ty| ty.cloned());
        if buffer || !variable && known.is_none() && self.is_mark("[") {
            let (index, path) = self.element(&name)?;
            self.mark("=")?;
            let value = self.expr(0)?;
            self.mark(";")?;
            return Ok(Node::Store { buffer: name, index, path, value });
        }
        let path = self.path(&mut known.flatten())?;
        self.mark("=")?;
        let value = self.expr(0)?;
        self.mark(";")?;
        Ok(Node::Assign { name, path, value })
    }

    fn args(&mut self) -> Parsed<Vec<Expr>> {
        self.mark("(")?;
        let mut args = Vec::new();
        while !self.is_mark(")") {
            self.item()?;
            args.push(self.expr(0)?);
            if !self.eat(",") {
                break;
            }
        }
        self.mark(")")?;
        Ok(args)
    }

    /// The operator in front, and whether it takes two tokens.
    fn operator(&self) -> Option<(BinaryOp, bool)> {
        let Token::Mark(mark) = self.peek() else { return None };
        if *mark == ">" && *self.second() == Token::Mark(">") && self.ahead[0].2 == self.ahead[1].1 {
            return Some((BinaryOp::Shr, true));
        }
        Some((BinaryOp::named(mark)?, false))
    }

    /// An expression of operators that bind at least so much.
    fn expr(&mut self, least: u8) -> Parsed<Expr> {
        self.nested(|this| {
            let mut left = this.unary()?;
            let mut compared = false;
            while let Some((op, twice)) = this.operator() {
                let own = precedence(op);
                if own < least {
                    break;
                }
                if op.is_comparison() && std::mem::replace(&mut compared, true) {
                    let message = "comparisons don't chain; use parentheses".to_owned();
                    return this.problem(&codes::text::TEXT_SYNTAX, message);
                }
                this.item()?;
                this.next();
                if twice {
                    this.next();
                }
                left = Expr::binary(op, left, this.expr(own + 1)?);
            }
            Ok(left)
        })
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let op = match self.peek() {
            Token::Mark("-") if matches!(self.second(), Token::Number(_)) => return Ok(self.literal()?.into()),
            Token::Mark("-") => UnaryOp::Neg,
            Token::Mark("!") => UnaryOp::Not,
            _ => return self.primary(),
        };
        self.item()?;
        self.next();
        self.nested(|this| Ok(Expr::unary(op, this.unary()?)))
    }

    fn primary(&mut self) -> Parsed<Expr> {
        self.item()?;
        match *self.peek() {
            Token::Number(_) | Token::Word("true" | "false") => Ok(self.literal()?.into()),
            Token::Mark("(") => {
                self.next();
                let value = self.expr(0)?;
                self.mark(")")?;
                let path = self.path(&mut None)?;
                let value = if path.is_empty() { value } else { Expr::Part { value: Box::new(value), path } };
                self.swizzles(value)
            }
            Token::Mark("%") => {
                self.next();
                let name = self.name()?;
                self.variable(name)
            }
            Token::Mark("$") => {
                self.next();
                Ok(Expr::Constant(self.name()?))
            }
            Token::Mark("@") => {
                self.next();
                let name = self.name()?;
                self.load(name)
            }
            Token::Quoted(_) => {
                let name = self.name()?;
                self.named(name)
            }
            Token::Word(word) => self.word_expr(word),
            _ => self.expected("an expression"),
        }
    }

    /// What a plain name means here.
    fn named(&mut self, name: Name) -> Parsed<Expr> {
        if self.scope.has(name.as_str()) {
            self.variable(name)
        } else if self.is_mark("[") {
            self.load(name)
        } else if self.constants.contains(&name) {
            Ok(Expr::Constant(name))
        } else {
            self.variable(name)
        }
    }

    fn load(&mut self, buffer: Name) -> Parsed<Expr> {
        let (index, path) = self.element(&buffer)?;
        self.swizzles(Expr::Load { buffer, index: Box::new(index), path })
    }

    fn variable(&mut self, name: Name) -> Parsed<Expr> {
        let mut ty = self.scope.get(name.as_str()).flatten().cloned();
        let path = self.path(&mut ty)?;
        let value = Expr::Var(name);
        let value = if path.is_empty() { value } else { Expr::Part { value: Box::new(value), path } };
        self.swizzles(value)
    }

    /// `.xyz` after a value.
    fn swizzles(&mut self, mut value: Expr) -> Parsed<Expr> {
        while self.is_mark(".") {
            self.next();
            let Token::Word(word) = *self.peek() else { return self.expected("lanes such as `xy`") };
            let lanes: Option<SmallVec<[u8; 4]>> =
                word.bytes().map(|letter| LANES.iter().position(|lane| *lane == letter).map(|at| at as u8)).collect();
            let Some(lanes) = lanes else { return self.expected("lanes such as `xy`") };
            self.item()?;
            self.next();
            value = Expr::Swizzle { value: Box::new(value), lanes };
        }
        Ok(value)
    }

    fn word_expr(&mut self, word: &'s str) -> Parsed<Expr> {
        let axis = |make: fn(u8) -> Builtin| Some(make);
        let with_axis = match word {
            "global_id" => axis(Builtin::GlobalId),
            "local_id" => axis(Builtin::LocalId),
            "workgroup_id" => axis(Builtin::WorkgroupId),
            "num_workgroups" => axis(Builtin::NumWorkgroups),
            "workgroup_size" => axis(Builtin::WorkgroupSize),
            _ => None,
        };
        if let Some(make) = with_axis {
            self.next();
            self.mark(".")?;
            let axis = match *self.peek() {
                Token::Word("x") => 0,
                Token::Word("y") => 1,
                Token::Word("z") => 2,
                Token::Number(_) => return Ok(Expr::Builtin(make(self.number()?))),
                _ => return self.expected("`x`, `y` or `z`"),
            };
            self.next();
            return Ok(Expr::Builtin(make(axis)));
        }
        let builtin = match word {
            "local_index" => Some(Builtin::LocalIndex),
            "subgroup_size" => Some(Builtin::SubgroupSize),
            "subgroup_lane" => Some(Builtin::SubgroupLane),
            "subgroup_id" => Some(Builtin::SubgroupId),
            "num_subgroups" => Some(Builtin::NumSubgroups),
            _ => None,
        };
        if let Some(builtin) = builtin {
            self.next();
            return Ok(Expr::Builtin(builtin));
        }
        let called = *self.second() == Token::Mark("(");
        match word {
            "len" if called => {
                self.next();
                self.mark("(")?;
                let buffer = self.name()?;
                self.mark(")")?;
                return Ok(Expr::Length(buffer));
            }
            "select" if called => {
                self.next();
                let at = self.ahead[0].1;
                return match <[Expr; 3]>::try_from(self.args()?) {
                    Ok([cond, yes, no]) => Ok(Expr::select(cond, yes, no)),
                    Err(args) => self.wrong_count("select", 3, args.len(), at),
                };
            }
            "cast" | "bitcast" => {
                self.next();
                self.mark("<")?;
                let ty = self.ty()?;
                self.mark(">")?;
                self.mark("(")?;
                let value = self.expr(0)?;
                self.mark(")")?;
                return Ok(if word == "cast" { value.cast(ty) } else { value.bit_cast(ty) });
            }
            "part" if called => {
                self.next();
                self.mark("(")?;
                let value = Box::new(self.expr(0)?);
                self.mark(")")?;
                return Ok(Expr::Part { value, path: Vec::new() });
            }
            "swizzle" if called => {
                self.next();
                self.mark("(")?;
                let value = Box::new(self.expr(0)?);
                let mut lanes = SmallVec::new();
                while self.eat(",") {
                    self.item()?;
                    lanes.push(self.number()?);
                }
                self.mark(")")?;
                return Ok(Expr::Swizzle { value, lanes });
            }
            "subgroup" => {
                self.next();
                self.mark(".")?;
                let op = match self.peek() {
                    Token::Word(word) => SubgroupOp::named(word),
                    _ => None,
                };
                let Some(op) = op else { return self.expected("a subgroup operation") };
                self.next();
                let at = self.ahead[0].1;
                let mut args = self.args()?.into_iter();
                let (value, argument, more) = (args.next(), args.next(), args.len());
                return match (value, more) {
                    (Some(value), 0) => {
                        Ok(Expr::Subgroup { op, value: Box::new(value), argument: argument.map(Box::new) })
                    }
                    (None, _) => self.wrong_count(op.name(), 1, 0, at),
                    (_, more) => self.wrong_count(op.name(), 2, 2 + more, at),
                };
            }
            _ => {}
        }
        if called && !is_reserved(word) {
            if let Some(op) = MathOp::named(word) {
                self.next();
                return Ok(Expr::Math { op, args: self.args()? });
            }
            let known = self.parts.types.iter().any(|def| matches!(def, TypeDef::Struct { name, .. } if *name == word));
            if !known {
                let also =
                    if self.scope.has(word) { "; it is a variable" } else { "; functions are called with `call`" };
                return self.problem(&codes::text::TEXT_NAME, format!("there is no built-in function `{word}`{also}"));
            }
            let ty = self.ty()?;
            return Ok(Expr::Construct { ty, parts: self.args()? });
        }
        if is_reserved(word) {
            if !TYPE_WORDS.contains(&word) {
                return self.expected("an expression");
            }
            let ty = self.ty()?;
            return Ok(Expr::Construct { ty, parts: self.args()? });
        }
        let name = self.name()?;
        self.named(name)
    }

    fn wrong_count<T>(&mut self, what: &str, wanted: usize, found: usize, at: usize) -> Parsed<T> {
        let message = format!("`{what}` takes {wanted} arguments, not {found}");
        let end = self.ahead[0].1;
        self.problem_at(&codes::text::TEXT_SYNTAX, message, at, end)
    }
}

/// The value of a number with its suffix.
fn literal(text: &str, negative: bool) -> Option<Literal> {
    if let Some((ty, bits)) = text.split_once('#') {
        if negative {
            return None;
        }
        let (ty, digits) = match ty {
            "f16" => (DataType::F16, 4),
            "f32" => (DataType::F32, 8),
            _ => (DataType::F64, 16),
        };
        let bits = u64::from_str_radix(bits, 16).ok().filter(|_| bits.len() == digits)?;
        return Literal::from_bits(&ty, bits);
    }
    // Where the digits end: the exponent belongs to them.
    let suffix_at = text.find(|c: char| c.is_ascii_alphabetic() && c != 'e').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(suffix_at);
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    let signed = || if negative { format!("-{digits}") } else { digits.to_owned() };
    Some(match (suffix, whole) {
        ("" | "u32", true) if !negative => Literal::U32(digits.parse().ok()?),
        ("u64", true) if !negative => Literal::U64(digits.parse().ok()?),
        ("i32", true) => Literal::I32(signed().parse().ok()?),
        ("i64", true) => Literal::I64(signed().parse().ok()?),
        ("", false) | ("f32", _) => Literal::F32(signed().parse().ok().filter(|v: &f32| v.is_finite())?),
        ("f64", _) => Literal::F64(signed().parse().ok().filter(|v: &f64| v.is_finite())?),
        ("f16", _) => {
            let value: f64 = signed().parse().ok()?;
            Literal::F16(Some(half::f16::from_f64(value)).filter(|value| value.is_finite())?)
        }
        _ => return None,
    })
}
