//! Expressions, literals, and the places that stores and loads share.

use smallvec::SmallVec;
use vyre_spec::codes;

use super::super::lex::Token;
use super::super::print::precedence;
use super::super::{LANES, TYPE_WORDS, is_reserved};
use super::{Parsed, Parser};
use crate::ir::typing::step;
use crate::ir::{
    Access, BinaryOp, Builtin, DataType, Expr, Literal, MathOp, MatrixKind, Name, SubgroupOp, TypeDef, UnaryOp,
};

impl<'s> Parser<'s> {
    pub(super) fn literal(&mut self) -> Parsed<Literal> {
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

    /// `[index]` and the path after it.
    pub(super) fn element(&mut self, buffer: &Name) -> Parsed<(Expr, Vec<Access>)> {
        self.mark("[")?;
        let index = self.expr(0)?;
        self.mark("]")?;
        let mut ty = None;
        if self.in_body {
            ty = self.buffers.get(buffer).map(|at| self.parts.buffers[*at].ty.clone());
        }
        let path = self.path(&mut ty)?;
        Ok((index, path))
    }

    /// Steps into something, up to a swizzle. `ty` is its type where that is known, and becomes that of the part.
    pub(super) fn path(&mut self, ty: &mut Option<DataType>) -> Parsed<Vec<Access>> {
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
                        let Some(id) = self.struct_id(ty) else { return Ok(path) };
                        self.next();
                        let name: Name = match self.peek() {
                            Token::Word(word) => (*word).into(),
                            Token::Quoted(word) => (&**word).into(),
                            _ => return self.expected("a member"),
                        };
                        let key = (id, name);
                        let Some(&at) = self.members.get(&key) else {
                            let message = format!("the struct has no member `{}`", key.1);
                            return self.problem(&codes::text::TEXT_NAME, message);
                        };
                        self.next();
                        Access::Member(at)
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

    /// The number of a type that is known to be a struct.
    pub(super) fn struct_id(&self, ty: &Option<DataType>) -> Option<u32> {
        let Some(DataType::Handle(id)) = ty else { return None };
        matches!(self.parts.types.get(id.0 as usize)?, TypeDef::Struct { .. }).then_some(id.0)
    }

    pub(super) fn args(&mut self) -> Parsed<Vec<Expr>> {
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
    pub(super) fn operator(&self) -> Option<(BinaryOp, bool)> {
        let Token::Mark(mark) = self.peek() else { return None };
        if *mark == ">" && *self.second() == Token::Mark(">") && self.ahead[0].2 == self.ahead[1].1 {
            return Some((BinaryOp::Shr, true));
        }
        Some((BinaryOp::named(mark)?, false))
    }

    /// An expression of operators that bind at least so much.
    pub(super) fn expr(&mut self, least: u8) -> Parsed<Expr> {
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

    pub(super) fn unary(&mut self) -> Parsed<Expr> {
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

    pub(super) fn primary(&mut self) -> Parsed<Expr> {
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
    pub(super) fn named(&mut self, name: Name) -> Parsed<Expr> {
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

    pub(super) fn load(&mut self, buffer: Name) -> Parsed<Expr> {
        let (index, path) = self.element(&buffer)?;
        self.swizzles(Expr::Load { buffer, index: Box::new(index), path })
    }

    pub(super) fn variable(&mut self, name: Name) -> Parsed<Expr> {
        let mut ty = self.scope.get(name.as_str()).flatten().cloned();
        let path = self.path(&mut ty)?;
        let value = Expr::Var(name);
        let value = if path.is_empty() { value } else { Expr::Part { value: Box::new(value), path } };
        self.swizzles(value)
    }

    /// `.xyz` after a value.
    pub(super) fn swizzles(&mut self, mut value: Expr) -> Parsed<Expr> {
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

    pub(super) fn word_expr(&mut self, word: &'s str) -> Parsed<Expr> {
        if let Some(builtin) = self.builtin(word)? {
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
            "subgroup" => return self.subgroup_expr(),
            _ => {}
        }
        if called && !is_reserved(word) {
            if let Some(op) = MathOp::named(word) {
                self.next();
                return Ok(Expr::Math { op, args: self.args()? });
            }
            if !self.structs.contains_key(word) {
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

    /// What a built-in value is called, and its axis where it has several.
    fn builtin(&mut self, word: &str) -> Parsed<Option<Builtin>> {
        let make: fn(u8) -> Builtin = match word {
            "global_id" => Builtin::GlobalId,
            "local_id" => Builtin::LocalId,
            "workgroup_id" => Builtin::WorkgroupId,
            "num_workgroups" => Builtin::NumWorkgroups,
            "workgroup_size" => Builtin::WorkgroupSize,
            _ => {
                let builtin = match word {
                    "local_index" => Builtin::LocalIndex,
                    "subgroup_size" => Builtin::SubgroupSize,
                    "subgroup_lane" => Builtin::SubgroupLane,
                    "subgroup_id" => Builtin::SubgroupId,
                    "num_subgroups" => Builtin::NumSubgroups,
                    _ => return Ok(None),
                };
                self.next();
                return Ok(Some(builtin));
            }
        };
        self.next();
        self.mark(".")?;
        let axis = match *self.peek() {
            Token::Word("x") => 0,
            Token::Word("y") => 1,
            Token::Word("z") => 2,
            Token::Number(_) => return Ok(Some(make(self.number()?))),
            _ => return self.expected("`x`, `y` or `z`"),
        };
        self.next();
        Ok(Some(make(axis)))
    }

    /// `subgroup.` and an operation of a subgroup or of its matrices.
    fn subgroup_expr(&mut self) -> Parsed<Expr> {
        self.next();
        self.mark(".")?;
        let word = match *self.peek() {
            Token::Word(word) => word,
            _ => "",
        };
        if let Some(kind) = MatrixKind::named(word) {
            self.next();
            let at = self.ahead[0].1;
            return match <[Expr; 3]>::try_from(self.args()?) {
                Ok([a, b, c]) => Ok(Expr::matrix_multiply_add(kind, a, b, c)),
                Err(args) => self.wrong_count(word, 3, args.len(), at),
            };
        }
        let Some(op) = SubgroupOp::named(word) else { return self.expected("a subgroup operation") };
        self.next();
        let at = self.ahead[0].1;
        let mut args = self.args()?.into_iter();
        let (value, argument, more) = (args.next(), args.next(), args.len());
        match (value, more) {
            (Some(value), 0) => Ok(Expr::Subgroup { op, value: Box::new(value), argument: argument.map(Box::new) }),
            (None, _) => self.wrong_count(op.name(), 1, 0, at),
            (_, more) => self.wrong_count(op.name(), 2, 2 + more, at),
        }
    }

    pub(super) fn wrong_count<T>(&mut self, what: &str, wanted: usize, found: usize, at: usize) -> Parsed<T> {
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
